/*
 * Replays a fuzz corpus without libFuzzer: every argument is an input file or a folder of them.
 * Builds that are not made by clang link this in place of libFuzzer's main, so that gcc, valgrind
 * and coverage run over the kept inputs too.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define EXIT_SKIPPED 77

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned int inputs;

static void replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	struct stat st;
	uint8_t *data;
	size_t size;

	if (!file || fstat(fileno(file), &st) != 0) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	/* Exactly as long as the input, so that a sanitizer sees a read past its end. */
	size = (size_t)st.st_size;
	data = malloc(size ? size : 1);
	if (!data || fread(data, 1, size, file) != size) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	fclose(file);
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	inputs++;
}

static void replay(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char child[4096];

	if (!dir) {
		struct stat st;

		if (stat(path, &st) == 0)
			replay_file(path);
		return;
	}
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
		replay_file(child);
	}
	closedir(dir);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		replay(argv[i]);
	if (inputs == 0) {
		printf("no corpus\n");
		return EXIT_SKIPPED;
	}
	printf("%u inputs replayed\n", inputs);
	return EXIT_SUCCESS;
}

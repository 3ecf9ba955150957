#include "tests/golden/golden.h"

#include <stdint.h>
#include <string.h>

#include "tests/support/test.h"

void put_bytes(FILE *out, const char *name, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;

	(void)fprintf(out, "bytes %s %zu\n", name, n);
	for (size_t i = 0; i < n; i += 16) {
		size_t len = n - i < 16 ? n - i : 16;
		bool zero = true;

		for (size_t j = 0; j < len; j++)
			zero = zero && at[i + j] == 0;
		if (zero)
			continue;
		(void)fprintf(out, "  %zu", i);
		for (size_t j = 0; j < len; j++)
			(void)fprintf(out, " %02x", at[i + j]);
		(void)fprintf(out, "\n");
	}
}

static char *read_all(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = calloc(1, 1 << 18);

	assert_non_null(text);
	if (!file) {
		free(text);
		return NULL;
	}
	(void)!fread(text, 1, (1 << 18) - 1, file);
	(void)fclose(file);
	return text;
}

/* Prints the first line that differs. */
static void compare(const char *name, const char *golden, const char *now)
{
	size_t line = 0, i = 0;

	for (; golden[i] && golden[i] == now[i]; i++) {
		if (golden[i] == '\n')
			line = i + 1;
	}
	if (golden[i] != now[i])
		fail_msg("%s has changed without a new version:\n was: %.*s\n now: %.*s", name,
			 (int)strcspn(golden + line, "\n"), golden + line,
			 (int)strcspn(now + line, "\n"), now + line);
}

void check_golden_in(const char *folder, const char *name, void (*put)(FILE *out))
{
	char path[512], *golden, *now = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&now, &size);

	assert_non_null(out);
	put(out);
	assert_int_equal(fclose(out), 0);
	(void)snprintf(path, sizeof(path), "%s/%s.txt", folder, name);
	golden = read_all(path);
	if (!golden && getenv("RLV_GOLDEN_WRITE")) {
		out = fopen(path, "we");
		assert_non_null(out);
		assert_int_equal(fwrite(now, 1, size, out), size);
		assert_int_equal(fclose(out), 0);
		golden = read_all(path);
	}
	if (!golden)
		fail_msg("no %s: a new version needs its golden file", path);
	compare(name, golden, now);
	free(golden);
	free(now);
}

#include "tests/support/temp_dir.h"

#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOT_MAX 40 /* sun_path of a socket in the folder has 108 bytes */

void temp_dir_make(char dir[TEMP_DIR_BYTES])
{
	const char *root = getenv("TMPDIR");

	if (!root || !*root || strlen(root) > ROOT_MAX)
		root = "/tmp";
	assert_true((size_t)snprintf(dir, TEMP_DIR_BYTES, "%s/relive-test-XXXXXX", root) <
		    TEMP_DIR_BYTES);
	assert_non_null(mkdtemp(dir));
}

void temp_dir_remove(const char *path)
{
	DIR *dir;
	struct dirent *entry;

	if (unlink(path) == 0)
		return;
	dir = opendir(path);
	if (!dir)
		return;
	while ((entry = readdir(dir)) != NULL)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			(void)unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
	(void)rmdir(path);
}

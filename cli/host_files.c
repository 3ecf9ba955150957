#include "cli/host_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_OPEN 8
#define KEEP_NAME "persistent"

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	(void)remove(path);
	return 0;
}

void host_files_remove(const char *path)
{
	(void)nftw(path, remove_one, MAX_OPEN, FTW_DEPTH | FTW_PHYS);
}

int host_files_keep(const struct runtime_dir *dir)
{
	char path[RUNTIME_PATH_BYTES];
	int fd, ret = runtime_dir_file(dir, KEEP_NAME, path);

	if (ret)
		return ret;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_set(-errno, "create %s: %m", path);
	close(fd);
	return 0;
}

static bool ends_with(const char *name, const char *end)
{
	size_t a = strlen(name), b = strlen(end);

	return a > b && strcmp(name + a - b, end) == 0;
}

void host_files_clean(const struct runtime_dir *dir)
{
	char path[RUNTIME_PATH_BYTES];
	const struct dirent *entry;
	DIR *folder;

	if (runtime_dir_file(dir, KEEP_NAME, path) || access(path, F_OK)) {
		host_files_remove(dir->path);
		return;
	}
	folder = opendir(dir->path);
	while (folder && (entry = readdir(folder)) != NULL) {
		const char *name = entry->d_name;

		if ((ends_with(name, ".sock") || ends_with(name, ".pid") ||
		     ends_with(name, ".lock")) &&
		    runtime_dir_file(dir, name, path) == 0)
			(void)unlink(path);
	}
	if (folder)
		closedir(folder);
}

/* Looks without creating the lock file: a name that never ran has none. */
pid_t host_files_pid(const struct runtime_dir *dir, const char *name)
{
	char file[80], path[RUNTIME_PATH_BYTES];
	int fd, pid = 0;

	snprintf(file, sizeof(file), "%.60s.lock", name);
	if (runtime_dir_file(dir, file, path) || access(path, F_OK))
		return 0;
	if (runtime_dir_lock(dir, name, &fd, &pid) == 0) {
		runtime_dir_unlock(dir, name, fd);
		return 0;
	}
	return pid;
}

static int add(const struct runtime_dir *dir, const char *file, struct host_daemon *daemons,
	       uint32_t *n)
{
	size_t len = strlen(file);
	struct host_daemon *daemon = &daemons[*n];

	if (len <= 5 || len - 5 >= sizeof(daemon->name) || strcmp(file + len - 5, ".lock") != 0)
		return 0;
	if (*n == HOST_FILES_MAX)
		return error_set(-E2BIG, "%s: more than %d daemons", dir->path, HOST_FILES_MAX);
	memcpy(daemon->name, file, len - 5);
	daemon->name[len - 5] = 0;
	daemon->pid = host_files_pid(dir, daemon->name);
	++*n;
	return 0;
}

int host_files_daemons(const struct runtime_dir *dir, struct host_daemon *daemons_out,
		       uint32_t *n_out)
{
	DIR *folder = opendir(dir->path);
	const struct dirent *entry;
	uint32_t n = 0;
	int ret = 0;

	if (!folder)
		return error_set(-errno, "open %s: %m", dir->path);
	while (ret == 0 && (entry = readdir(folder)) != NULL)
		ret = add(dir, entry->d_name, daemons_out, &n);
	closedir(folder);
	if (ret == 0)
		*n_out = n;
	return ret;
}

#include "cli/host/host_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "cli/cli.h"
#include "program/interrupt.h"

static const char lock_end[] = ".lock", record_end[] = ".cmdline";

int host_lock(const char *store, int64_t timeout_ns, int *fd_out)
{
	uint64_t start = clock_now_ns(clock_monotonic());
	bool said = false;
	int64_t spent;
	int ret, pid = 0;

	while ((ret = runtime_store_lock(store, fd_out, &pid)) == -EBUSY) {
		spent = (int64_t)(clock_now_ns(clock_monotonic()) - start);
		if (interrupt_pending())
			return error_set(-EINTR, "interrupted");
		if (spent > timeout_ns)
			return error_set(-ETIMEDOUT,
					 "store %s: pid %d still starts or stops it after %.0f s",
					 store, pid, (double)timeout_ns / CLOCK_NS_PER_S);
		if (!said && spent >= CLOCK_NS_PER_S) {
			cli_error("waiting for pid %d, which starts or stops store %s", pid, store);
			said = true;
		}
		interrupt_sleep(20 * CLOCK_NS_PER_MS);
	}
	return ret;
}

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
	(void)nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int host_files_mark(const struct runtime_dir *dir, const char *mark)
{
	char path[RUNTIME_PATH_BYTES];
	int fd, ret = runtime_dir_file(dir, mark, path);

	if (ret)
		return ret;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_set(-errno, "create %s: %m", path);
	close(fd);
	return 0;
}

bool host_files_have(const struct runtime_dir *dir, const char *name)
{
	char path[RUNTIME_PATH_BYTES];

	return runtime_dir_file(dir, name, path) == 0 && access(path, F_OK) == 0;
}

static bool ends_with(const char *name, const char *end)
{
	size_t a = strlen(name), b = strlen(end);

	return a > b && strcmp(name + a - b, end) == 0;
}

/* Keeps lock files under HOST_KEPT: a daemon that is starting may hold one. */
bool host_files_clean(const struct runtime_dir *dir)
{
	const struct dirent *entry;
	DIR *folder;

	if (!host_files_have(dir, HOST_KEPT)) {
		host_files_remove(dir->path);
		return true;
	}
	folder = opendir(dir->path);
	if (!folder)
		return false;
	while ((entry = readdir(folder)) != NULL) {
		if (ends_with(entry->d_name, ".sock") || ends_with(entry->d_name, ".pid"))
			(void)unlinkat(dirfd(folder), entry->d_name, 0);
	}
	(void)unlinkat(dirfd(folder), HOST_ENDING, 0);
	closedir(folder);
	return false;
}

/* -------- daemons -------- */

bool host_daemon_is_node(const struct host_daemon *daemon)
{
	return strncmp(daemon->name, HOST_NODE, strlen(HOST_NODE)) == 0;
}

bool host_daemon_is_on_file(const struct host_daemon *daemon)
{
	return cmdline_get(&daemon->line, "--file") || cmdline_get(&daemon->line, "--dax");
}

bool host_daemon_is_elsewhere(const struct host_daemon *daemon)
{
	return cmdline_get(&daemon->line, "--metad") != NULL;
}

struct host_daemon *host_daemons_find(struct host_daemons *daemons, const char *name)
{
	for (uint32_t i = 0; i < daemons->n; i++) {
		if (strcmp(daemons->at[i].name, name) == 0)
			return &daemons->at[i];
	}
	return NULL;
}

int host_daemons_add(struct host_daemons *daemons, const char *name,
		     struct host_daemon **daemon_out)
{
	struct host_daemon *daemon = host_daemons_find(daemons, name);

	if (!daemon && daemons->n == HOST_FILES_MAX)
		return error_set(-E2BIG, "%s: a store has at most %d daemons on one host", name,
				 HOST_FILES_MAX);
	if (!daemon) {
		daemon = &daemons->at[daemons->n++];
		memset(daemon, 0, sizeof(*daemon));
		snprintf(daemon->name, sizeof(daemon->name), "%s", name);
	}
	*daemon_out = daemon;
	return 0;
}

int host_file_path(const struct runtime_dir *dir, const char *daemon, const char *end,
		   char path_out[RUNTIME_PATH_BYTES])
{
	char file[80];

	snprintf(file, sizeof(file), "%.60s%s", daemon, end);
	return runtime_dir_file(dir, file, path_out);
}

/*
 * Adds the daemon whose lock or record the file is, if it runs or has a record; skips other files.
 * A record that holds no command line counts as missing.
 */
static int add_daemon(const struct runtime_dir *dir, const char *file, struct host_daemons *daemons)
{
	struct host_daemon *daemon;
	char name[sizeof(daemon->name)], path[RUNTIME_PATH_BYTES];
	size_t len = strlen(file);
	int ret;

	if (ends_with(file, lock_end))
		len -= strlen(lock_end);
	else if (ends_with(file, record_end))
		len -= strlen(record_end);
	else
		return 0;
	if (len >= sizeof(name))
		return 0;
	memcpy(name, file, len);
	name[len] = 0;
	if (host_daemons_find(daemons, name))
		return 0;
	ret = host_daemons_add(daemons, name, &daemon);
	if (ret == 0)
		ret = host_file_path(dir, name, record_end, path);
	if (ret)
		return ret;
	ret = cmdline_read(path, &daemon->record);
	if (ret && ret != -ENOENT && ret != -EPROTO)
		return ret;
	daemon->pid = runtime_dir_holder(dir, name);
	daemon->line = daemon->record;
	if (daemon->pid && cmdline_of_process(daemon->pid, &daemon->line))
		daemon->line = daemon->record; /* it ended just now */
	if (!daemon->pid && !daemon->record.len)
		daemons->n--; /* an old lock, without a record */
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct host_daemon *)a)->name, ((const struct host_daemon *)b)->name);
}

int host_files_look(const struct runtime_dir *dir, struct host_daemons *daemons_out)
{
	DIR *folder = opendir(dir->path);
	const struct dirent *entry;
	int ret = 0;

	daemons_out->n = 0;
	if (!folder)
		return error_set(-errno, "open %s: %m", dir->path);
	while (ret == 0 && (entry = readdir(folder)) != NULL)
		ret = add_daemon(dir, entry->d_name, daemons_out);
	closedir(folder);
	qsort(daemons_out->at, daemons_out->n, sizeof(daemons_out->at[0]), by_name);
	return ret;
}

int host_files_record(const struct runtime_dir *dir, const char *name, const struct cmdline *line)
{
	char path[RUNTIME_PATH_BYTES];
	int ret = host_file_path(dir, name, record_end, path);

	if (ret)
		return ret;
	if (line->len)
		return cmdline_write(path, line);
	if (unlink(path) && errno != ENOENT)
		return error_set(-errno, "remove %s: %m", path);
	return 0;
}

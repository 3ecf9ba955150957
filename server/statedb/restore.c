#include "server/statedb/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/os/runtime_dir.h"

#include "server/statedb/statedb.h"

/* Header of a SQLite file: its magic, and the id set by PRAGMA application_id. */
#define HEAD_MAGIC "SQLite format 3"
enum { HEAD_BYTES = 100, HEAD_APPLICATION_OFF = 68 };

/* FILE, and FILE-wal with changes that are not in FILE yet. */
enum place { CATALOG, CATALOG_LOG, READY, READY_LOG, REPLACED, REPLACED_LOG, N_PLACES };

static const char *const tails[N_PLACES] = {
	[CATALOG] = "",           [CATALOG_LOG] = "-wal",       /* the store's catalog */
	[READY] = ".restore",     [READY_LOG] = ".restore-wal", /* the copy, until it is checked */
	[REPLACED] = ".replaced", [REPLACED_LOG] = ".replaced-wal", /* the previous catalog */
};

struct paths {
	char dir[PATH_MAX];
	char at[N_PLACES][PATH_MAX];
};

static int restore_failed(const char *what, const char *path)
{
	return error_set(-errno, "restore: %s %s: %s", what, path, strerror(errno));
}

/* -------- the copy -------- */

static int restore_copy(const char *file, const char *path)
{
	int from = open(file, O_RDONLY | O_CLOEXEC), to, ret = 0;
	uint8_t head[HEAD_BYTES];
	ssize_t n;

	if (from < 0)
		return restore_failed("open", file);
	to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (to < 0)
		ret = restore_failed("create", path);
	n = pread(from, head, HEAD_BYTES, 0);
	if (ret == 0 && n < 0)
		ret = restore_failed("read", file);
	else if (ret == 0 && (n < HEAD_BYTES || memcmp(head, HEAD_MAGIC, sizeof(HEAD_MAGIC)) != 0 ||
			      memcmp(head + HEAD_APPLICATION_OFF, STORE_APPLICATION, 4) != 0))
		ret = error_set(-EPROTO, "restore: %s: not a copy of a catalog by relive backup",
				file);
	while (ret == 0 && n > 0) {
		n = sendfile(to, from, NULL, 1 << 30);
		if (n < 0)
			ret = restore_failed("copy", file);
	}
	if (to >= 0)
		close(to);
	close(from);
	return ret;
}

/*
 * Checks the copy by opening it, and raises its term to the Unix time: running memory nodes refuse
 * a server with a lower term than they have seen, and a server starts less often than once a
 * second.
 */
static int make_ready(const char *path)
{
	struct catalog_store *store;
	int ret = statedb_open(path, &store);

	if (ret)
		return ret;
	ret = store_number_put(store, "term", max_u64(store->ids.term, (uint64_t)time(NULL)));
	statedb_close(&store); /* writes its WAL into the file */
	return ret;
}

/* -------- the existing catalog -------- */

static int restore_move(const char *from, const char *to)
{
	return rename(from, to) && errno != ENOENT ? restore_failed("rename", from) : 0;
}

/* Renames the catalog to its .replaced name, with its WAL, which must not be applied to another
   file. Opens and closes it before: a catalog that was closed cleanly has no WAL. */
static int move_aside(const struct paths *paths)
{
	struct catalog_store *store;
	int ret;

	if (access(paths->at[CATALOG], F_OK) == 0 && statedb_open(paths->at[CATALOG], &store) == 0)
		statedb_close(&store);
	(void)unlink(paths->at[REPLACED_LOG]);
	ret = restore_move(paths->at[CATALOG_LOG], paths->at[REPLACED_LOG]);
	return ret ? ret : restore_move(paths->at[CATALOG], paths->at[REPLACED]);
}

static int restore_into(const struct restore_opts *opts, const struct paths *paths)
{
	int ret, fd;

	if (!opts->force && access(paths->at[CATALOG], F_OK) == 0)
		return error_set(-EEXIST,
				 "restore: store %s has a catalog, %s: --force replaces it, and "
				 "keeps it as %s",
				 opts->store, paths->at[CATALOG], paths->at[REPLACED]);
	ret = restore_copy(opts->file, paths->at[READY]);
	if (ret == 0)
		ret = make_ready(paths->at[READY]);
	if (ret == 0)
		ret = move_aside(paths);
	if (ret == 0 && rename(paths->at[READY], paths->at[CATALOG]))
		ret = restore_failed("rename", paths->at[READY]);
	if (ret == 0) {
		fd = open(paths->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0 || fsync(fd))
			ret = restore_failed("fsync", paths->dir);
		if (fd >= 0)
			close(fd);
	}
	(void)unlink(paths->at[READY_LOG]);
	(void)unlink(paths->at[READY]);
	return ret;
}

int restore_catalog(const struct restore_opts *opts)
{
	struct runtime_dir dir;
	struct paths paths;
	const char *folder;
	int n, fd, pid = 0;
	int ret = runtime_dir_open(opts->store, true, &dir);

	if (ret)
		return ret;
	folder = opts->dir ? opts->dir : dir.path;
	n = snprintf(paths.dir, PATH_MAX, "%s", folder);
	for (int i = 0; n >= 0 && n < PATH_MAX && i < N_PLACES; i++)
		n = snprintf(paths.at[i], PATH_MAX, "%s/%s.db%s", folder, opts->store, tails[i]);
	if (n < 0 || n >= PATH_MAX)
		return error_set(-ENAMETOOLONG, "restore: state directory: name too long");
	ret = runtime_dir_lock(&dir, "metad", &fd, &pid);
	if (ret == -EBUSY)
		return error_set(ret,
				 "restore: store %s has a metadata server, pid %d: stop it first",
				 opts->store, pid);
	if (ret)
		return ret;
	ret = restore_into(opts, &paths);
	runtime_dir_unlock(&dir, "metad", fd);
	return ret;
}

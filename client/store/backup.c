/*
 * backup.c - a copy of the catalog in a file: complete, or not there.
 */
#include "client/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct copy {
	char path[PATH_MAX]; /* of the file until it is complete */
	int fd;
};

static int backup_failed(const char *what, const char *path)
{
	return error_set(-errno, "backup: %s %s: %s", what, path, strerror(errno));
}

static int backup_take(void *ctx, const void *bytes, size_t len)
{
	const struct copy *copy = ctx;
	const char *at = bytes;

	while (len) {
		ssize_t n = write(copy->fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return backup_failed("write", copy->path);
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Syncs the copy and renames it to path; syncs the folder, too: only then the name lasts. */
static int backup_rename(const struct copy *copy, const char *path)
{
	char name[PATH_MAX];
	int fd, ret;

	if (fsync(copy->fd))
		return backup_failed("fsync", copy->path);
	if (rename(copy->path, path))
		return backup_failed("rename to", path);
	snprintf(name, sizeof(name), "%s", path);
	fd = open(dirname(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return backup_failed("open the folder of", path);
	ret = fsync(fd) ? backup_failed("fsync the folder of", path) : 0;
	close(fd);
	return ret;
}

int rlv_store_backup(struct rlv_store *store, const char *path)
{
	struct copy copy;
	int n, ret;

	if (!store || !path || !path[0])
		return error_set(-EINVAL, "store or path is NULL or empty");
	if (!store->meta->ops->backup)
		return error_set(-ENOTSUP, "the pool of an embedded store holds its catalog: copy "
					   "the file while it is closed");
	n = snprintf(copy.path, sizeof(copy.path), "%s.XXXXXX", path);
	if (n < 0 || (size_t)n >= sizeof(copy.path))
		return error_set(-ENAMETOOLONG, "backup: %.64s...: name too long", path);
	copy.fd = mkostemp(copy.path, O_CLOEXEC);
	if (copy.fd < 0)
		return backup_failed("create", copy.path);
	ret = store->meta->ops->backup(store->meta, backup_take, &copy);
	if (ret == 0)
		ret = backup_rename(&copy, path);
	close(copy.fd);
	if (ret)
		(void)unlink(copy.path); /* already renamed on success */
	return ret;
}

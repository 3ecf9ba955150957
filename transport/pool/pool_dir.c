/*
 * pool_dir.c - directory, lock and head of a pool.
 */
#include "transport/pool/pool_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"

#include "transport/pool/map.h"
#include "transport/pool/pool_super.h"
#include "transport/pool/region_name.h"

#define HEAD "pool"

/* -------- the directory -------- */

int pool_dir_sync(const struct pool_dir *dir)
{
	if (fsync(dir->fd))
		return error_set(-errno, "fsync of directory %s: %s", dir->path, strerror(errno));
	return 0;
}

/* -------- files of the directory -------- */

int pool_dir_each(const struct pool_dir *dir,
		  int (*fn)(void *ctx, const char *name, const struct target_region *info,
			    uint32_t page),
		  void *ctx)
{
	int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret = 0;
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!stream) {
		ret = error_set(-errno, "read directory %s: %s", dir->path, strerror(errno));
		map_close(fd);
		return ret;
	}
	errno = 0;
	while (ret == 0 && (entry = readdir(stream)) != NULL) {
		struct target_region info;
		uint32_t page = REGION_WHOLE;
		bool is = region_name_parse(entry->d_name, &info, &page);

		ret = fn(ctx, entry->d_name, is ? &info : NULL, page);
		errno = 0;
	}
	if (ret == 0 && errno)
		ret = error_set(-errno, "read directory %s: %s", dir->path, strerror(errno));
	closedir(stream);
	return ret;
}

int pool_dir_remove(const struct pool_dir *dir, const char *name)
{
	if (unlinkat(dir->fd, name, 0) && errno != ENOENT)
		return error_set(-errno, "remove %s/%s: %s", dir->path, name, strerror(errno));
	return 0;
}

static int sweep_one(void *ctx, const char *name, const struct target_region *info, uint32_t page)
{
	static const char *const expected[] = { ".", "..", HEAD, "lost+found" };
	struct pool_dir *dir = ctx;

	dir->n_regions += info && page == REGION_WHOLE;
	for (size_t i = 0; i < ARRAY_LEN(expected); i++)
		if (strcmp(name, expected[i]) == 0)
			return 0;
	if (info)
		return 0;
	if (region_name_is_tmp(name)) {
		log_info("remove %s/%s: left by an interrupted call", dir->path, name);
		return pool_dir_remove(dir, name);
	}
	if (dir->made_head)
		return error_set(-EPROTO, "not a pool: the directory holds %s", name);
	log_warn("pool %s holds %s, which is no file of a pool: left alone", dir->path, name);
	return 0;
}

/* -------- the head -------- */

static int put_copy(const struct pool_dir *dir, const struct pool_superblock *super, int copy)
{
	off_t off = copy ? POOL_DIRECTORY_OFF1 : 0;

	if (pwrite(dir->head, super, sizeof(*super), off) != sizeof(*super) || fdatasync(dir->head))
		return error_set(errno ? -errno : -EIO, "write of %s/" HEAD ": %s", dir->path,
				 strerror(errno));
	return 0;
}

int pool_dir_put(const struct pool_dir *dir, const struct pool_superblock *sb)
{
	int ret = put_copy(dir, sb, 1);

	return ret ? ret : put_copy(dir, sb, 0);
}

static int load_head(struct pool_dir *dir, bool create, struct pool_superblock *super_out)
{
	struct pool_superblock pair[2];
	int ret = pool_super_read(dir->head, POOL_DIRECTORY_OFF1, pair);

	if (ret)
		return error_prefix(ret, "%s/" HEAD ": ", dir->path);
	/* Copy 0 is written last. While it is blank nothing has been made in the directory. */
	if (create && dir->n_regions == 0 && bits_all_zero(&pair[0], sizeof(pair[0]))) {
		ret = pool_super_make(super_out, POOL_DIRECTORY);
		if (ret == 0)
			ret = pool_dir_put(dir, super_out);
		return ret ? ret : pool_dir_sync(dir);
	}
	if (bits_all_zero(pair, sizeof(pair)))
		return error_set(-EBADMSG, "its file " HEAD " is blank");
	ret = pool_super_choose(pair, POOL_DIRECTORY);
	if (ret < 0)
		return ret;
	*super_out = pair[ret];
	return pool_super_same(pair) ? 0 : put_copy(dir, super_out, !ret);
}

/* -------- opening -------- */

int pool_dir_open(struct pool_dir *dir, const char *path, bool create,
		  struct pool_superblock *super_out)
{
	int parent, ret = 0;

	*dir = (struct pool_dir){ .fd = -1, .head = -1 };
	if (strlen(path) >= sizeof(dir->path))
		return error_set(-ENAMETOOLONG, "pool: its path of %zu bytes is too long",
				 strlen(path));
	(void)snprintf(dir->path, sizeof(dir->path), "%s", path);
	if (create && mkdir(dir->path, 0700) == 0)
		dir->made = true;
	else if (create && errno != EEXIST)
		return error_set(-errno, "make pool directory %s: %s", dir->path, strerror(errno));
	dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir->fd < 0)
		return error_set(-errno, "open pool directory %s: %s", dir->path, strerror(errno));
	/* The name of a new directory is durable when its parent is. */
	if (dir->made) {
		parent = openat(dir->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (parent < 0 || fsync(parent))
			ret = error_set(-errno, "fsync of the directory above: %s",
					strerror(errno));
		map_close(parent);
	}
	if (ret == 0)
		ret = map_open_own(dir->fd, HEAD, create, &dir->head);
	if (ret < 0)
		return ret == -EBUSY ? ret : error_prefix(ret, "pool directory %s: ", dir->path);
	dir->made_head = ret == 1;
	ret = pool_dir_each(dir, sweep_one, dir);
	if (ret == 0 && dir->made_head && dir->n_regions)
		ret = error_set(-EBADMSG, "holds %u regions, but its file " HEAD " is gone",
				dir->n_regions);
	return ret ? ret : load_head(dir, create, super_out);
}

void pool_dir_undo(const struct pool_dir *dir)
{
	if (dir->made_head && dir->head >= 0 && map_is_named(dir->head, dir->fd, HEAD))
		(void)unlinkat(dir->fd, HEAD, 0);
	if (dir->made)
		(void)rmdir(dir->path);
}

void pool_dir_close(struct pool_dir *dir, bool forked)
{
	if (!forked && dir->head >= 0)
		(void)map_own(dir->head, false);
	map_close(dir->head);
	map_close(dir->fd);
	dir->head = dir->fd = -1;
}

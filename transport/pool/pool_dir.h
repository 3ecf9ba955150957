/*
 * pool_dir.h - a directory that holds a pool (wire/pool_layout.h): its lock, its head, what lies in
 * it. * The head, `pool`, is locked by the node that has the pool (a lock of the open file
 * description), and changed in place, one copy after the other, so that its lock stays with it.
 */
#ifndef RLV_TRANSPORT_POOL_POOL_DIR_H
#define RLV_TRANSPORT_POOL_POOL_DIR_H

#include <limits.h>
#include <stdbool.h>

#include "wire/pool_layout.h"

#include "base/error.h"
#include "transport/transport.h"

struct pool_dir {
	char path[PATH_MAX];
	int fd;   /* of the directory; -1 = none */
	int head; /* of the file `pool`, locked; -1 = none */
	bool made, made_head;
	uint32_t n_regions; /* files of regions, when it was opened */
};

/*
 * Opens and locks a directory; with create makes it and its head if they are missing. Removes files
 * left by interrupted calls; logs and keeps files that do not belong to a pool. The caller closes
 * it after an error, too. Errors: -ENOENT, -ENOTDIR, -EROFS, -EACCES, -EBUSY, -EPROTO (no pool, or
 * of another format), -EBADMSG (damaged).
 */
RLV_MUST_CHECK int pool_dir_open(struct pool_dir *dir, const char *path, bool create,
				 struct pool_superblock *super_out);

/*
 * Removes the head and the directory if pool_dir_open made them; a directory with other files
 * stays. Call before close.
 */
void pool_dir_undo(const struct pool_dir *dir);

void pool_dir_close(struct pool_dir *dir, bool forked);

/* Writes the superblock to both copies in the file `pool`, durably. */
RLV_MUST_CHECK int pool_dir_put(const struct pool_dir *dir, const struct pool_superblock *sb);

/* fsync of the directory: names that were made or removed before are so for good. */
RLV_MUST_CHECK int pool_dir_sync(const struct pool_dir *dir);

/* Removes a file, if it is there. */
RLV_MUST_CHECK int pool_dir_remove(const struct pool_dir *dir, const char *name);

/*
 * Calls fn for each name in the directory until it returns other than 0, which is then returned. page:
 * REGION_WHOLE for the file of a region. info is NULL if the name is not that of a region or its page.
 */
RLV_MUST_CHECK int pool_dir_each(const struct pool_dir *dir,
				 int (*fn)(void *ctx, const char *name,
					   const struct target_region *info, uint32_t page),
				 void *ctx);

#endif

/*
 * mempool_dir.c - pools in a directory, one file a region (wire/pool_layout.h).
 *
 * A region's blocks are all taken before it has its name, so that no store ever finds the disk full.
 * Who maps it gets a file description of its own, with a shared flock: so the kernel says of each region
 * whether somebody has it. One that is given back loses its name at once; its blocks count as used until
 * the last one who maps it is gone. A client can cut its own region's file short, and no other: that
 * region is broken then, and the others go on.
 *
 * A page that is renewed gets a file of its own beside that of its region, made in the same way and mapped
 * in the page's place; it takes the page's name, which the former file loses. When the region is given
 * back its pages lose their names after it: a page without a region is removed at the next opening.
 */
#include "transport/pool/mempool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/crc32c.h"
#include "base/mem/guard.h"
#include "base/log.h"

#include "transport/pool/map.h"
#include "transport/pool/pool_dir.h"
#include "transport/pool/pool_super.h"
#include "transport/pool/region_name.h"
#include "wire/attach_layout.h"
#include "wire/pool_layout.h"
#include "wire/region.h"

/* The name of a file that is being made. */
enum { REGION_TMP_BYTES = REGION_NAME_BYTES + 8 };

struct dirpool {
	struct mempool pool;
	struct pool_dir dir;
};

static struct dirpool *dir_of(struct mempool *pool)
{
	return (struct dirpool *)pool;
}

/* -------- mapping -------- */

static int map_region(struct dirpool *dp, struct mempool_region *region)
{
	int ret = durable_map(region->fd, region->info.size, &region->map);

	if (ret)
		return ret;
	ret = guard_add(region->map.base, region->info.size, &region->broken);
	if (ret) {
		durable_unmap(&region->map);
		return ret;
	}
	region->info.base = region->map.base;
	if (region->map.is_pmem)
		dp->pool.page_kind = "dax";
	return 0;
}

static void unmap_region(struct mempool_region *region)
{
	if (!region->map.base)
		return;
	guard_remove(region->map.base);
	durable_unmap(&region->map);
}

/* -------- making -------- */

/*
 * Makes a file of zeros under a temporary name, syncs it and renames it to name. All its blocks are
 * taken: no store into it ever finds the disk full. The caller owns *fd_out.
 */
static int make_file(const struct dirpool *dp, const char *name, uint64_t bytes, int *fd_out)
{
	char tmp[REGION_TMP_BYTES];
	int fd, ret;

	(void)snprintf(tmp, sizeof(tmp), "%s" REGION_NAME_TMP, name);
	fd = openat(dp->dir.fd, tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_set(-errno, "make %s/%s: %s", dp->dir.path, tmp, strerror(errno));
	ret = map_take_blocks(fd, 0, bytes);
	if (ret)
		ret = error_prefix(ret, "region of %llu bytes in %s: ", (unsigned long long)bytes,
				   dp->dir.path);
	else if (fsync(fd))
		ret = error_set(-errno, "fsync of %llu bytes in %s: %s", (unsigned long long)bytes,
				dp->dir.path, strerror(errno));
	else if (renameat(dp->dir.fd, tmp, dp->dir.fd, name))
		ret = error_set(-errno, "rename %s/%s: %s", dp->dir.path, tmp, strerror(errno));
	if (ret) {
		(void)unlinkat(dp->dir.fd, tmp, 0);
		close(fd);
		return ret;
	}
	*fd_out = fd;
	return 0;
}

/*
 * ops->clear: makes and maps the region's file. Called without the lock: only the caller knows the
 * region.
 */
static int dir_make(struct mempool *pool, struct mempool_region *region)
{
	struct dirpool *dp = dir_of(pool);
	char name[REGION_NAME_BYTES];
	int ret;

	region_name_format(&region->info, REGION_WHOLE, name);
	ret = make_file(dp, name, region->info.size, &region->fd);
	if (ret)
		return ret;
	ret = map_region(dp, region);
	if (ret == 0)
		ret = pool_dir_sync(&dp->dir);
	if (ret) {
		(void)unlinkat(dp->dir.fd, name, 0);
		unmap_region(region);
		close(region->fd);
	}
	return ret;
}

/* -------- pages -------- */

/*
 * ops->renew: makes a file for the page at off and maps it; fd must be -1. Even after an error,
 * only renewed pages of the region are shared alone from now on.
 */
static int dir_renew(struct mempool *pool, struct mempool_region *region, uint64_t off, int fd)
{
	char name[REGION_NAME_BYTES];
	struct dirpool *dp = dir_of(pool);
	int ret, synced;

	region->by_pages = true;
	if (fd >= 0) {
		close(fd);
		return error_set(-EPROTO, "region %u: its node makes its pages", region->info.id);
	}
	ret = mempool_refuse_broken(region);
	if (ret)
		return ret;
	region_name_format(&region->info, (uint32_t)(off / ATTACH_PAGE_BYTES), name);
	ret = make_file(dp, name, ATTACH_PAGE_BYTES, &fd);
	if (ret)
		return ret;
	/* The new file has the page's name, so it is the page even if the following steps fail. */
	synced = pool_dir_sync(&dp->dir);
	ret = mempool_put_page(region, off, fd);
	return ret ? ret : synced;
}

/* -------- giving back -------- */

/*
 * For pool_dir_each: removes the file of a page whose region is not in the pool or was dropped. One
 * that stays, or that a power failure brings back, is removed when the pool is opened.
 */
static int remove_stray(void *ctx, const char *name, const struct target_region *info,
			uint32_t page)
{
	const struct dirpool *dp = ctx;
	const struct mempool_region *region;

	if (!info || page == REGION_WHOLE)
		return 0;
	region = dp->pool.regions[info->id];
	if (region && !region->dropped && region->info.kind == info->kind &&
	    region->info.object == info->object && region->info.part == info->part &&
	    region->info.role == info->role)
		return 0;
	log_debug("remove %s/%s: its region is gone", dp->dir.path, name);
	return pool_dir_remove(&dp->dir, name);
}

static int dir_drop(struct mempool *pool, struct mempool_region *region)
{
	struct dirpool *dp = dir_of(pool);
	char name[REGION_NAME_BYTES];
	int ret;

	region_name_format(&region->info, REGION_WHOLE, name);
	ret = pool_dir_remove(&dp->dir, name);
	if (ret == 0)
		ret = pool_dir_sync(&dp->dir);
	if (ret || region->info.role != REGION_PAGES)
		return ret;
	if (pool_dir_each(&dp->dir, remove_stray, dp))
		log_warn("remove pages of %s/%s: %s", dp->dir.path, name, error_last());
	return 0;
}

static void dir_release(struct mempool *pool, struct mempool_region *region, bool forked)
{
	(void)pool;
	mempool_drop_pages(region);
	if (!forked)
		unmap_region(region);
	close(region->fd);
}

/* -------- files cut short by clients -------- */

static void set_broken(struct mempool_region *region)
{
	/* relaxed: nothing is published with it */
	atomic_store_explicit(&region->broken, true, memory_order_relaxed);
}

static void refuse_cut(struct mempool_region *region, const char *name, int fd, uint64_t bytes)
{
	struct stat st;

	if (mempool_is_broken(region) || fstat(fd, &st) || (uint64_t)st.st_size >= bytes)
		return;
	set_broken(region);
	log_error("%s was cut short: %lld bytes of %llu are left", name, (long long)st.st_size,
		  (unsigned long long)bytes);
}

/*
 * ops->look: the region is broken if its file, or that of a page of it, was cut short: its words
 * cannot be read any more.
 */
static void dir_look(struct mempool_region *region)
{
	const struct mempool_page *page = region->own_pages;
	char name[REGION_NAME_BYTES];

	region_name_format(&region->info, REGION_WHOLE, name);
	refuse_cut(region, name, region->fd, region->info.size);
	for (; page; page = page->next) {
		region_name_format(&region->info, (uint32_t)(page->off / ATTACH_PAGE_BYTES), name);
		refuse_cut(region, name, page->fd, ATTACH_PAGE_BYTES);
	}
}

static int dir_put_super(struct mempool *pool)
{
	return pool_dir_put(&dir_of(pool)->dir, &pool->super);
}

static void dir_close(struct mempool *pool, bool forked)
{
	pool_dir_close(&dir_of(pool)->dir, forked);
}

static const struct mempool_ops dir_ops = {
	.clear = dir_make,
	.look = dir_look,
	.drop = dir_drop,
	.release = dir_release,
	.put_super = dir_put_super,
	.renew = dir_renew,
	.close = dir_close,
};

/* -------- opening -------- */

/*
 * Opens a regular file of the pool, and takes access to it from other users (mode 0600). -EBADMSG:
 * not a regular file. *fd_out is the caller's to close, also after an error.
 */
static int open_file(const struct dirpool *dp, const char *name, struct stat *st_out, int *fd_out)
{
	*fd_out = openat(dp->dir.fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (*fd_out < 0 || fstat(*fd_out, st_out))
		return error_set(-errno, "open %s/%s: %s", dp->dir.path, name, strerror(errno));
	if (!S_ISREG(st_out->st_mode))
		return error_set(-EBADMSG, "%s is not a file", name);
	/*
	 * A copied pool may have a wider mode: a reader could then open its descriptor again for
	 * writing.
	 */
	if ((st_out->st_mode & (S_IRWXG | S_IRWXO)) && fchmod(*fd_out, 0600))
		return error_set(-errno, "%s/%s: mode %03o lets other users in, and chmod 0600: %s",
				 dp->dir.path, name, (unsigned int)(st_out->st_mode & 0777),
				 strerror(errno));
	return 0;
}

static int load_region(void *ctx, const char *name, const struct target_region *info, uint32_t page)
{
	struct dirpool *dp = ctx;
	struct mempool *pool = &dp->pool;
	struct mempool_region *region;
	struct region_superblock sb;
	struct stat st = { 0 };
	uint64_t size;
	int ret;

	if (!info || page != REGION_WHOLE)
		return 0;
	if (pool->regions[info->id])
		return error_set(-EBADMSG, "region %u: two files hold it, %s is one of them",
				 info->id, name);
	region = mempool_region_new(info);
	if (!region)
		return -ENOMEM;
	ret = open_file(dp, name, &st, &region->fd);
	if (ret)
		goto err_close;
	region->info.size = (uint64_t)st.st_size;
	region->info.sole = map_is_sole(region->fd);
	size = region->info.size;
	/* The size is in the region's superblock; before the region is formatted it is nowhere. */
	if (size && size <= RPTR_MAX_OFFSET && is_aligned(size, POOL_EXTENT_BYTES) &&
	    pread(region->fd, &sb, sizeof(sb), 0) == sizeof(sb) &&
	    (sb.magic != REGION_MAGIC || sb.size == size ||
	     sb.crc != crc32c(0, &sb, offsetof(struct region_superblock, crc)))) {
		ret = map_region(dp, region);
		if (ret)
			goto err_close;
	} else {
		set_broken(region);
		log_error("%s/%s was cut short: %lld bytes are left", dp->dir.path, name,
			  (long long)st.st_size);
	}
	pool->regions[info->id] = region;
	pool->n_regions++;
	pool->last_id = info->id > pool->last_id ? info->id : pool->last_id;
	pool->used += region->info.size;
	pool->sole_opener &= region->info.sole;
	return 0;
err_close:
	map_close(region->fd);
	mem_free(region);
	return ret;
}

/*
 * For pool_dir_each: maps the file of a page in its region; one of a wrong size breaks the region.
 * Its content is kept: a live client may have the page mapped and store into it.
 */
static int load_page(void *ctx, const char *name, const struct target_region *info, uint32_t page)
{
	struct dirpool *dp = ctx;
	struct mempool_region *region;
	uint64_t off = (uint64_t)page * ATTACH_PAGE_BYTES;
	struct stat st = { 0 };
	int fd = -1, ret;

	if (!info || page == REGION_WHOLE)
		return 0;
	region = dp->pool.regions[info->id];
	if (mempool_is_broken(region))
		return 0;
	ret = open_file(dp, name, &st, &fd);
	if (ret)
		goto err_close;
	region->info.sole &= map_is_sole(fd);
	dp->pool.sole_opener &= region->info.sole;
	/* A page of another size, or behind the end, breaks its region. */
	if (st.st_size != ATTACH_PAGE_BYTES || off >= region->info.size) {
		set_broken(region);
		log_error("%s/%s is no page of its region: it has %lld bytes", dp->dir.path, name,
			  (long long)st.st_size);
		goto err_close;
	}
	/* The region's own file is stale there: no page of it is shared on its own. */
	region->by_pages = true;
	return mempool_put_page(region, off, fd);
err_close:
	map_close(fd);
	return ret;
}

int mempool_open_dir(const struct target_opts *opts, struct mempool **pool_out)
{
	struct dirpool *dp;
	struct mempool *pool;
	uint64_t want, held, left;
	int ret = mempool_new(sizeof(*dp), &dir_ops, opts, pool_out);

	if (ret)
		return ret;
	pool = *pool_out;
	dp = dir_of(pool);
	pool->makes_pages = true;
	pool->page_kind = "file";
	ret = pool_dir_open(&dp->dir, opts->path, opts->create, &pool->super);
	if (ret == 0)
		ret = pool_dir_each(&dp->dir, load_region, dp);
	if (ret == 0)
		ret = pool_dir_each(&dp->dir, remove_stray, dp);
	if (ret == 0)
		ret = pool_dir_each(&dp->dir, load_page, dp);
	if (ret == 0 && opts->exclusive && !pool->sole_opener)
		ret = error_set(-EBUSY, "in use by another process");
	if (ret)
		goto err_undo;
	/* Room for its growth must be there now. Room that was granted before is only reported missing. */
	want = opts->pool_bytes ? opts->pool_bytes : pool->super.bytes;
	held = max_u64(pool->super.bytes, pool->used);
	left = map_left(dp->dir.fd);
	pool->bytes = max_u64(want, pool->used);
	if (want == 0)
		ret = error_set(-EINVAL, "pool %s is new: give its size", dp->dir.path);
	else if (want > held && want - held > left)
		ret = error_set(-ENOSPC, "pool %s: needs %llu bytes, %llu are left", dp->dir.path,
				(unsigned long long)(want - held), (unsigned long long)left);
	else if (want > pool->used && want - pool->used > left)
		log_warn("pool %s may take %llu bytes more, but the disk has %llu", dp->dir.path,
			 (unsigned long long)(want - pool->used), (unsigned long long)left);
	if (ret == 0 && want != pool->super.bytes) {
		pool_super_set_bytes(&pool->super, want);
		ret = dir_put_super(pool);
	}
	if (ret == 0)
		return 0;
err_undo:
	pool_dir_undo(&dp->dir);
	return ret;
}

/*
 * mempool_dir.c - pools in a directory, one file a region (wire/pool_layout.h).
 *
 * A region's blocks are all taken before it has its name, so that no store ever finds the disk full.
 * Who maps it gets a file description of its own, with a shared flock: so the kernel says of each region
 * whether somebody has it. One that is given back loses its name at once; its blocks count as used until
 * the last one who maps it is gone. A client can cut its own region's file short, and no other: that
 * region is broken then, and the others go on.
 */
#include "transport/pool/mempool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/crc32c.h"
#include "base/mem/guard.h"
#include "base/log.h"

#include "transport/pool/map.h"
#include "transport/pool/pool_dir.h"
#include "transport/pool/pool_super.h"
#include "transport/pool/region_name.h"
#include "wire/pool_layout.h"
#include "wire/region.h"

/* A region without a name that somebody still maps. */
struct held {
	struct held *next;
	int fd;
	uint64_t bytes;
};

struct dirpool {
	struct mempool pool;
	struct pool_dir dir;
	struct held *held;
};

static struct dirpool *of(struct mempool *pool)
{
	return (struct dirpool *)pool;
}

static uint64_t left_on(int fd)
{
	struct statvfs fs;

	return fstatvfs(fd, &fs) ? UINT64_MAX : (uint64_t)fs.f_bavail * fs.f_frsize;
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

/* Nobody but us has it open with a lock. */
static bool is_sole(int fd)
{
	if (flock(fd, LOCK_EX | LOCK_NB))
		return false;
	(void)flock(fd, LOCK_UN);
	return true;
}

/* -------- making -------- */

static int no_room(const struct dirpool *dp, uint64_t bytes, int code)
{
	return error_set(-ENOSPC, "region of %llu bytes in %s: %s, %llu bytes are left",
			 (unsigned long long)bytes, dp->dir.path, strerror(code),
			 (unsigned long long)left_on(dp->dir.fd));
}

static int take_blocks(const struct dirpool *dp, const struct mempool_region *region)
{
	uint64_t bytes = region->info.size;
	struct rlimit limit;
	int code;

	/* fallocate would not only say so, but send SIGXFSZ */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur)
		return error_set(-ENOSPC, "region of %llu bytes: file sizes are limited to %llu",
				 (unsigned long long)bytes, (unsigned long long)limit.rlim_cur);
	do
		code = posix_fallocate(region->fd, 0, (off_t)bytes);
	while (code == EINTR);
	if (code == ENOSPC || code == EDQUOT || code == EFBIG)
		return no_room(dp, bytes, code);
	if (code)
		return error_set(-code, "fallocate of %llu bytes: %s", (unsigned long long)bytes,
				 strerror(code));
	if (fsync(region->fd))
		return error_set(-errno, "fsync of region %u: %s", region->info.id,
				 strerror(errno));
	return 0;
}

static int give_name(const struct dirpool *dp, const char *tmp, const char *name)
{
	int ret;

	if (renameat(dp->dir.fd, tmp, dp->dir.fd, name))
		return error_set(-errno, "rename %s/%s: %s", dp->dir.path, tmp, strerror(errno));
	ret = pool_dir_sync(&dp->dir);
	if (ret)
		(void)unlinkat(dp->dir.fd, name, 0);
	return ret;
}

/* Without the lock: only its maker knows of it. */
static int dir_make(struct mempool *pool, struct mempool_region *region)
{
	char name[REGION_NAME_BYTES], tmp[REGION_NAME_BYTES + 8];
	struct dirpool *dp = of(pool);
	int ret;

	region_name_format(&region->info, name);
	(void)snprintf(tmp, sizeof(tmp), "%s" REGION_NAME_TMP, name);
	region->fd = openat(dp->dir.fd, tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (region->fd < 0)
		return error_set(-errno, "make %s/%s: %s", dp->dir.path, tmp, strerror(errno));
	ret = take_blocks(dp, region);
	if (ret == 0)
		ret = map_region(dp, region);
	if (ret == 0)
		ret = give_name(dp, tmp, name);
	if (ret) {
		(void)unlinkat(dp->dir.fd, tmp, 0);
		unmap_region(region);
		close(region->fd);
	}
	return ret;
}

static int dir_alloc(struct mempool *pool, struct mempool_region *region)
{
	pool->used += region->info.size;
	return 0;
}

/* -------- giving back -------- */

static int dir_drop(struct mempool *pool, struct mempool_region *region)
{
	struct dirpool *dp = of(pool);
	char name[REGION_NAME_BYTES];

	region_name_format(&region->info, name);
	if (unlinkat(dp->dir.fd, name, 0) && errno != ENOENT)
		return error_set(-errno, "remove %s/%s: %s", dp->dir.path, name, strerror(errno));
	return pool_dir_sync(&dp->dir);
}

/* false: no memory to remember it, or nobody has it. */
static bool keep_held(struct dirpool *dp, const struct mempool_region *region)
{
	struct held *held = is_sole(region->fd) ? NULL : mem_zalloc(sizeof(*held));

	if (!held)
		return false;
	*held = (struct held){ .next = dp->held, .fd = region->fd, .bytes = region->info.size };
	dp->held = held;
	return true;
}

static void dir_release(struct mempool *pool, struct mempool_region *region, bool forked)
{
	if (!forked)
		unmap_region(region);
	if (!forked && region->dropped) {
		if (keep_held(of(pool), region))
			return;
		pool->used -= region->info.size;
	}
	close(region->fd);
}

static void dir_reclaim(struct mempool *pool)
{
	struct held **link = &of(pool)->held;

	while (*link) {
		struct held *held = *link;

		if (!is_sole(held->fd)) {
			link = &held->next;
			continue;
		}
		*link = held->next;
		pool->used -= held->bytes;
		close(held->fd);
		mem_free(held);
	}
}

/* -------- what others did to it -------- */

static void set_broken(struct mempool_region *region)
{
	/* relaxed: nothing is published with it */
	atomic_store_explicit(&region->broken, true, memory_order_relaxed);
}

static void look_at(struct mempool_region *region)
{
	char name[REGION_NAME_BYTES];
	struct stat st;

	if (mempool_is_broken(region) || fstat(region->fd, &st) ||
	    (uint64_t)st.st_size >= region->info.size)
		return;
	set_broken(region);
	region_name_format(&region->info, name);
	log_error("%s was cut short: %lld bytes of %llu are left", name, (long long)st.st_size,
		  (unsigned long long)region->info.size);
}

static void dir_look(struct mempool *pool)
{
	pool->n_broken = 0;
	for (uint32_t id = 1; id <= RPTR_MAX_REGION; id++) {
		struct mempool_region *region = pool->regions[id];

		if (!region || region->dropped)
			continue;
		look_at(region);
		pool->n_broken += mempool_is_broken(region);
	}
	dir_reclaim(pool);
}

static int dir_persist(struct mempool *pool, struct mempool_region *region, uint64_t off,
		       uint64_t len)
{
	int ret = 0;

	(void)pool;
	if (!mempool_is_broken(region))
		ret = durable_persist(&region->map, off, len);
	return mempool_is_broken(region) ? mempool_refuse_broken(region) : ret;
}

static int dir_share(struct mempool *pool, struct mempool_region *region, bool writable,
		     int *fd_out)
{
	int fd = -1, ret;

	(void)pool;
	look_at(region);
	if (mempool_is_broken(region))
		return mempool_refuse_broken(region);
	ret = map_reopen(region->fd, writable, &fd);
	if (ret)
		return ret;
	if (flock(fd, LOCK_SH | LOCK_NB)) {
		ret = error_set(-errno, "region %u: flock: %s", region->info.id, strerror(errno));
		close(fd);
		return ret;
	}
	*fd_out = fd;
	return 0;
}

static bool dir_alone(struct mempool *pool, struct mempool_region *region)
{
	(void)pool;
	return is_sole(region->fd);
}

static int dir_own(struct mempool *pool, const uint8_t store_uuid[16], const char *store_name)
{
	struct dirpool *dp = of(pool);
	struct pool_superblock sb = dp->dir.super;
	int ret;

	pool_super_own(&sb, store_uuid, store_name);
	ret = pool_dir_put(&dp->dir, &sb);
	pool_super_identity(&dp->dir.super, &pool->identity);
	return ret;
}

static void dir_close(struct mempool *pool, bool forked)
{
	struct dirpool *dp = of(pool);

	while (dp->held) {
		struct held *held = dp->held;

		dp->held = held->next;
		close(held->fd);
		mem_free(held);
	}
	pool_dir_close(&dp->dir, forked);
}

static const struct mempool_ops dir_ops = {
	.clear = dir_make,
	.alloc = dir_alloc,
	.reclaim = dir_reclaim,
	.look = dir_look,
	.drop = dir_drop,
	.release = dir_release,
	.own = dir_own,
	.persist = dir_persist,
	.alone = dir_alone,
	.share = dir_share,
	.close = dir_close,
};

/* -------- opening -------- */

/* Its own superblock says how large it was made; before it is formatted nothing does. */
static bool is_whole(int fd, uint64_t size)
{
	struct region_superblock sb = { 0 };

	if (size == 0 || size > RPTR_MAX_OFFSET || !is_aligned(size, POOL_EXTENT_BYTES))
		return false;
	if (pread(fd, &sb, sizeof(sb), 0) != sizeof(sb))
		return false;
	return sb.magic != REGION_MAGIC ||
	       sb.crc != crc32c(0, &sb, offsetof(struct region_superblock, crc)) || sb.size == size;
}

/* A copy may have the mode of its copier: then a reader could open what it is given for writing. */
static int close_to_others(const struct dirpool *dp, const char *name, int fd,
			   const struct stat *st)
{
	if ((st->st_mode & (S_IRWXG | S_IRWXO)) == 0 || fchmod(fd, 0600) == 0)
		return 0;
	return error_set(-errno, "%s/%s: mode %03o lets other users in, and chmod 0600: %s",
			 dp->dir.path, name, (unsigned int)(st->st_mode & 0777), strerror(errno));
}

static int open_region(struct dirpool *dp, const char *name, struct mempool_region *region)
{
	struct stat st;
	int ret;

	region->fd = openat(dp->dir.fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (region->fd < 0 || fstat(region->fd, &st))
		return error_set(-errno, "open %s/%s: %s", dp->dir.path, name, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return error_set(-EBADMSG, "%s is not a file", name);
	ret = close_to_others(dp, name, region->fd, &st);
	if (ret)
		return ret;
	region->info.size = (uint64_t)st.st_size;
	region->info.sole = is_sole(region->fd);
	if (is_whole(region->fd, region->info.size))
		return map_region(dp, region);
	set_broken(region);
	log_error("%s/%s was cut short: %lld bytes are left", dp->dir.path, name,
		  (long long)st.st_size);
	return 0;
}

static int load_region(void *ctx, const char *name, const struct target_region *info)
{
	struct dirpool *dp = ctx;
	struct mempool *pool = &dp->pool;
	struct mempool_region *region;
	int ret;

	if (pool->regions[info->id])
		return error_set(-EBADMSG, "region %u is there twice: %s is one of them", info->id,
				 name);
	region = mem_zalloc(sizeof(*region));
	if (!region)
		return error_set(-ENOMEM, "no memory for a region's entry");
	region->info = *info;
	region->refs = 1;
	ret = open_region(dp, name, region);
	if (ret) {
		map_close(region->fd);
		mem_free(region);
		return ret;
	}
	pool->regions[info->id] = region;
	pool->n_regions++;
	pool->used += region->info.size;
	pool->last_id = info->id > pool->last_id ? info->id : pool->last_id;
	pool->sole_opener &= region->info.sole;
	return 0;
}

/* Room for its growth must be there now. Room that was granted before is only reported missing. */
static int check_disk(const struct dirpool *dp, uint64_t want)
{
	uint64_t recorded = dp->dir.super.bytes, used = dp->pool.used;
	uint64_t left = left_on(dp->dir.fd), held = max_u64(recorded, used);

	if (want > held && want - held > left)
		return error_set(-ENOSPC, "pool %s: needs %llu bytes, %llu are left", dp->dir.path,
				 (unsigned long long)(want - held), (unsigned long long)left);
	if (want > used && want - used > left)
		log_warn("pool %s may take %llu bytes more, but the disk has %llu", dp->dir.path,
			 (unsigned long long)(want - used), (unsigned long long)left);
	return 0;
}

static int set_bytes(struct dirpool *dp, const struct target_opts *opts)
{
	struct pool_superblock sb = dp->dir.super;
	uint64_t want = sb.bytes;
	int ret;

	if (opts->pool_bytes &&
	    (!checked_align_up_u64(opts->pool_bytes, POOL_EXTENT_BYTES, &want) || want > INT64_MAX))
		return error_set(-EINVAL, "pool_bytes %llu: too many",
				 (unsigned long long)opts->pool_bytes);
	if (want == 0)
		return error_set(-EINVAL, "pool %s: is new, so it needs a size", dp->dir.path);
	ret = check_disk(dp, want);
	if (ret == 0 && want != sb.bytes) {
		pool_super_set_bytes(&sb, want);
		ret = pool_dir_put(&dp->dir, &sb);
	}
	dp->pool.bytes = max_u64(want, dp->pool.used);
	return ret;
}

static int prepare(struct dirpool *dp, const struct target_opts *opts)
{
	int ret = pool_dir_open(&dp->dir, opts->path, opts->create);

	if (ret == 0)
		ret = pool_dir_each(&dp->dir, load_region, dp);
	if (ret == 0 && opts->exclusive && !dp->pool.sole_opener)
		ret = error_set(-EBUSY, "in use by another process");
	if (ret == 0)
		ret = set_bytes(dp, opts);
	if (ret)
		pool_dir_undo(&dp->dir);
	if (ret == -EPROTO || ret == -EBADMSG || ret == -EBUSY)
		return error_prefix(ret, "pool %s: ", opts->path);
	return ret;
}

int mempool_open_dir(const struct target_opts *opts, struct mempool **pool_out)
{
	struct dirpool *dp = mem_zalloc(sizeof(*dp));
	struct mempool *pool;
	int ret;

	if (!dp)
		return error_set(-ENOMEM, "no memory for a pool's table");
	pool = &dp->pool;
	pool->ops = &dir_ops;
	pool->persistent = true;
	pool->shareable = !opts->exclusive;
	pool->huge = opts->page_kind != PAGE_SMALL;
	pool->sole_opener = true;
	pool->page_kind = "file";
	ret = prepare(dp, opts);
	if (ret) {
		mempool_close(&pool, false);
		return ret;
	}
	pool_super_identity(&dp->dir.super, &pool->identity);
	*pool_out = pool;
	return 0;
}

/*
 * mempool_memory.c - pools in memory: a memfd for each region, or anonymous pages for one process.
 *
 * A memfd is used for one region only and sealed against shrinking, so that no mapping of it can
 * ever fault. Its memory is given back by punching a hole, which leaves the superblock's page. Its
 * mode is 0600, not the 0777 of memfd_create: or a reader of another user would open
 * /proc/self/fd/N again for writing.
 */
#include "transport/pool/mempool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"

#include "transport/pool/map.h"
#include "wire/attach_layout.h"
#include "wire/pool_layout.h"
#include "wire/region.h"

#define SUPERBLOCK_KEPT 4096 /* region after drop */

static const char *const kind_names[] = {
	[PAGE_SMALL] = "4k",
	[PAGE_THP] = "thp",
	[PAGE_HUGETLB] = "hugetlb",
};

/*
 * Sets the page kind that the pool reports to that of its newest region; "4k" stays while the pool
 * has regions.
 */
static void note_kind(struct mempool *pool, enum page_kind kind)
{
	if (pool->n_regions == 0 || strcmp(pool->page_kind, kind_names[PAGE_SMALL]) != 0)
		pool->page_kind = kind_names[kind];
}

/* -------- memfd regions -------- */

static int alloc_memfd(struct mempool *pool, struct mempool_region *region, bool hugetlb)
{
	const unsigned huge = MFD_HUGETLB | (unsigned)(21 << MAP_HUGE_SHIFT);
	int fd = -1, ret;

	ret = map_memfd(region->info.id, region->info.size, hugetlb ? huge : 0, &fd);
	if (ret)
		return ret;
	ret = map_shared(fd, 0, region->info.size, MAP_WRITABLE | (pool->huge ? MAP_HUGE : 0),
			 &region->info.base);
	if (ret) {
		close(fd);
		return ret;
	}
	region->fd = fd;
	region->hugetlb = hugetlb;
	return 0;
}

/*
 * Where a region of private memory begins in its first huge page. Caches choose a set by the address
 * within 128 KiB: at one offset the words that many shards have in the same places would share few sets.
 * The page that is mapped more is not touched.
 */
static uint64_t private_offset(const struct target_region *info)
{
	const uint64_t page = 4096, span = 128 * 1024;

	return info->part * page % span;
}

static int alloc_private(struct mempool *pool, struct mempool_region *region)
{
	uint64_t off = pool->wanted == PAGE_SMALL ? 0 : private_offset(&region->info);
	int ret = pages_alloc(region->info.size + off, pool->wanted, &region->pages);

	if (ret)
		return ret;
	ret = map_protect(region->pages.ptr, region->pages.bytes, false);
	if (ret) {
		pages_free(&region->pages);
		return ret;
	}
	region->info.base = (uint8_t *)region->pages.ptr + off;
	note_kind(pool, region->pages.kind);
	return 0;
}

static int memory_alloc(struct mempool *pool, struct mempool_region *region)
{
	enum page_kind kind = PAGE_HUGETLB;
	int ret = -ENOMEM;

	if (pool->private_memory)
		return alloc_private(pool, region);
	/*
	 * mmap of huge pages reserves them: it fails where too few are free. Pages of clients get
	 * memory of their own, each of 4 KiB.
	 */
	if (pool->wanted == PAGE_HUGETLB && region->info.role != REGION_PAGES)
		ret = alloc_memfd(pool, region, true);
	if (ret) {
		kind = pool->huge && map_thp_for_memfd() ? PAGE_THP : PAGE_SMALL;
		ret = alloc_memfd(pool, region, false);
	}
	if (ret)
		return ret;
	if (region->info.role != REGION_PAGES)
		note_kind(pool, kind);
	return 0;
}

/*
 * ops->discard: frees the memfd's memory but for the superblock's page. What is not freed here is
 * freed with the last mapping. Reserved huge pages always wait for that: a client that touched a
 * hole would be killed if no huge page were left.
 */
static void memory_discard(struct mempool_region *region)
{
	off_t rest = (off_t)region->info.size - SUPERBLOCK_KEPT;

	if (region->fd >= 0 && !region->hugetlb && rest > 0 &&
	    fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, SUPERBLOCK_KEPT,
		      rest))
		log_warn("region %u: fallocate punch hole: %s", region->info.id, strerror(errno));
}

/*
 * ops->renew: the page at off gets the memory of fd, a sealed memfd of one page, else -EPROTO. The
 * former memory is dropped also on an error; existing mappings keep it.
 */
static int memory_renew(struct mempool *pool, struct mempool_region *region, uint64_t off, int fd)
{
	int ret = map_check_memfd(fd, ATTACH_PAGE_BYTES);

	(void)pool;
	region->by_pages = true;
	if (ret == 0)
		return mempool_put_page(region, off, fd);
	mempool_drop_page(region, off);
	map_close(fd);
	return ret;
}

static void memory_release(struct mempool *pool, struct mempool_region *region, bool forked)
{
	(void)pool;
	mempool_drop_pages(region);
	if (!forked && region->pages.ptr)
		pages_free(&region->pages);
	else if (!forked)
		map_release(region->info.base, region->info.size);
	map_close(region->fd);
}

/* -------- pool -------- */

static const struct mempool_ops memory_ops = {
	.alloc = memory_alloc,
	.discard = memory_discard,
	.release = memory_release,
	.renew = memory_renew,
};

int mempool_open_memory(const struct target_opts *opts, struct mempool **pool_out)
{
	struct rlimit space = { .rlim_cur = RLIM_INFINITY }, file = { .rlim_cur = RLIM_INFINITY };
	uint64_t available = pages_available(), bytes = opts->pool_bytes;
	struct mempool *pool;

	(void)getrlimit(RLIMIT_AS, &space);
	if (!opts->private_memory)
		(void)getrlimit(RLIMIT_FSIZE, &file);
	if (opts->page_kind > PAGE_HUGETLB)
		return error_set(-EINVAL, "page_kind %u: unknown", opts->page_kind);
	/* Fails at open with the numbers, instead of by the OOM killer when the pool fills up. */
	if (bytes > available)
		return error_set(-ENOMEM, "pool of %llu bytes: only %llu bytes of memory are free",
				 (unsigned long long)bytes, (unsigned long long)available);
	if (bytes > space.rlim_cur)
		return error_set(-ENOMEM,
				 "pool of %llu bytes: the address space is limited to %llu",
				 (unsigned long long)bytes, (unsigned long long)space.rlim_cur);
	if (bytes > file.rlim_cur)
		return error_set(-ENOMEM, "pool of %llu bytes: file sizes are limited to %llu",
				 (unsigned long long)bytes, (unsigned long long)file.rlim_cur);
	/* A pool without a size may take the memory that is free now; 64 TiB where nobody says. */
	if (bytes == 0)
		bytes = align_down(min_u64(min_u64(available, space.rlim_cur), (uint64_t)1 << 46),
				   POOL_EXTENT_BYTES);
	if (mempool_new(sizeof(*pool), &memory_ops, opts, &pool))
		return -ENOMEM;
	pool->bytes = bytes;
	pool->page_kind = kind_names[PAGE_SMALL];
	*pool_out = pool;
	return 0;
}

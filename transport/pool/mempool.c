/* mempool.c - numbers, sizes and references of regions. Their memory is behind mempool_ops. */
#include "transport/pool/mempool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/bits.h"

#include "transport/pool/map.h"
#include "wire/attach_layout.h"
#include "wire/pool_layout.h"

int mempool_new(size_t bytes, const struct mempool_ops *ops, const struct target_opts *opts,
		struct mempool **pool_out)
{
	struct mempool *pool = mem_zalloc(bytes);

	if (!pool)
		return error_set(-ENOMEM, "cannot allocate memory for a pool's table");
	pool->ops = ops;
	pool->persistent = opts->path != NULL;
	pool->shareable = !opts->exclusive && !opts->private_memory;
	pool->private_memory = opts->private_memory;
	pool->wanted = (enum page_kind)opts->page_kind;
	pool->huge = pool->wanted != PAGE_SMALL;
	pool->sole_opener = true;
	*pool_out = pool;
	return 0;
}

int mempool_open(const struct target_opts *opts, struct mempool **pool_out)
{
	struct target_opts whole = *opts;
	struct mempool *pool = NULL;
	int ret;

	if (!checked_align_up_u64(opts->pool_bytes, POOL_EXTENT_BYTES, &whole.pool_bytes) ||
	    whole.pool_bytes > INT64_MAX - POOL_EXTENT_BYTES)
		return error_set(-EINVAL, "pool_bytes %llu: too large",
				 (unsigned long long)opts->pool_bytes);
	if (!opts->path)
		return mempool_open_memory(&whole, pool_out);
	ret = opts->dir ? mempool_open_dir(&whole, &pool) : mempool_open_file(&whole, &pool);
	if (ret == 0) {
		*pool_out = pool;
		return 0;
	}
	if (ret == -EPROTO || ret == -EBADMSG || ret == -EBUSY)
		ret = error_prefix(ret, "pool %s: ", opts->path);
	if (pool)
		mempool_close(&pool, false);
	return ret;
}

struct mempool_region *mempool_region_new(const struct target_region *info)
{
	struct mempool_region *region = mem_zalloc(sizeof(*region));

	if (!region) {
		(void)error_set(-ENOMEM, "cannot allocate memory for a region's entry");
		return NULL;
	}
	region->info = *info;
	region->fd = -1;
	region->refs = 1;
	return region;
}

void mempool_close(struct mempool **pool, bool forked)
{
	struct mempool *p = *pool;

	*pool = NULL;
	for (uint32_t id = 1; id <= RPTR_MAX_REGION; id++) {
		if (!p->regions[id])
			continue;
		p->ops->release(p, p->regions[id], forked);
		mem_free(p->regions[id]);
	}
	if (p->ops->close)
		p->ops->close(p, forked);
	mem_free(p);
}

struct mempool_region *mempool_find(struct mempool *pool, uint32_t id)
{
	if (id == 0 || id > RPTR_MAX_REGION || !pool->regions[id] || pool->regions[id]->dropped) {
		(void)error_set(-ENOENT, "region %u: no such region in the pool", id);
		return NULL;
	}
	return pool->regions[id];
}

int mempool_begin(struct mempool *pool, const struct target_region *spec,
		  struct mempool_region **region_out)
{
	struct mempool_region *region;
	uint32_t id = pool->last_id, n;
	uint64_t size;
	int ret;

	if (spec->size == 0 || spec->size > RPTR_MAX_OFFSET)
		return error_set(-EINVAL, "region size %llu: must be 1 to %llu bytes",
				 (unsigned long long)spec->size,
				 (unsigned long long)RPTR_MAX_OFFSET);
	size = align_up(spec->size, POOL_EXTENT_BYTES);
	if (size > pool->bytes - pool->used)
		mempool_reclaim(pool);
	if (size > pool->bytes - pool->used)
		return error_set(
			-ENOSPC,
			"pool is full: a region of %llu bytes does not fit in the %llu left "
			"of %llu",
			(unsigned long long)size, (unsigned long long)(pool->bytes - pool->used),
			(unsigned long long)pool->bytes);
	/* In rotation, so that an id is reused as late as possible. */
	for (n = 0; n < RPTR_MAX_REGION; n++) {
		id = id % RPTR_MAX_REGION + 1;
		if (!pool->regions[id])
			break;
	}
	if (n == RPTR_MAX_REGION)
		return error_set(-ENOSPC, "pool has %u regions: no number is free",
				 pool->n_regions);
	region = mempool_region_new(spec);
	if (!region)
		return -ENOMEM;
	region->info.id = id;
	region->info.size = size;
	region->info.sole = true;
	ret = pool->ops->reserve ? pool->ops->reserve(pool, region) : 0;
	if (ret)
		mem_free(region);
	else
		*region_out = region;
	return ret;
}

int mempool_end(struct mempool *pool, struct mempool_region *region, int ret,
		struct target_region *spec)
{
	if (ret == 0 && pool->ops->alloc)
		ret = pool->ops->alloc(pool, region);
	if (ret) {
		mem_free(region);
		return ret;
	}
	pool->regions[region->info.id] = region;
	pool->last_id = region->info.id;
	pool->n_regions++;
	pool->used += region->info.size;
	*spec = region->info;
	return 0;
}

int mempool_drop(struct mempool *pool, uint32_t id, struct mempool_region **region_out)
{
	struct mempool_region *region = mempool_find(pool, id);
	int ret;

	if (!region)
		return -ENOENT;
	region->dropped = true;
	ret = pool->ops->drop ? pool->ops->drop(pool, region) : 0;
	if (ret) {
		region->dropped = false;
		return ret;
	}
	pool->n_regions--;
	*region_out = region;
	return 0;
}

int mempool_refuse_broken(const struct mempool_region *region)
{
	if (!mempool_is_broken(region))
		return 0;
	return error_set(-EBADMSG, "region %u: its file was cut short, or cannot be read",
			 region->info.id);
}

void mempool_look(struct mempool *pool)
{
	pool->n_broken = 0;
	for (uint32_t id = 1; id <= RPTR_MAX_REGION; id++) {
		struct mempool_region *region = pool->regions[id];

		if (!region || region->dropped)
			continue;
		if (pool->ops->look)
			pool->ops->look(region);
		pool->n_broken += mempool_is_broken(region);
	}
	mempool_reclaim(pool);
}

int mempool_persist(const struct mempool *pool, const struct mempool_region *region, uint64_t off,
		    uint64_t len)
{
	const struct mempool_page *page = NULL;
	int ret = 0;

	if (!pool->persistent)
		return error_set(-ENOTSUP, "region %u: its pool is volatile memory",
				 region->info.id);
	if (!mempool_is_broken(region))
		ret = durable_persist(&region->map, off, len);
	/* msync reaches all files of a range; flushing caches only the region's own. */
	if (ret == 0 && !mempool_is_broken(region) && region->map.is_pmem)
		page = mempool_page_from(region, align_down(off, ATTACH_PAGE_BYTES));
	for (; ret == 0 && page && page->off < off + len; page = page->next)
		ret = map_persist(region->map.base, page->off, ATTACH_PAGE_BYTES);
	return mempool_is_broken(region) ? mempool_refuse_broken(region) : ret;
}

/*
 * Looks at the files of the region and of its own pages: a client with a grant of a page has only
 * that page's file open.
 */
bool mempool_alone(const struct mempool *pool, const struct mempool_region *region)
{
	const struct mempool_page *page = region->own_pages;
	bool alone = pool->persistent && map_is_sole(region->fd);

	for (; page && alone; page = page->next)
		alone = map_is_sole(page->fd);
	return alone;
}

int mempool_share(struct mempool *pool, struct mempool_region *region, int fd, bool writable,
		  int *fd_out)
{
	char path[64];
	int copy, ret;

	if (fd == region->fd && pool->ops->look)
		pool->ops->look(region);
	ret = mempool_refuse_broken(region);
	if (ret)
		return ret;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	/* A memfd may be of the user who renewed the page: we cannot open that again for writing. */
	copy = writable && !pool->persistent
		       ? fcntl(fd, F_DUPFD_CLOEXEC, 0)
		       : open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (copy < 0 || (pool->persistent && flock(copy, LOCK_SH | LOCK_NB))) {
		ret = error_set(-errno, "region %u: open its descriptor again: %s", region->info.id,
				strerror(errno));
		map_close(copy);
		return ret;
	}
	*fd_out = copy;
	return 0;
}

const struct mempool_page *mempool_page_from(const struct mempool_region *region, uint64_t off)
{
	const struct mempool_page *page = region->own_pages;

	while (page && page->off < off)
		page = page->next;
	return page;
}

/*
 * Returns the link of the list region->own_pages where the page at off is, or belongs: *link is the
 * first page at or after off.
 */
static struct mempool_page **find_place(struct mempool_region *region, uint64_t off)
{
	struct mempool_page **link = &region->own_pages;

	while (*link && (*link)->off < off)
		link = &(*link)->next;
	return link;
}

int mempool_put_page(struct mempool_region *region, uint64_t off, int fd)
{
	struct mempool_page *page = mem_zalloc(sizeof(*page)), **link;
	int ret = page ? map_over(fd, ATTACH_PAGE_BYTES, true, region->info.base + off)
		       : error_set(-ENOMEM, "cannot allocate memory for a page's entry");

	mempool_drop_page(region, off);
	if (ret) {
		mem_free(page);
		close(fd);
		return ret;
	}
	link = find_place(region, off);
	page->off = off;
	page->fd = fd;
	page->next = *link;
	*link = page;
	return 0;
}

void mempool_drop_page(struct mempool_region *region, uint64_t off)
{
	struct mempool_page **link = find_place(region, off), *page = *link;

	if (!page || page->off != off)
		return;
	*link = page->next;
	close(page->fd);
	mem_free(page);
}

void mempool_drop_pages(struct mempool_region *region)
{
	while (region->own_pages)
		mempool_drop_page(region, region->own_pages->off);
}

/* Frees a region without references, unless the pool is in files and another process maps it. */
static void mempool_settle(struct mempool *pool, struct mempool_region *region)
{
	if (region->refs || (pool->persistent && !mempool_alone(pool, region)))
		return;
	pool->ops->release(pool, region, false);
	pool->regions[region->info.id] = NULL;
	pool->used -= region->info.size;
	mem_free(region);
}

void mempool_unref(struct mempool *pool, struct mempool_region *region)
{
	region->refs--;
	mempool_settle(pool, region);
}

void mempool_reclaim(struct mempool *pool)
{
	for (uint32_t id = 1; id <= RPTR_MAX_REGION; id++)
		if (pool->regions[id])
			mempool_settle(pool, pool->regions[id]);
	if (pool->ops->reclaim)
		pool->ops->reclaim(pool);
}

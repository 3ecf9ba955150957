#include "device/pool_chunk.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"

static struct block **pool_bucket(struct pool *pool, uint64_t va)
{
	return &pool->buckets[va / REGION_ALIGN * UINT64_C(0x9e3779b97f4a7c15) >> 52];
}

_Static_assert(POOL_BUCKETS == 1u << 12, "pool_bucket takes 12 bits");

int pool_find(struct pool *pool, uint32_t job, uint64_t va, struct block ***link_out)
{
	struct block **link = pool_bucket(pool, va);
	const char *name;

	if (job >= LEDGER_JOBS || !pool->ledger.jobs[job].attached)
		return error_set(-EINVAL, "job %" PRIu32 " is not attached", job);
	name = pool->ledger.jobs[job].name;
	while (*link && (*link)->va != va)
		link = &(*link)->found;
	if (!*link)
		return error_set(-EINVAL,
				 "job %s: no tensor at 0x%" PRIx64
				 ": freed twice, or never allocated",
				 name, va);
	if ((*link)->chunk->region->job != job)
		return error_set(-EINVAL, "job %s: the tensor at 0x%" PRIx64 " is of job %s", name,
				 va, pool->ledger.jobs[(*link)->chunk->region->job].name);
	*link_out = link;
	return 0;
}

static int pool_prepare(struct pool *pool, const struct backend_info *info)
{
	uint64_t extent = pool->opts.extent_bytes;
	uint64_t n = info->device_bytes / extent, budget = pool->opts.budget / extent;
	int ret;

	if (extent % info->granularity || n == 0 || n > UINT32_MAX)
		return error_set(-EINVAL,
				 "pool: extents of %" PRIu64 " bytes on a device of %" PRIu64
				 " with granularity %" PRIu64,
				 extent, info->device_bytes, info->granularity);
	if (pool->opts.budget && (budget == 0 || budget > n))
		return error_set(-EINVAL, "pool: a budget of %" PRIu64 " bytes", pool->opts.budget);
	ret = ledger_init(&pool->ledger, (uint32_t)n, budget ? budget : n);
	if (ret)
		return ret;
	pool->bytes = n * extent;
	pool->extents = mem_array(n, sizeof(*pool->extents));
	if (!pool->extents)
		return error_set(-ENOMEM, "pool: cannot allocate %" PRIu64 " extents", n);
	for (uint64_t i = 0; i < n; i++)
		pool->extents[i].last = LEDGER_NOBODY;
	ret = pool->backend->ops->reserve(pool->backend, pool->bytes, &pool->base);
	if (ret)
		return ret;
	if (pool->opts.strict)
		ret = pool->backend->ops->stream_open(pool->backend, NULL, &pool->scrub_stream);
	if (ret) {
		struct error_kept kept;

		error_keep(&kept);
		if (pool->backend->ops->unreserve(pool->backend, pool->base, pool->bytes) == 0)
			error_restore(&kept);
	}
	return ret;
}

int pool_open(const struct pool_opts *opts, struct pool **pool_out)
{
	struct pool *pool = mem_zalloc(sizeof(*pool));
	struct backend_info info;
	int ret;

	if (!pool)
		return error_set(-ENOMEM, "pool: cannot allocate %zu bytes", sizeof(*pool));
	pool->opts = *opts;
	pool->opts.extent_bytes = opts->extent_bytes ? opts->extent_bytes : POOL_EXTENT_BYTES;
	pool->backend = opts->backend;
	for (uint32_t i = 0; i < BACKEND_STREAMS; i++)
		pool->stream_job[i] = LEDGER_NOBODY;
	pool->backend->ops->info(pool->backend, &info);
	ret = pool_prepare(pool, &info);
	if (ret) {
		ledger_destroy(&pool->ledger);
		mem_free(pool->extents);
		mem_free(pool);
		return ret;
	}
	lock_init(&pool->lock, &pool_role);
	*pool_out = pool;
	return 0;
}

/* Ends all that the pool has of the backend. A failure leaves it to the backend's own end. */
static void pool_release(struct pool *pool)
{
	ledger_limit(&pool->ledger, 0);
	if (pool_shrink(pool, 0) == 0 &&
	    pool->backend->ops->unreserve(pool->backend, pool->base, pool->bytes) == 0)
		error_clear();
	if (pool->opts.strict &&
	    pool->backend->ops->stream_close(pool->backend, pool->scrub_stream))
		error_clear();
}

static void pool_end(struct pool **pool_inout)
{
	struct pool *pool = *pool_inout;

	ledger_destroy(&pool->ledger);
	lock_fini(&pool->lock);
	mem_free(pool->extents);
	mem_free(pool);
	*pool_inout = NULL;
}

int pool_close(struct pool **pool_inout)
{
	struct pool *pool = *pool_inout;

	if (!pool)
		return 0;
	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		if (pool->ledger.jobs[i].attached)
			return error_set(-EBUSY, "pool: job %s is attached",
					 pool->ledger.jobs[i].name);
	}
	pool_release(pool);
	pool_end(pool_inout);
	return 0;
}

static void pool_free_regions(struct pool *pool, uint32_t job)
{
	while (pool->regions[job]) {
		struct region *region = pool->regions[job];

		while (region->chunks) {
			struct chunk *chunk = region->chunks;

			region_remove(chunk);
			pool_chunk_abandon(pool, (struct pool_chunk *)chunk);
		}
		pool->regions[job] = region->next;
		mem_free(region);
	}
}

void pool_abandon(struct pool **pool_inout)
{
	struct pool *pool = *pool_inout;

	if (!pool)
		return;
	for (struct pool_chunk *chunk = pool->idle, *next; chunk; chunk = next) {
		next = chunk->next;
		if (!chunk->in_region)
			pool_chunk_abandon(pool, chunk);
	}
	for (uint32_t i = 0; i < LEDGER_JOBS; i++)
		pool_free_regions(pool, i);
	pool_end(pool_inout);
}

/* Jobs of a trusted pool can read what others left. */
static int pool_admits(const struct pool *pool, const struct pool_job *job)
{
	for (uint32_t i = 0; !pool->opts.strict && i < LEDGER_JOBS; i++) {
		const struct ledger_job *other = &pool->ledger.jobs[i];

		if (other->attached && other->uid != job->uid)
			return error_set(-EACCES,
					 "job %s is of another user than job %s: open the pool "
					 "in strict mode",
					 job->name, other->name);
	}
	return 0;
}

int pool_attach(struct pool *pool, const struct pool_job *job, uint32_t *job_out)
{
	uint64_t quota = job->quota ? job->quota / pool->opts.extent_bytes : UINT64_MAX;
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	ret = pool_admits(pool, job);
	if (ret == 0)
		ret = ledger_attach(&pool->ledger, job->name, job->uid, quota, job_out);
	if (ret == 0)
		pool->keep[*job_out] = job->keep;
	lock_release(&pool->lock, &pool_role);
	return ret;
}

int pool_stream(struct pool *pool, uint32_t job, void *native, uint32_t *stream_out)
{
	int ret = 0;

	lock_acquire(&pool->lock, &pool_role);
	if (job >= LEDGER_JOBS || !pool->ledger.jobs[job].attached || pool->leaving[job])
		ret = error_set(-EINVAL, "job %" PRIu32 " is not attached", job);
	if (ret == 0)
		ret = pool->backend->ops->stream_open(pool->backend, native, stream_out);
	if (ret == 0)
		pool->stream_job[*stream_out] = job;
	lock_release(&pool->lock, &pool_role);
	return ret;
}

static int pool_region(struct pool *pool, const struct pool_tensor *tensor,
		       struct region **region_out)
{
	struct region *region = pool->regions[tensor->job];

	while (region && (region->class != tensor->class || region->stream != tensor->stream))
		region = region->next;
	if (!region) {
		region = mem_zalloc(sizeof(*region));
		if (!region)
			return error_set(-ENOMEM, "pool: cannot allocate %zu bytes",
					 sizeof(*region));
		region->class = tensor->class;
		region->job = tensor->job;
		region->stream = tensor->stream;
		region->next = pool->regions[tensor->job];
		pool->regions[tensor->job] = region;
	}
	*region_out = region;
	return 0;
}

int pool_check_parked(const struct pool *pool, uint32_t job)
{
	if (pool->parked[job] == 0)
		return 0;
	return error_set(-EBUSY,
			 "job %s is parked: %" PRIu64 " bytes of it are in the host's memory",
			 pool->ledger.jobs[job].name, pool->parked[job]);
}

static int pool_check_tensor(const struct pool *pool, const struct pool_tensor *tensor)
{
	if (tensor->job >= LEDGER_JOBS || !pool->ledger.jobs[tensor->job].attached ||
	    pool->leaving[tensor->job])
		return error_set(-EINVAL, "job %" PRIu32 " is not attached", tensor->job);
	if ((unsigned)tensor->class >= TENSOR_CLASSES)
		return error_set(-EINVAL, "job %s: class %u", pool->ledger.jobs[tensor->job].name,
				 (unsigned)tensor->class);
	if (tensor->stream >= BACKEND_STREAMS || pool->stream_job[tensor->stream] != tensor->job)
		return error_set(-EINVAL, "job %s: stream %" PRIu32 " is not its own",
				 pool->ledger.jobs[tensor->job].name, tensor->stream);
	return pool_check_parked(pool, tensor->job);
}

/* A block from what the region has, then from quiet memory, then from new extents. */
static int pool_take(struct pool *pool, struct region *region, uint64_t bytes,
		     struct block **block_out)
{
	int ret = region_alloc(region, bytes, block_out);

	if (ret != -EAGAIN)
		return ret;
	ret = pool_collect(pool, false);
	if (ret)
		return ret;
	ret = region_alloc(region, bytes, block_out);
	if (ret != -EAGAIN)
		return ret;
	ret = pool_chunk_lease(pool, region, bytes);
	if (ret == -EAGAIN && pool_collect(pool, true) == 0)
		ret = pool_chunk_lease(pool, region, bytes);
	return ret ? ret : region_alloc(region, bytes, block_out);
}

int pool_alloc(struct pool *pool, const struct pool_tensor *tensor, uint64_t *va_out)
{
	struct region *region;
	struct block *block, **bucket;
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	ret = pool_check_tensor(pool, tensor);
	if (ret == 0)
		ret = pool_region(pool, tensor, &region);
	if (ret == 0)
		ret = pool_take(pool, region, tensor->bytes, &block);
	if (ret == 0) {
		struct pool_chunk *chunk = (struct pool_chunk *)block->chunk;

		chunk->streams |= UINT64_C(1) << tensor->stream;
		if (!chunk->use)
			chunk->use = ++pool->uses[tensor->job];
		ret = pool_chunk_use(pool, chunk);
		bucket = pool_bucket(pool, block->va);
		block->found = *bucket;
		*bucket = block;
		*va_out = block->va;
	}
	lock_release(&pool->lock, &pool_role);
	return ret;
}

int pool_use(struct pool *pool, uint32_t job, uint64_t va, uint32_t stream)
{
	struct block **link;
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	ret = pool_find(pool, job, va, &link);
	if (ret == 0 && (stream >= BACKEND_STREAMS || pool->stream_job[stream] != job))
		ret = error_set(-EINVAL, "job %s: stream %" PRIu32 " is not its own",
				pool->ledger.jobs[job].name, stream);
	if (ret == 0)
		ret = pool_check_parked(pool, job);
	if (ret == 0) {
		struct pool_chunk *chunk = (struct pool_chunk *)(*link)->chunk;

		if (!chunk->use_is_new)
			chunk->use = ++pool->uses[job];
		chunk->use_is_new = true;
		chunk->streams |= UINT64_C(1) << stream;
		if (stream != chunk->chunk.region->stream)
			(*link)->streams |= UINT64_C(1) << stream;
	}
	lock_release(&pool->lock, &pool_role);
	return ret;
}

/* Frees the block of a link in the table of addresses. */
static void pool_drop(struct pool *pool, struct block **link)
{
	struct block *block = *link;
	struct chunk *chunk = block->chunk;
	bool limbo = block->streams != 0;

	*link = block->found;
	region_free(block);
	if (limbo) {
		block->marked = pool_mark(pool, block->streams, &block->marks) == 0;
		pool->limbo++;
	}
	if (chunk->live == 0)
		pool_chunk_idle(pool, (struct pool_chunk *)chunk);
}

int pool_free(struct pool *pool, uint32_t job, uint64_t va)
{
	struct block **link;
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	ret = pool_find(pool, job, va, &link);
	if (ret == 0)
		ret = pool_check_parked(pool, job);
	if (ret == 0)
		pool_drop(pool, link);
	lock_release(&pool->lock, &pool_role);
	return ret;
}

int pool_size(struct pool *pool, uint32_t job, uint64_t va, uint64_t *bytes_out)
{
	struct block **link;
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	ret = pool_find(pool, job, va, &link);
	if (ret == 0)
		*bytes_out = (*link)->bytes;
	lock_release(&pool->lock, &pool_role);
	return ret;
}

int pool_poll(struct pool *pool)
{
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	ret = pool_collect(pool, false);
	if (ret == 0)
		ret = pool_shrink(pool, pool->ledger.budget);
	lock_release(&pool->lock, &pool_role);
	return ret;
}

int pool_trim(struct pool *pool, uint64_t keep)
{
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	ret = pool_collect(pool, false);
	if (ret == 0)
		ret = pool_shrink(pool, pool->ledger.held + keep / pool->opts.extent_bytes);
	lock_release(&pool->lock, &pool_role);
	return ret;
}

int pool_limit(struct pool *pool, uint64_t budget)
{
	uint64_t n = budget / pool->opts.extent_bytes;
	int ret;

	if (n == 0)
		return error_set(-EINVAL, "a budget of %" PRIu64 " bytes is less than an extent",
				 budget);
	lock_acquire(&pool->lock, &pool_role);
	ledger_limit(&pool->ledger, n);
	ret = pool_shrink(pool, n);
	lock_release(&pool->lock, &pool_role);
	return ret;
}

static void pool_drop_all(struct pool *pool, uint32_t job)
{
	for (uint32_t i = 0; i < POOL_BUCKETS; i++) {
		struct block **link = &pool->buckets[i];

		while (*link) {
			if ((*link)->chunk->region->job == job)
				pool_drop(pool, link);
			else
				link = &(*link)->found;
		}
	}
}

static int pool_close_streams(struct pool *pool, uint32_t job)
{
	for (uint32_t i = 0; i < BACKEND_STREAMS; i++) {
		int ret;

		if (pool->stream_job[i] != job)
			continue;
		ret = pool->backend->ops->stream_close(pool->backend, i);
		if (ret)
			return ret == -EBUSY ? error_set(-EAGAIN, "%s", error_last()) : ret;
		pool->stream_job[i] = LEDGER_NOBODY;
	}
	return 0;
}

static int pool_end_job(struct pool *pool, uint32_t job)
{
	struct ledger_job *found = &pool->ledger.jobs[job];
	int ret;

	pool->leaving[job] = true;
	pool->parked[job] = pool->exported[job] = 0;
	pool_drop_all(pool, job);
	ret = pool_collect(pool, false);
	if (ret)
		return ret;
	if (found->held)
		return error_set(-EAGAIN, "job %s: the device still uses %" PRIu64 " extents",
				 found->name, found->held);
	ret = pool_close_streams(pool, job);
	if (ret)
		return ret;
	pool_free_regions(pool, job);
	pool->leaving[job] = false;
	return ledger_detach(&pool->ledger, job);
}

int pool_detach(struct pool *pool, uint32_t job)
{
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	if (job >= LEDGER_JOBS || !pool->ledger.jobs[job].attached)
		ret = error_set(-EINVAL, "job %" PRIu32 " is not attached", job);
	else
		ret = pool_end_job(pool, job);
	lock_release(&pool->lock, &pool_role);
	return ret;
}

uint64_t pool_room(struct pool *pool, uint32_t job)
{
	uint64_t room = 0;

	lock_acquire(&pool->lock, &pool_role);
	if (job < LEDGER_JOBS && pool->ledger.jobs[job].attached)
		room = ledger_room(&pool->ledger, job) * pool->opts.extent_bytes;
	lock_release(&pool->lock, &pool_role);
	return room;
}

void pool_stats(struct pool *pool, struct pool_stats *stats_out)
{
	lock_acquire(&pool->lock, &pool_role);
	*stats_out = pool->stats;
	stats_out->budget = pool->ledger.budget * pool->opts.extent_bytes;
	stats_out->held = pool->ledger.held * pool->opts.extent_bytes;
	for (uint32_t i = 0; i < LEDGER_JOBS; i++) {
		for (const struct region *region = pool->regions[i]; region; region = region->next)
			stats_out->used += region->used_bytes;
	}
	lock_release(&pool->lock, &pool_role);
}

int pool_check(struct pool *pool)
{
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	ret = ledger_check(&pool->ledger);
	for (uint32_t i = 0; i < LEDGER_JOBS && ret == 0; i++) {
		for (const struct region *region = pool->regions[i]; region && ret == 0;
		     region = region->next)
			ret = region_check(region);
	}
	lock_release(&pool->lock, &pool_role);
	return ret;
}

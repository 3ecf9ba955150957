#include "device/pool_chunk.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem/alloc.h"

LOCK_ROLE(pool_role, "device pool", LOCK_RANK_OBJECT);

static uint64_t extent_va(const struct pool *pool, uint32_t extent)
{
	return pool->base + extent * pool->opts.extent_bytes;
}

static int pool_set_access(struct pool *pool, uint64_t va, uint64_t bytes)
{
	pool->stats.backend_calls++;
	return pool->backend->ops->set_access(pool->backend, va, bytes, BACKEND_ACCESS_READ_WRITE);
}

static int pool_map(struct pool *pool, uint64_t va, uint32_t extent)
{
	pool->stats.backend_calls++;
	return pool->backend->ops->map(pool->backend, va, pool->opts.extent_bytes,
				       pool->extents[extent].handle);
}

static int pool_unmap(struct pool *pool, uint64_t va)
{
	pool->stats.backend_calls++;
	return pool->backend->ops->unmap(pool->backend, va, pool->opts.extent_bytes);
}

static int extent_create(struct pool *pool, struct pool_extent *extent)
{
	int ret;

	pool->stats.backend_calls++;
	ret = pool->backend->ops->extent_create(pool->backend, pool->opts.extent_bytes,
						&extent->handle);
	if (ret == 0)
		pool->stats.created += pool->opts.extent_bytes;
	return ret;
}

static int extent_unmap_home(struct pool *pool, uint32_t at)
{
	int ret = 0;

	if (pool->extents[at].mapped)
		ret = pool_unmap(pool, extent_va(pool, at));
	if (ret == 0)
		pool->extents[at].mapped = pool->extents[at].access = false;
	return ret;
}

static int extent_map_home(struct pool *pool, uint32_t at)
{
	struct pool_extent *extent = &pool->extents[at];
	int ret = 0;

	if (!extent->mapped)
		ret = pool_map(pool, extent_va(pool, at), at);
	if (ret)
		return ret;
	extent->mapped = true;
	if (!extent->access)
		ret = pool_set_access(pool, extent_va(pool, at), pool->opts.extent_bytes);
	extent->access = ret == 0;
	return ret;
}

/* Maps extents that are not in a row at addresses made for them. */
static int chunk_map_window(struct pool *pool, struct pool_chunk *chunk)
{
	uint64_t extent = pool->opts.extent_bytes, bytes = chunk->n * extent;
	int ret = 0;

	if (!chunk->window) {
		pool->stats.backend_calls++;
		ret = pool->backend->ops->reserve(pool->backend, bytes, &chunk->window);
	}
	if (ret) {
		chunk->window = 0;
		return ret;
	}
	for (uint32_t i = chunk->in_window; i < chunk->n; i++) {
		ret = pool_map(pool, chunk->window + i * extent, chunk->refs[i].extent);
		if (ret)
			return ret;
		chunk->in_window++;
	}
	return pool_set_access(pool, chunk->window, bytes);
}

/* Goes on where an earlier call failed. */
static int chunk_empty_window(struct pool *pool, struct pool_chunk *chunk)
{
	int ret;

	for (; chunk->in_window; chunk->in_window--) {
		ret = pool_unmap(pool,
				 chunk->window + (chunk->in_window - 1) * pool->opts.extent_bytes);
		if (ret)
			return ret;
	}
	return 0;
}

static int chunk_unmap_window(struct pool *pool, struct pool_chunk *chunk)
{
	int ret = chunk_empty_window(pool, chunk);

	if (ret)
		return ret;
	pool->stats.backend_calls++;
	ret = pool->backend->ops->unreserve(pool->backend, chunk->window,
					    chunk->n * pool->opts.extent_bytes);
	if (ret == 0)
		chunk->window = 0;
	return ret;
}

int pool_chunk_map(struct pool *pool, struct pool_chunk *chunk)
{
	uint32_t first = chunk->refs[0].extent;
	int ret = 0;

	for (uint32_t i = 0; i < chunk->n && ret == 0; i++) {
		struct pool_extent *extent = &pool->extents[chunk->refs[i].extent];

		if (!extent->handle)
			ret = extent_create(pool, extent);
	}
	if (ret)
		return ret;
	if (chunk->refs[chunk->n - 1].extent - first != chunk->n - 1)
		return chunk_map_window(pool, chunk);
	for (uint32_t i = 0; i < chunk->n && ret == 0; i++)
		ret = extent_map_home(pool, chunk->refs[i].extent);
	return ret;
}

static int extent_release(struct pool *pool, uint32_t at)
{
	struct pool_extent *extent = &pool->extents[at];
	int ret = extent_unmap_home(pool, at);

	if (ret || !extent->handle)
		return ret;
	pool->stats.backend_calls++;
	ret = pool->backend->ops->extent_release(pool->backend, extent->handle);
	if (ret)
		return ret;
	extent->handle = 0;
	pool->stats.created -= pool->opts.extent_bytes;
	return 0;
}

int pool_chunk_unmap(struct pool *pool, struct pool_chunk *chunk)
{
	int ret = chunk_empty_window(pool, chunk);

	for (uint32_t i = 0; i < chunk->n && ret == 0; i++)
		ret = extent_release(pool, chunk->refs[i].extent);
	return ret;
}

static void idle_insert(struct pool *pool, struct pool_chunk *chunk)
{
	chunk->idle = true;
	chunk->previous = NULL;
	chunk->next = pool->idle;
	if (chunk->next)
		chunk->next->previous = chunk;
	pool->idle = chunk;
}

static void idle_remove(struct pool *pool, struct pool_chunk *chunk)
{
	chunk->idle = false;
	if (chunk->next)
		chunk->next->previous = chunk->previous;
	if (chunk->previous)
		chunk->previous->next = chunk->next;
	else
		pool->idle = chunk->next;
}

/* Moves all extents of a chunk through the ledger, which cannot refuse: their states are alike. */
static int chunk_step(struct pool *pool, const struct pool_chunk *chunk,
		      int (*step)(struct ledger *ledger, struct extent_ref ref))
{
	int ret = 0;

	for (uint32_t i = 0; i < chunk->n && ret == 0; i++)
		ret = step(&pool->ledger, chunk->refs[i]);
	return ret;
}

/* Gives a quiet chunk back whose scrub, if any, is done. After a failure it stays idle. */
static int chunk_give_back(struct pool *pool, struct pool_chunk *chunk)
{
	int ret = chunk->park == CHUNK_PARKED ? pool_chunk_unmap(pool, chunk) : 0;

	if (ret == 0 && chunk->window)
		ret = chunk_unmap_window(pool, chunk);
	for (uint32_t i = 0; pool->opts.strict && i < chunk->n && ret == 0; i++)
		ret = extent_unmap_home(pool, chunk->refs[i].extent);
	if (ret == 0)
		ret = chunk_step(pool, chunk, ledger_give_back);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < chunk->n; i++)
		pool->extents[chunk->refs[i].extent].last = chunk->job;
	idle_remove(pool, chunk);
	mem_free(chunk->copy);
	mem_free(chunk);
	return 0;
}

void pool_chunk_abandon(const struct pool *pool, struct pool_chunk *chunk)
{
	if (marks_reached(&chunk->park_marks, &pool->ledger.clock))
		mem_free(chunk->copy);
	mem_free(chunk);
}

static void count_handovers(struct pool *pool, const struct pool_chunk *chunk)
{
	for (uint32_t i = 0; i < chunk->n; i++) {
		uint32_t last = pool->extents[chunk->refs[i].extent].last;

		pool->stats.handovers += last != LEDGER_NOBODY && last != chunk->job;
	}
}

int pool_chunk_lease(struct pool *pool, struct region *region, uint64_t bytes)
{
	uint64_t extent = pool->opts.extent_bytes, n = (bytes + extent - 1) / extent;
	struct pool_chunk *chunk;
	int ret;

	if (n > pool->ledger.n)
		return error_set(-ENOSPC, "a tensor of %" PRIu64 " bytes: the device has %" PRIu64,
				 bytes, pool->bytes);
	chunk = mem_zalloc(sizeof(*chunk) + n * sizeof(chunk->refs[0]));
	if (!chunk)
		return error_set(-ENOMEM, "pool: no memory for a chunk");
	chunk->job = region->job;
	chunk->n = (uint32_t)n;
	ret = ledger_lease(&pool->ledger, region->job, chunk->n, chunk->refs);
	if (ret) {
		mem_free(chunk);
		return ret;
	}
	chunk->state = EXTENT_LEASED;
	chunk->scrubbed = true; /* nobody has written to it */
	idle_insert(pool, chunk);
	ret = pool_chunk_map(pool, chunk);
	if (ret == 0)
		ret = region_add(region, &chunk->chunk,
				 chunk->window ? chunk->window
					       : extent_va(pool, chunk->refs[0].extent),
				 n * extent);
	if (ret) {
		struct error_kept kept;

		error_keep(&kept);
		if (chunk_give_back(pool, chunk) == 0)
			error_restore(&kept);
		return ret;
	}
	chunk->in_region = true;
	count_handovers(pool, chunk);
	chunk->state = EXTENT_MAPPED;
	return chunk_step(pool, chunk, ledger_map);
}

int pool_chunk_use(struct pool *pool, struct pool_chunk *chunk)
{
	enum extent_state before = chunk->state;

	if (!chunk->idle)
		return 0;
	idle_remove(pool, chunk);
	chunk->state = EXTENT_ACTIVE;
	chunk->scrubbed = false;
	chunk->unmarked = false;
	return before == EXTENT_ACTIVE ? 0 : chunk_step(pool, chunk, ledger_use);
}

int pool_mark(struct pool *pool, uint64_t streams, struct marks *marks)
{
	while (streams) {
		uint32_t stream = bits_ctz(streams);
		uint64_t seq = pool->ledger.clock.last + 1;
		int ret = pool->backend->ops->stream_mark(pool->backend, stream, seq);

		if (ret)
			return ret;
		marks_queued(&pool->ledger.clock, stream, seq);
		marks_add(marks, &pool->ledger.clock, stream);
		streams &= streams - 1;
	}
	return 0;
}

/* Queues the marks of an idle chunk: it is pending. */
static int chunk_pend(struct pool *pool, struct pool_chunk *chunk, uint64_t streams)
{
	struct marks marks = { 0 };
	int ret = pool_mark(pool, streams, &marks);

	chunk->unmarked = ret != 0;
	for (uint32_t i = 0; i < chunk->n && ret == 0; i++)
		ret = ledger_pend(&pool->ledger, chunk->refs[i], &marks);
	if (ret == 0)
		chunk->state = EXTENT_PENDING;
	return ret;
}

void pool_chunk_idle(struct pool *pool, struct pool_chunk *chunk)
{
	idle_insert(pool, chunk);
	if (chunk_pend(pool, chunk, chunk->streams))
		log_warn("mark chunk of job %s: %s", pool->ledger.jobs[chunk->job].name,
			 error_last());
}

static void chunk_end_limbo(struct pool *pool, struct chunk *chunk)
{
	struct block *block = chunk->first;

	while (chunk->limbo && block) {
		if (block->state != BLOCK_LIMBO) {
			block = block->after;
			continue;
		}
		region_end_limbo(block);
		pool->limbo--;
		block = chunk->first; /* its neighbours may be gone */
	}
}

static int chunk_scrub(struct pool *pool, struct pool_chunk *chunk)
{
	int ret;

	pool->stats.backend_calls++;
	ret = pool->backend->ops->fill(pool->backend, pool->scrub_stream, chunk->chunk.va,
				       chunk->chunk.bytes, 0);
	if (ret)
		return ret;
	ret = chunk_pend(pool, chunk, UINT64_C(1) << pool->scrub_stream);
	chunk->scrubbed = ret == 0;
	return ret;
}

/* Lets a chunk go as far as it can. */
static int chunk_settle(struct pool *pool, struct pool_chunk *chunk, bool all, uint64_t *kept)
{
	int ret = 0;

	if (chunk->state == EXTENT_ACTIVE && chunk->unmarked)
		ret = chunk_pend(pool, chunk, chunk->streams);
	if (ret == 0 && chunk->state == EXTENT_PENDING) {
		ret = chunk_step(pool, chunk, ledger_settle);
		if (ret)
			return ret == -EAGAIN ? 0 : ret;
		chunk->state = EXTENT_QUIET;
		chunk->streams = 0;
		if (chunk->in_region)
			chunk_end_limbo(pool, &chunk->chunk);
	}
	if (ret || chunk->state == EXTENT_PENDING || chunk->state == EXTENT_ACTIVE)
		return ret;
	if (chunk->in_region && !all &&
	    kept[chunk->job] + chunk->chunk.bytes <= pool->keep[chunk->job]) {
		kept[chunk->job] += chunk->chunk.bytes;
		return 0;
	}
	if (chunk->in_region)
		region_remove(&chunk->chunk);
	chunk->in_region = false;
	if (pool->opts.strict && !chunk->scrubbed && chunk->park != CHUNK_PARKED)
		return chunk_scrub(pool, chunk);
	return chunk_give_back(pool, chunk);
}

int pool_progress(struct pool *pool)
{
	struct mark_clock *clock = &pool->ledger.clock;

	for (uint32_t i = 0; i < BACKEND_STREAMS; i++) {
		uint64_t reached;
		int ret;

		if (clock->streams[i].reached == clock->streams[i].queued)
			continue;
		ret = pool->backend->ops->stream_progress(pool->backend, i, &reached);
		if (ret == 0)
			ret = marks_progress(clock, i, reached);
		if (ret)
			return ret;
	}
	return 0;
}

/* Frees the block if its other streams are done. */
static int block_settle(struct pool *pool, struct block *block, bool *freed_out)
{
	int ret = block->marked ? 0 : pool_mark(pool, block->streams, &block->marks);

	*freed_out = false;
	if (ret)
		return ret;
	block->marked = true;
	if (!marks_reached(&block->marks, &pool->ledger.clock))
		return 0;
	region_end_limbo(block);
	pool->limbo--;
	*freed_out = true;
	return 0;
}

/* Frees blocks of a region whose other streams are done. */
static int region_settle(struct pool *pool, struct region *region)
{
	for (struct chunk *chunk = region->chunks; chunk; chunk = chunk->after) {
		struct block *block = chunk->first;

		while (chunk->limbo && block) {
			struct block *after = block->after;
			bool freed = false;
			int ret = block->state == BLOCK_LIMBO ? block_settle(pool, block, &freed)
							      : 0;

			if (ret)
				return ret;
			block = freed ? chunk->first : after; /* its neighbours may be gone */
		}
	}
	return 0;
}

int pool_collect(struct pool *pool, bool all)
{
	uint64_t kept[LEDGER_JOBS] = { 0 };
	int ret = pool_progress(pool);

	if (ret)
		return ret;
	for (uint32_t i = 0; pool->limbo && i < LEDGER_JOBS && ret == 0; i++) {
		for (struct region *region = pool->regions[i]; region && ret == 0;
		     region = region->next)
			ret = region_settle(pool, region);
	}
	for (struct pool_chunk *chunk = pool->idle; chunk;) {
		struct pool_chunk *next = chunk->next;
		int one = chunk_settle(pool, chunk, all || pool->leaving[chunk->job], kept);

		ret = ret ? ret : one;
		chunk = next;
	}
	return ret;
}

int pool_shrink(struct pool *pool, uint64_t most)
{
	uint64_t bytes = max_u64(most, pool->ledger.held) * pool->opts.extent_bytes;

	for (uint32_t at = pool->ledger.n; at-- && pool->stats.created > bytes;) {
		int ret = 0;

		if (pool->extents[at].handle && pool->ledger.extents[at].state == EXTENT_FREE)
			ret = extent_release(pool, at);
		if (ret)
			return ret;
	}
	return 0;
}

#include "device/pool_park.h"

#include <errno.h>
#include <inttypes.h>

#include "base/bits.h"
#include "base/mem/alloc.h"

#include "device/pool_chunk.h"

#define UNMARKED \
	UINT64_MAX /* in place of the number of a mark that could not be queued behind a copy */

/* A chunk with tensors whose place of use is next above `after`, or next below; NULL: there is none. */
static struct pool_chunk *park_next(const struct pool *pool, uint32_t job, uint64_t after, bool up)
{
	struct pool_chunk *best = NULL;

	for (const struct region *region = pool->regions[job]; region; region = region->next) {
		for (struct chunk *at = region->chunks; at; at = at->after) {
			struct pool_chunk *chunk = (struct pool_chunk *)at;

			if (at->live == 0 || (up ? chunk->use <= after : chunk->use >= after))
				continue;
			if (!best || (up ? chunk->use < best->use : chunk->use > best->use))
				best = chunk;
		}
	}
	return best;
}

static int park_copy(struct pool *pool, struct pool_chunk *chunk, bool out)
{
	uint32_t stream = chunk->chunk.region->stream;
	uint64_t host = (uint64_t)(uintptr_t)chunk->copy, va = chunk->chunk.va;
	const struct backend_copy copy = { .dst = out ? host : va,
					   .src = out ? va : host,
					   .bytes = chunk->chunk.bytes };
	int ret;

	chunk->park_marks = (struct marks){ .n = 0 };
	pool->stats.backend_calls++;
	ret = pool->backend->ops->copy_batch(pool->backend, stream, &copy, 1);
	return ret ? ret : pool_mark(pool, UINT64_C(1) << stream, &chunk->park_marks);
}

/* -------- out -------- */

/* Begins: from now on the job cannot queue work on it. */
static int park_leave(struct pool *pool, struct pool_chunk *chunk)
{
	int ret;

	chunk->park_marks = (struct marks){ .n = 0 };
	ret = pool_mark(pool, chunk->streams, &chunk->park_marks);
	if (ret)
		return ret;
	chunk->park = CHUNK_LEAVES;
	chunk->moved = 0;
	pool->parked[chunk->job] += chunk->chunk.bytes;
	return 0;
}

/* The same, with room in the host's memory. */
static int park_leave_for_host(struct pool *pool, struct pool_chunk *chunk)
{
	int ret;

	chunk->copy = mem_alloc(chunk->chunk.bytes);
	if (!chunk->copy)
		return error_set(-ENOMEM, "job %s: no room to park %" PRIu64 " bytes",
				 pool->ledger.jobs[chunk->job].name, chunk->chunk.bytes);
	ret = park_leave(pool, chunk);
	if (ret) {
		mem_free(chunk->copy);
		chunk->copy = NULL;
	}
	return ret;
}

/* Takes a chunk out as far as it goes. */
static int park_out(struct pool *pool, struct pool_chunk *chunk)
{
	const struct mark_clock *clock = &pool->ledger.clock;
	int ret = chunk->park == CHUNK_RESIDENT ? park_leave_for_host(pool, chunk) : 0;

	if (ret == 0 && chunk->park == CHUNK_LEAVES && marks_reached(&chunk->park_marks, clock)) {
		ret = park_copy(pool, chunk, true);
		if (ret == 0)
			chunk->park = CHUNK_COPIES;
	}
	if (ret == 0 && chunk->park == CHUNK_COPIES && marks_reached(&chunk->park_marks, clock))
		chunk->park = CHUNK_PARKED;
	return ret == 0 && chunk->park == CHUNK_PARKED ? pool_chunk_unmap(pool, chunk) : ret;
}

/* Ends returns that have arrived. */
static void park_settle(struct pool *pool, uint32_t job)
{
	struct pool_chunk *chunk = park_next(pool, job, 0, true);

	for (; chunk; chunk = park_next(pool, job, chunk->use, true)) {
		if (chunk->park != CHUNK_RETURNS ||
		    !marks_reached(&chunk->park_marks, &pool->ledger.clock))
			continue;
		mem_free(chunk->copy);
		chunk->copy = NULL;
		chunk->park = CHUNK_RESIDENT;
	}
}

static int park_still_used(const struct pool *pool, uint32_t job)
{
	return error_set(-EAGAIN, "job %s: the device still uses its tensors",
			 pool->ledger.jobs[job].name);
}

static int park_some(struct pool *pool, uint32_t job, uint64_t bytes)
{
	struct pool_chunk *chunk = park_next(pool, job, UINT64_MAX, false);
	uint64_t done = 0;
	bool waits = false;

	for (; chunk && done < bytes; chunk = park_next(pool, job, chunk->use, false)) {
		int ret = chunk->park == CHUNK_RETURNS ? 0 : park_out(pool, chunk);

		if (ret)
			return ret;
		waits |= chunk->park != CHUNK_PARKED;
		done += chunk->chunk.bytes;
	}
	return waits ? park_still_used(pool, job) : 0;
}

/* Takes the lock, which the caller releases, and reads progress. */
static int park_enter(struct pool *pool, uint32_t job) LOCK_ACQUIRES(pool_role)
{
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	if (job >= LEDGER_JOBS || !pool->ledger.jobs[job].attached || pool->leaving[job])
		return error_set(-EINVAL, "job %" PRIu32 " is not attached", job);
	ret = pool_progress(pool);
	if (ret == 0)
		park_settle(pool, job);
	return ret;
}

/* An RDMA device would go on to fill the memory that the job had. */
static int park_check_exported(const struct pool *pool, uint32_t job)
{
	return pool->exported[job] == 0
		       ? 0
		       : error_set(-EBUSY,
				   "job %s: batches land by RDMA in %" PRIu32
				   " of its tensors: close their samplers, or open the landing "
				   "with RLV_LANDING_PINNED as opts.path",
				   pool->ledger.jobs[job].name, pool->exported[job]);
}

int pool_park(struct pool *pool, uint32_t job, uint64_t bytes)
{
	int ret = park_enter(pool, job);

	if (ret == 0)
		ret = park_check_exported(pool, job);
	if (ret == 0)
		ret = park_some(pool, job, bytes);
	lock_release(&pool->lock, &pool_role);
	return ret;
}

/* -------- in -------- */

/* Where the copy is not complete, its own memory still is. */
static int park_in(struct pool *pool, struct pool_chunk *chunk)
{
	int ret = 0;

	if (chunk->park == CHUNK_RESIDENT || chunk->park == CHUNK_RETURNS || chunk->elsewhere)
		return 0;
	if (chunk->park == CHUNK_PARKED)
		ret = pool_chunk_map(pool, chunk);
	if (ret == 0 && chunk->park == CHUNK_PARKED)
		ret = park_copy(pool, chunk, false);
	else if (ret == 0) /* a copy out may be queued, which needs the buffer */
		ret = pool_mark(pool, UINT64_C(1) << chunk->chunk.region->stream,
				&chunk->park_marks);
	if (ret)
		return ret;
	chunk->park = CHUNK_RETURNS;
	pool->parked[chunk->job] -= chunk->chunk.bytes;
	return 0;
}

int pool_unpark(struct pool *pool, uint32_t job)
{
	int ret = park_enter(pool, job);
	struct pool_chunk *chunk = ret ? NULL : park_next(pool, job, 0, true);

	for (; chunk && ret == 0; chunk = park_next(pool, job, chunk->use, true))
		ret = park_in(pool, chunk);
	lock_release(&pool->lock, &pool_role);
	return ret;
}

/* -------- by pieces that the caller keeps -------- */

int pool_hold(struct pool *pool, uint32_t job)
{
	int ret = park_enter(pool, job);
	struct pool_chunk *chunk;
	bool waits = false;

	if (ret == 0)
		ret = park_check_exported(pool, job);
	chunk = ret ? NULL : park_next(pool, job, 0, true);
	if (ret == 0 && pool->parked[job] == 0)
		pool->pieces[job] = 0;
	for (; chunk && ret == 0; chunk = park_next(pool, job, chunk->use, true)) {
		if (chunk->park == CHUNK_RESIDENT)
			ret = park_leave(pool, chunk);
		waits |= !chunk->elsewhere &&
			 !marks_reached(&chunk->park_marks, &pool->ledger.clock);
	}
	if (ret == 0 && waits)
		ret = park_still_used(pool, job);
	lock_release(&pool->lock, &pool_role);
	return ret;
}

/* The chunk that is next in the order of use: one that leaves, or one that is elsewhere. */
static struct pool_chunk *piece_chunk(const struct pool *pool, uint32_t job, bool out)
{
	struct pool_chunk *chunk = park_next(pool, job, 0, true);

	while (chunk && (out ? chunk->park != CHUNK_LEAVES || chunk->moved == chunk->chunk.bytes
			     : !chunk->elsewhere))
		chunk = park_next(pool, job, chunk->use, true);
	return chunk;
}

int pool_piece(struct pool *pool, uint32_t job, bool out, uint64_t most,
	       struct pool_piece *piece_out)
{
	int ret = park_enter(pool, job);
	struct pool_chunk *chunk = ret ? NULL : piece_chunk(pool, job, out);

	if (ret == 0 && !chunk)
		ret = error_set(-ENODATA, "job %s: no more pieces", pool->ledger.jobs[job].name);
	if (ret == 0 && !out)
		ret = pool_chunk_map(pool, chunk);
	if (ret == 0) {
		if (out && chunk->moved == 0)
			chunk->piece = pool->pieces[job];
		*piece_out = (struct pool_piece){ .chunk = chunk,
						  .va = chunk->chunk.va + chunk->moved,
						  .bytes = min_u64(most, chunk->chunk.bytes -
										 chunk->moved),
						  .number = chunk->piece + chunk->moved / most };
	}
	lock_release(&pool->lock, &pool_role);
	return ret;
}

/* The last piece of a chunk is queued: it is on its way back. */
static void piece_return(struct pool *pool, struct pool_chunk *chunk, const struct marks *marks)
{
	chunk->elsewhere = false;
	chunk->park = CHUNK_RETURNS;
	chunk->park_marks = *marks;
	pool->parked[chunk->job] -= chunk->chunk.bytes;
}

int pool_piece_copy(struct pool *pool, const struct pool_piece *piece, void *host, bool out,
		    struct marks *marks_out)
{
	struct pool_chunk *chunk = piece->chunk;
	uint64_t at = (uint64_t)(uintptr_t)host;
	const struct backend_copy copy = { .dst = out ? at : piece->va,
					   .src = out ? piece->va : at,
					   .bytes = piece->bytes };
	uint32_t stream = chunk->chunk.region->stream;
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	*marks_out = (struct marks){ .n = 0 };
	pool->stats.backend_calls++;
	ret = pool->backend->ops->copy_batch(pool->backend, stream, &copy, 1);
	if (ret == 0) {
		ret = pool_mark(pool, UINT64_C(1) << stream, marks_out);
		if (ret)
			*marks_out =
				(struct marks){ .n = 1, .stream = { stream }, .seq = { UNMARKED } };
	}
	if (ret == 0) {
		chunk->moved += piece->bytes;
		pool->pieces[chunk->job] += out;
		if (!out && chunk->moved == chunk->chunk.bytes)
			piece_return(pool, chunk, marks_out);
	}
	lock_release(&pool->lock, &pool_role);
	return ret;
}

int pool_reached(struct pool *pool, struct marks *marks)
{
	struct marks again = { .n = 0 };
	int ret;

	lock_acquire(&pool->lock, &pool_role);
	ret = pool_progress(pool);
	if (ret == 0 && marks->n && marks->seq[0] == UNMARKED) {
		ret = pool_mark(pool, UINT64_C(1) << marks->stream[0], &again);
		if (ret == 0)
			*marks = again;
	}
	if (ret == 0 && !marks_reached(marks, &pool->ledger.clock))
		ret = error_set(-EAGAIN, "the device still copies");
	lock_release(&pool->lock, &pool_role);
	return ret;
}

int pool_leave_pieces(struct pool *pool, uint32_t job)
{
	int ret = park_enter(pool, job);
	struct pool_chunk *chunk = ret ? NULL : park_next(pool, job, 0, true);

	for (; chunk && ret == 0; chunk = park_next(pool, job, chunk->use, true)) {
		chunk->park = CHUNK_PARKED;
		chunk->elsewhere = true;
		chunk->moved = 0;
	}
	chunk = ret ? NULL : park_next(pool, job, UINT64_MAX, false);
	for (; chunk && ret == 0; chunk = park_next(pool, job, chunk->use, false))
		ret = pool_chunk_unmap(pool, chunk);
	lock_release(&pool->lock, &pool_role);
	return ret;
}

int pool_ready(struct pool *pool, uint32_t job, uint64_t va)
{
	int ret = park_enter(pool, job);
	const struct pool_chunk *chunk;
	struct block **link;

	if (ret == 0)
		ret = pool_find(pool, job, va, &link);
	if (ret == 0) {
		chunk = (const struct pool_chunk *)(*link)->chunk;
		if (chunk->park == CHUNK_RETURNS)
			ret = error_set(-EAGAIN, "the tensor is on its way back");
		else if (chunk->park != CHUNK_RESIDENT)
			ret = error_set(-EBUSY, "the tensor is parked");
	}
	lock_release(&pool->lock, &pool_role);
	return ret;
}

uint64_t pool_parked(struct pool *pool, uint32_t job)
{
	uint64_t parked = 0;

	lock_acquire(&pool->lock, &pool_role);
	if (job < LEDGER_JOBS)
		parked = pool->parked[job];
	lock_release(&pool->lock, &pool_role);
	return parked;
}

void pool_iterate(struct pool *pool, uint32_t job)
{
	lock_acquire(&pool->lock, &pool_role);
	for (struct region *region = pool->regions[job]; region; region = region->next) {
		for (struct chunk *at = region->chunks; at; at = at->after)
			((struct pool_chunk *)at)->use_is_new = false;
	}
	lock_release(&pool->lock, &pool_role);
}

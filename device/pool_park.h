/*
 * pool_park.h - a paused job's tensors go to the host's memory, or wherever the caller keeps pieces of them, and
 * come back at the same addresses.
 *
 *   pool_park    the tensors whose next use is furthest go first: wait for their streams ─> copy out ─>
 *                unmap, physical extents back
 *   pool_unpark  those whose next use is nearest come first: extents ─> map ─> copy in, queued; the job
 *                may work with the first while later ones are under way (pool_ready)
 *
 * The next use of a chunk of tensors is the place in the last iteration where pool_use named one of
 * them first; until then, their place in the order of allocations. While a job has parked tensors, its other
 * calls with tensors are -EBUSY. All is done on the job's own streams and in its own memory: other jobs
 * have no part in it. Addresses, and the ledger's count of this pool, stay the job's; physical memory
 * goes to the backend.
 *
 * Nothing waits. A failure leaves the bytes where they are, whole; the next call goes on.
 */
#ifndef RLV_DEVICE_POOL_PARK_H
#define RLV_DEVICE_POOL_PARK_H

#include <stdbool.h>

#include "device/marks.h"
#include "device/pool.h"

/* Parks tensors of at least that many bytes, or all: UINT64_MAX. -EAGAIN: the device has yet to end what
   uses them, repeat after progress; -EBUSY: some are exported (device/pool_export.h); -ENOMEM: the host has no
   room; errors of the backend. */
RLV_MUST_CHECK int pool_park(struct pool *pool, uint32_t job, uint64_t bytes);
/* Queues the return of all. -EAGAIN: the backend lacks extents now; errors of the backend. */
RLV_MUST_CHECK int pool_unpark(struct pool *pool, uint32_t job);
/* 0: the tensor's bytes are there. -EAGAIN: they are under way; -EBUSY: they are parked; -EINVAL. */
RLV_MUST_CHECK int pool_ready(struct pool *pool, uint32_t job, uint64_t va);

/*
 * By pieces that the caller keeps, numbered from 0:
 *   pool_hold ─> (pool_piece ─> pool_piece_copy, out ─> pool_reached ─> the caller keeps it)* ─> pool_leave_pieces
 *   (pool_piece ─> the caller has it ─> pool_piece_copy, in)*, in the order of use
 * Until pool_leave_pieces all bytes are in their place, and pool_unpark brings the job back without the pieces.
 */
struct pool_piece {
	void *chunk; /* private */
	uint64_t va, bytes;
	uint64_t number;
};

/* The job cannot queue work from now on. -EAGAIN: the device has yet to end what uses its tensors; -EBUSY, as of
   pool_park; errors of the backend. */
RLV_MUST_CHECK int pool_hold(struct pool *pool, uint32_t job);
/* The next piece of at most that many bytes, always the same number; its memory is mapped. -ENODATA: there are
   no more; -EAGAIN: the backend lacks extents now. */
RLV_MUST_CHECK int pool_piece(struct pool *pool, uint32_t job, bool out, uint64_t most,
			      struct pool_piece *piece_out);
/* Queues the copy between a piece and memory of the host, which stays until the marks are reached, after an error,
   too; then the next pool_piece is another one. */
RLV_MUST_CHECK int pool_piece_copy(struct pool *pool, const struct pool_piece *piece, void *host,
				   bool out, struct marks *marks_out);
/* -EAGAIN: not yet. */
RLV_MUST_CHECK int pool_reached(struct pool *pool, struct marks *marks);
/* The caller keeps all pieces: physical extents go back. Goes on after a failure. */
RLV_MUST_CHECK int pool_leave_pieces(struct pool *pool, uint32_t job);

/* Bytes of a job that are parked, or on their way there. */
uint64_t pool_parked(struct pool *pool, uint32_t job);

/* An iteration of the job begins: uses are counted from its begin. */
void pool_iterate(struct pool *pool, uint32_t job);

#endif

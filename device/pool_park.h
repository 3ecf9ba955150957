/*
 * pool_park.h - a paused job's tensors go to the host's memory, and come back at the same addresses.
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

#include "device/pool.h"

/* Parks tensors of at least that many bytes, or all: UINT64_MAX. -EAGAIN: the device has yet to end what
   uses them, repeat after progress; -ENOMEM: the host has no room; errors of the backend. */
RLV_MUST_CHECK int pool_park(struct pool *pool, uint32_t job, uint64_t bytes);
/* Queues the return of all. -EAGAIN: the backend lacks extents now; errors of the backend. */
RLV_MUST_CHECK int pool_unpark(struct pool *pool, uint32_t job);
/* 0: the tensor's bytes are there. -EAGAIN: they are under way; -EBUSY: they are parked; -EINVAL. */
RLV_MUST_CHECK int pool_ready(struct pool *pool, uint32_t job, uint64_t va);

/* Bytes of a job that are parked, or on their way there. */
uint64_t pool_parked(struct pool *pool, uint32_t job);

/* An iteration of the job begins: uses are counted from its begin. */
void pool_iterate(struct pool *pool, uint32_t job);

#endif

/*
 * Ring: blocks of rows, each claimed, written and published by one stream at a time (rule 1).
 *
 *   claim    ticket = FAA head; CAS header {closed, *, older} -> {open, me, ticket}; set every leaf
 *            of the block in every view to {tag, gen, 0}
 *   write    rows of the block, in order
 *   publish  CAS leaf {gen, 0} -> {gen, p} where a window is complete
 *   close    CAS header {open, me, ticket} -> {closed, me, ticket}
 *
 * A claim never waits for a block that is open or has a later ticket, and never takes it over:
 * it draws another ticket. Thread: the owner of the access.
 */
#ifndef RLV_DS_RING_RING_H
#define RLV_DS_RING_RING_H

#include "ds/replay/shard.h"

/* A block held by one stream. */
struct block {
	struct access *acc; /* NULL = none held */
	uint64_t seq;
	uint32_t index;
	uint32_t gen;
	uint32_t first; /* slot of its first row */
	uint32_t used;  /* rows written */
};

struct ring_counters {
	uint64_t claimed;
	uint64_t skipped; /* tickets whose block was open or newer */
};

/*
 * Claims a block in all views. Between access_enter and access_leave. A view that is a queue
 * (items are sampled once, the limiter bounds inserts) keeps a block until all of its items are
 * consumed.
 * Errors: -EAGAIN (no block is free after as many tickets as there are blocks), -EIO (an answer
 * was lost); after an error no block is held.
 * Cost: over a wire 3 phases for any number of views: FAA with header read, header CAS with leaf
 * read, leaf CAS; 1 more with queues; 2 for each skipped block.
 */
RLV_MUST_CHECK int ring_claim(struct access *acc, struct block *blk,
			      struct ring_counters *counters);

/*
 * Closes the block after its rows and leaves are written. -EOWNERDEAD: the metadata server
 * closed it, so this handle was fenced, and the block is no longer held; after any other error
 * it is still held. Over a wire the next access_enter or access_flush reports the fence. Cost:
 * posted, not waited for.
 */
RLV_MUST_CHECK int ring_close(struct block *blk);

/*
 * Address of row i of the block, for building it in place; NULL if not addressable (use
 * ring_write).
 */
static inline uint8_t *ring_row(const struct block *blk, uint32_t i)
{
	const struct shard *shard = blk->acc->shard;
	uint8_t *base = shard->rows->base;

	return base ? base + shard_row_off(shard, blk->first + i) : NULL;
}

static inline uint64_t ring_mix(uint64_t trace, uint64_t value)
{
	return (trace ^ value) * 0x9e3779b97f4a7c15u;
}

/*
 * Hashes the row count of each open block into *trace_inout, so that every append changes it,
 * also an append that completes no item. For cold paths. Cost: 1 phase for each 512 blocks, and
 * log2(rows) phases for each open block. Thread: any.
 */
RLV_MUST_CHECK int ring_trace(const struct shard *shard, uint64_t *trace_inout);

/*
 * Writes n rows from a staging buffer to rows i.. of the block. -EINVAL: they do not fit in it.
 * Cost: 1 phase.
 */
RLV_MUST_CHECK int ring_write(const struct block *blk, uint32_t i, const void *rows, uint32_t n);

#endif

/*
 * scan.h - state of a sampler's scan: the blocks that the table had when the scan started, in its order, and
 * its place among them.
 *
 *   start   headers of all shards ──> blocks[], oldest first
 *   next    leaves of the next blocks, up to 8192 at a time ──> items ──> rows ──> leaves again
 *
 * A block that was claimed anew meanwhile has leaves of another generation, so that the headers are read only
 * once. What is read ahead of a pause is no risk: leaves are verified after the rows, as in a sample.
 */
#ifndef RLV_CLIENT_SAMPLER_SCAN_H
#define RLV_CLIENT_SAMPLER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem/mem.h"
#include "base/error.h"

struct rlv_sampler;
struct batch;

struct scan_block {
	uint64_t order; /* the scan goes from low to high */
	uint32_t turn;  /* then so: of the shard, as its writer takes shards in turn */
	uint32_t shard, block;
	uint32_t gen; /* of its items */
};

/* The next row to look at. */
struct scan_place {
	size_t block; /* index in blocks */
	uint32_t row;
};

struct scan {
	struct scan_block *blocks;
	size_t n, room;
	struct scan_place place;
	bool partial;
	struct mem words;         /* headers, then leaves of ... */
	size_t first_read, reads; /* ... these blocks */
};

void scan_fini(struct scan *scan);

/* -------- calls of scans and gathers -------- */

/* State of a call, kept when a node is lost and the step repeats. */
struct scan_call {
	struct rlv_sampler *sp;
	const char *verb;
	uint32_t n;
	struct batch *batch;  /* NULL before the first step */
	const uint64_t *keys; /* of a gather */
	uint32_t found;       /* out: items in the batch, 0 = the scan is over */
};

/* Checks the arguments of a call. -EINVAL. */
RLV_MUST_CHECK int scan_check(const struct rlv_sampler *sp, uint32_t n, const void *batch_out);

/* Runs the steps of a call that fills call->batch, and hands the batch over. -ENODATA: call->found is 0. */
RLV_MUST_CHECK int scan_run(struct scan_call *call, int (*step)(void *ctx), int64_t timeout_ns);

/* 0: the shard is open. -ENOENT: it is left out. -EHOSTDOWN: it is down, and may come back. */
RLV_MUST_CHECK int scan_reach(const struct scan_call *call, uint32_t s, bool partial);

/* Reads one word of each of the n items of the scratch, at words_off + slot * 8, into out, which lies in the
   scratch. Cost: 1 phase. */
RLV_MUST_CHECK int scan_read_items(struct rlv_sampler *sp, uint64_t words_off, uint64_t *out,
				   uint32_t n);

/* Gathers and verifies the n items of the scratch; those that hold go to the batch. The positions of the others
   stay in scratch.at: *left_out of them. */
RLV_MUST_CHECK int scan_gather(const struct scan_call *call, uint32_t n, uint32_t *left_out);

/* Completes the batch of n items, also with how often they were sampled. Cost: 1 phase if the view counts that. */
RLV_MUST_CHECK int scan_finish(const struct scan_call *call, uint32_t n);

#endif

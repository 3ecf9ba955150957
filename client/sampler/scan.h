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

struct rlv_sampler;

struct scan_block {
	uint64_t age; /* the scan goes from high to low */
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

#endif

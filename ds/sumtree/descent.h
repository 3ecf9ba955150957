/*
 * descent.h - private to ds/sumtree/: moves the draws of one chunk from nodes of the top
 * levels down to leaves.
 *
 *   [ aim: addresses of the children, prefetch | kernel: pick ] x levels
 *
 * Addressable regions are read in place; for others the caller reads each level into a buffer
 * (ds/sumtree/steps.h). The kernels see pointers either way. A draw that the kernel could not
 * settle is handled alone: usually a delta is in progress between two levels. A draw that finds
 * no mass below its node is lost and must restart.
 */
#ifndef RLV_DS_SUMTREE_DESCENT_H
#define RLV_DS_SUMTREE_DESCENT_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/kernel.h"
#include "ds/sumtree/tops.h"

#include "base/error.h"
#include "base/rng.h"

/* Up to this many draws go one by one: kernels and tables only pay for more. */
#define DRAWS_FEW 3u

struct sumtree_descent {
	const struct forest *from; /* trees of one shape, epochs as of now */
	const struct sumtree_tops *tops;
	struct rng *rng;
	const struct sumtree_kernel *kernel;
	bool prefetch;                  /* in place only */
	bool writes;                    /* the caller changes what it draws */
	bool in_copies;                 /* lanes.children point to private copies */
	double per_quantum;             /* 1 / total mass */
	uint32_t n;                     /* draws */
	uint32_t groups;                /* groups of lanes in use */
	uint64_t lost[DRAW_CHUNK / 64]; /* a bit for each lost draw */
	uint32_t shard[DRAW_CHUNK];
	uint64_t inner[TABLE_MAX_SHARDS], leaves[TABLE_MAX_SHARDS]; /* distances, by tree */
	struct draw_lanes lanes;
};

/*
 * Moves draws whose lanes name sums of the topmost private level down to leaves: then lanes.node is
 * the slot, shard its tree, and lanes.word the leaf. Lanes behind the last draw repeat lane 0. All
 * regions are addressable.
 */
void sumtree_descent_run(struct sumtree_descent *down);

/*
 * Moves draws as far down as the private sums go: then lanes.node is a node of the top level of a
 * tree, and shard that tree.
 */
void sumtree_descent_run_private(struct sumtree_descent *down);

/* Sets region, off and len of *io to the children of the node that draw i has on `level`. */
void sumtree_descent_aim(const struct sumtree_descent *down, uint32_t i, uint32_t level,
			 struct transport_io *io);

/* Moves all draws from `level` to the level below; lanes.children of the draws point to copies. */
void sumtree_descent_step(struct sumtree_descent *down, uint32_t level);

static inline void sumtree_descent_lose(struct sumtree_descent *down, uint32_t i)
{
	down->lost[i / 64] |= (uint64_t)1 << i % 64;
	down->lanes.node[i] = 0;
	down->lanes.r[i] = 0;
	down->lanes.expected[i] = UINT64_MAX; /* no kernel settles this value */
}

static inline bool sumtree_descent_is_lost(const struct sumtree_descent *down, uint32_t i)
{
	return down->lost[i / 64] >> i % 64 & 1;
}

#endif

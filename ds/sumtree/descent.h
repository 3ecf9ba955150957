/*
 * descent.h - private to ds/sumtree*.c: draws of one chunk on their way from nodes of the
 * top levels down to leaves.
 *
 *   [ aim: addresses of the children, lines asked for | kernel: pick ] x levels
 *
 * Regions that are addressable are looked at in place; of others the caller reads each level into a
 * buffer (sumtree_steps.h). The kernels see pointers either way. A draw that the kernel could not
 * settle is looked at again alone: most often somebody's deltas are under way between two levels. One
 * that finds nothing left below its node is lost: it must begin again.
 */
#ifndef RLV_DS_SUMTREE_DESCENT_H
#define RLV_DS_SUMTREE_DESCENT_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/kernel.h"

#include "base/error.h"
#include "base/rng.h"

/* So many draws are sooner looked at one by one than by kernels and tables that serve many. */
#define DRAWS_FEW 3u

struct sumtree_descent {
	const struct forest *from; /* trees of one shape, epochs as of now */
	struct rng *rng;
	const struct sumtree_kernel *kernel;
	bool prefetch;                  /* in place only */
	bool in_copies;                 /* lanes.children point to what nobody else changes */
	double per_quantum;             /* 1 / the whole mass */
	uint32_t n;                     /* draws */
	uint32_t groups;                /* of lanes that hold them */
	uint64_t lost[DRAW_CHUNK / 64]; /* a bit for each draw that found nothing */
	uint32_t shard[DRAW_CHUNK];
	double ratio[DRAW_CHUNK]; /* product of expected / found, where they differed */
	struct draw_lanes lanes;
};

/*
 * Takes draws whose lanes name nodes of the top levels down to leaves: lanes.node is the slot then,
 * lanes.word the leaf. Lanes behind the last draw do as lane 0 does. All regions are addressable.
 */
void sumtree_descent_run(struct sumtree_descent *down);

/* Where the children of draw i, which is on `level`, are: region, off and len of *io. */
void sumtree_descent_aim(const struct sumtree_descent *down, uint32_t i, uint32_t level,
			 struct transport_io *io);

/* All draws down from `level` to the next: lanes.children of the draws point to copies. */
void sumtree_descent_step(struct sumtree_descent *down, uint32_t level);

static inline void sumtree_descent_lose(struct sumtree_descent *down, uint32_t i)
{
	down->lost[i / 64] |= (uint64_t)1 << i % 64;
	down->lanes.node[i] = 0;
	down->lanes.r[i] = 0;
	down->lanes.expected[i] = UINT64_MAX; /* so that no kernel settles it */
}

static inline bool sumtree_descent_is_lost(const struct sumtree_descent *down, uint32_t i)
{
	return down->lost[i / 64] >> i % 64 & 1;
}

#endif

/*
 * sumtree_kernel.h - private to ds/sumtree*.c: picks, for a vector of draws, the child that each
 * falls in.
 *
 * One pass takes all draws of a chunk one level down. Of each it knows the node's children,
 * the sum that is expected of them and the remainder r < expected. It adds the children up and finds the last
 * child k whose prefix is <= r; then
 *
 *   node = node * fanout + k, expected = value of k, r -= prefix of k
 *
 * A draw whose children do not add up to what was expected, or of which one is negative, is left as it was and
 * its bit in redo is set: the caller looks at it again, alone. So all variants give the same,
 * and none of them knows about drift.
 */
#ifndef RLV_DS_SUMTREE_KERNEL_H
#define RLV_DS_SUMTREE_KERNEL_H

#include <stdint.h>

#include "base/cpu.h"

#define DRAW_CHUNK 256u
#define DRAW_GROUP 8u /* lanes of the widest variant; chunks are padded to whole groups */

/* Draws under way, an array for each of their properties. */
struct draw_lanes {
	const uint64_t *children[DRAW_CHUNK];
	uint64_t expected[DRAW_CHUNK];
	uint64_t r[DRAW_CHUNK];
	uint64_t node[DRAW_CHUNK];
	uint64_t word[DRAW_CHUNK];             /* out of the last level: the leaf as read */
	uint8_t redo[DRAW_CHUNK / DRAW_GROUP]; /* out: a bit for each lane of a group */
};

/* groups: of 8 lanes. fanout: children of a node, a multiple of 8. */
struct sumtree_kernel {
	void (*inner)(struct draw_lanes *lanes, uint32_t groups, uint32_t fanout);
	void (*leaves)(struct draw_lanes *lanes, uint32_t groups, uint32_t fanout);
};

extern const struct sumtree_kernel sumtree_kernel_plain;
extern const struct sumtree_kernel sumtree_kernel_avx2;
extern const struct sumtree_kernel sumtree_kernel_avx512;

/* The variant for this CPU. Thread: any. */
const struct sumtree_kernel *sumtree_kernel_get(void);

#endif

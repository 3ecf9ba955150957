/*
 * kernel.h - private to ds/sumtree/: picks, for a vector of draws, the child of each draw.
 *
 * A call moves the draws of one group one level down. Each draw has the children of its node,
 * their expected sum and a remainder r < expected. The kernel sums the children and finds the
 * last child k whose prefix is <= r; then
 *
 *   node = node * fanout + k, expected = value of k, r -= prefix of k
 *
 * and prefetches the children of the new node. A draw is left unchanged, and its bit returned,
 * if its children do not sum to expected, if one is negative, or if it lands behind the last
 * node: the caller settles it alone. So all variants give equal results, and none handles drift.
 */
#ifndef RLV_DS_SUMTREE_KERNEL_H
#define RLV_DS_SUMTREE_KERNEL_H

#include <stdint.h>

#include "wire/le.h"

#define DRAW_CHUNK 256u
#define DRAW_GROUP 8u /* lanes of the widest variant; chunks are padded to whole groups */

/* Draws in progress, one array per property. */
struct draw_lanes {
	const uint64_t *children[DRAW_CHUNK];
	uint64_t expected[DRAW_CHUNK];
	uint64_t r[DRAW_CHUNK];
	uint64_t node[DRAW_CHUNK];
	uint64_t word[DRAW_CHUNK]; /* set by the last level: the leaf as read */
	/*
	 * Several trees in place: distance of a lane's inner nodes and leaves from those of the
	 * first tree.
	 */
	uint64_t inner_at[DRAW_CHUNK], leaves_at[DRAW_CHUNK];
};

/* One level down. */
struct draw_step {
	uint32_t fanout; /* children of a node, a multiple of 8 */
	uint32_t limit;  /* nodes of the target level */
	/* Children of the target nodes in the first tree; NULL = the caller finds them. */
	const uint8_t *next_base;
	const uint64_t *next_at; /* distance of the tree of each lane to that; NULL = one tree */
	uint32_t next_bytes;     /* of one node's children */
	uint32_t next_lines;     /* lines of them to prefetch */
};

/* Both return a bit for each of the 8 lanes of the group that the caller must settle. */
struct sumtree_kernel {
	uint32_t (*inner)(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step);
	uint32_t (*leaves)(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step);
};

extern const struct sumtree_kernel sumtree_kernel_plain;
extern const struct sumtree_kernel sumtree_kernel_avx2;
extern const struct sumtree_kernel sumtree_kernel_avx512;

/* The variant for this CPU. Thread: any. */
const struct sumtree_kernel *sumtree_kernel_get(void);

static inline void draw_prefetch(const uint64_t *children, uint32_t lines)
{
	for (uint32_t k = 0; k < lines; k++)
		__builtin_prefetch((const uint8_t *)children + (uint64_t)k * WIRE_LINE);
}

/* Sets the addresses of the children of a group's nodes and prefetches their lines. */
static inline void draw_aim(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	for (uint32_t i = group * DRAW_GROUP; i < (group + 1) * DRAW_GROUP; i++) {
		uintptr_t at = (uintptr_t)step->next_base + lanes->node[i] * step->next_bytes;

		if (step->next_at)
			at += step->next_at[i];
		lanes->children[i] = (const uint64_t *)at;
		draw_prefetch(lanes->children[i], step->next_lines);
	}
}

#endif

/*
 * kernel.h - private to ds/sumtree*.c: picks, for a vector of draws, the child that each
 * falls in.
 *
 * A call takes the draws of one group one level down. Of each it knows the node's children, the sum
 * that is expected of them and the remainder r < expected. It adds the children up and finds the
 * last child k whose prefix is <= r; then
 *
 *   node = node * fanout + k, expected = value of k, r -= prefix of k
 *
 * and asks for the lines of the children's children. A draw whose children do not add up to what
 * was expected, of which one is negative, or which lands behind the last node, is left as it was
 * and its bit is returned: the caller looks at it again, alone. So all variants give the same, and
 * none of them knows about drift.
 */
#ifndef RLV_DS_SUMTREE_KERNEL_H
#define RLV_DS_SUMTREE_KERNEL_H

#include <stdint.h>

#include "wire/le.h"

#define DRAW_CHUNK 256u
#define DRAW_GROUP 8u /* lanes of the widest variant; chunks are padded to whole groups */

/* Draws under way, an array for each of their properties. */
struct draw_lanes {
	const uint64_t *children[DRAW_CHUNK];
	uint64_t expected[DRAW_CHUNK];
	uint64_t r[DRAW_CHUNK];
	uint64_t node[DRAW_CHUNK];
	uint64_t word[DRAW_CHUNK]; /* out of the last level: the leaf as read */
	/* Of several trees in place: how far a lane's inner nodes and leaves are from the first tree's. */
	uint64_t inner_at[DRAW_CHUNK], leaves_at[DRAW_CHUNK];
};

/* A step down. */
struct draw_step {
	uint32_t fanout; /* children of a node, a multiple of 8 */
	uint32_t limit;  /* nodes of the level that is stepped to */
	/* Where their children are, if in the first tree; NULL = the caller finds them. */
	const uint8_t *next_base;
	const uint64_t *next_at; /* of each lane, its tree's distance to that; NULL = one tree */
	uint32_t next_bytes;     /* of one node's children */
	uint32_t next_lines;     /* of them to ask for */
};

/* Both return a bit for each of the group's 8 lanes that needs another look. */
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

/* Fills in where the children of a group's nodes are, and asks for their lines. */
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

/*
 * kernel.h - private to ds/sumtree/: picks, for a vector of draws, the child of each draw.
 *
 * A call moves the draws of one group one level down. Each draw has the children of its node,
 * their expected sum and a remainder r < expected. The kernel sums the children, negative ones as 0.
 * If the sum is not the expected one, the draw is repeated within it (rule 6): r is a fresh random
 * number below the sum, and ratio is multiplied by expected / sum. The last child k whose prefix is
 * <= r is picked; then
 *
 *   node = node * fanout + k, expected = value of k, r -= prefix of k
 *
 * and the children of the new node are prefetched. A draw is left unchanged, and its bit returned,
 * if its children sum to 0, or if it lands behind the last node: the caller settles it alone.
 * Fan-outs other than 8 and 16 leave drift to the caller, too. All variants give equal results.
 */
#ifndef RLV_DS_SUMTREE_KERNEL_H
#define RLV_DS_SUMTREE_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/sumtree_layout.h"

#include "base/os/cpu.h"
#include "base/rng.h"

#define DRAW_CHUNK 256u
#define DRAW_GROUP 8u   /* lanes of the widest variant; chunks are padded to whole groups */
#define SUMS_FANOUT 16u /* words under one private sum */
#define DRAW_FRESH 64u  /* random numbers made at a time */

/* Draws in progress, one array per property. */
struct draw_lanes {
	const uint64_t *children[DRAW_CHUNK];
	uint64_t expected[DRAW_CHUNK];
	uint64_t r[DRAW_CHUNK];
	uint64_t node[DRAW_CHUNK];
	uint64_t word[DRAW_CHUNK]; /* set by the last level: the leaf as read */
	double ratio[DRAW_CHUNK];  /* product of expected / found, where they differ */
	/*
	 * Several trees in place: distance of a lane's inner nodes and leaves from those of the
	 * first tree.
	 */
	uint64_t inner_at[DRAW_CHUNK], leaves_at[DRAW_CHUNK];
	struct rng *rng;
	uint64_t fresh[DRAW_FRESH];
	uint32_t n_fresh; /* not used yet */
	bool drifts[2];   /* a group of inner nodes, or of leaves, has drifted */
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
	bool next_write;         /* prefetched to be written */
};

/* Trees side by side, in place: tree t has the indices t << log2 to (t + 1) << log2. */
struct draw_trees {
	uint32_t log2;
	const uint64_t *inner, *leaves; /* of each tree: distances from those of the first tree */
};

/* All but the last two return a bit for each of the 8 lanes of the group that the caller must settle. */
struct sumtree_kernel {
	uint32_t (*inner)(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step);
	uint32_t (*leaves)(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step);
	/*
	 * Moves a group one level down in private sums, which are exact: nothing is drawn again.
	 * Returns a bit for each draw that it could not move.
	 */
	uint32_t (*sums)(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step);
	/*
	 * Splits node, an index of trees side by side, into tree (shard[] of the group) and node; sets
	 * inner_at and leaves_at by the tree, and the addresses of the children by the step.
	 */
	void (*split)(struct draw_lanes *lanes, uint32_t group, const struct draw_trees *trees,
		      const struct draw_step *step, uint32_t *shard);
	/*
	 * Copies n families of SUMS_FANOUT shared words, negative ones as 0; sums[i]: the sum of
	 * family i.
	 */
	void (*copy)(const uint64_t *from, uint32_t n, uint64_t *to, uint64_t *sums);
};

extern const struct sumtree_kernel sumtree_kernel_plain;
extern const struct sumtree_kernel sumtree_kernel_avx2;
extern const struct sumtree_kernel sumtree_kernel_avx512;

/* Returns the variant of the kernel for this CPU. Thread: any. */
const struct sumtree_kernel *sumtree_kernel_get(void);

/*
 * Returns the mass of a word: the priority of a leaf, or the sum of an inner node, 0 if negative.
 */
static inline uint64_t draw_mass(uint64_t word, bool leaves)
{
	if (leaves)
		return leaf_priority(word);
	return (int64_t)word > 0 ? word : 0;
}

/*
 * Returns a random number for each lane of a group in which a draw drifted; makes DRAW_FRESH at a
 * time.
 */
static inline const uint64_t *draw_fresh(struct draw_lanes *lanes)
{
	if (lanes->n_fresh == 0) {
		rng_fill_u64(lanes->rng, lanes->fresh, DRAW_FRESH);
		lanes->n_fresh = DRAW_FRESH;
	}
	lanes->n_fresh -= DRAW_GROUP;
	return &lanes->fresh[lanes->n_fresh];
}

/*
 * Prefetches the children of a group's nodes, step->next_lines lines of each; without an inner loop
 * for one and two lines.
 */
static inline void draw_prefetch(const struct draw_lanes *lanes, uint32_t group,
				 const struct draw_step *step)
{
	const uint64_t *const *children = &lanes->children[group * DRAW_GROUP];
	const uint32_t line = WIRE_LINE / 8;

	if (step->next_write) {
		for (uint32_t i = 0; i < DRAW_GROUP; i++)
			for (uint32_t k = 0; k < step->next_lines; k++)
				cpu_prefetch_to_write(children[i] + k * line);
	} else if (step->next_lines == 1) {
		for (uint32_t i = 0; i < DRAW_GROUP; i++)
			__builtin_prefetch(children[i]);
	} else if (step->next_lines == 2) {
		for (uint32_t i = 0; i < DRAW_GROUP; i++) {
			__builtin_prefetch(children[i]);
			__builtin_prefetch(children[i] + line);
		}
	} else {
		for (uint32_t i = 0; i < DRAW_GROUP; i++)
			for (uint32_t k = 0; k < step->next_lines; k++)
				__builtin_prefetch(children[i] + k * line);
	}
}

/* Sets the addresses of the children of a group's nodes and prefetches their lines. */
static inline void draw_aim(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	for (uint32_t i = group * DRAW_GROUP; i < (group + 1) * DRAW_GROUP; i++) {
		uintptr_t at = (uintptr_t)step->next_base + lanes->node[i] * step->next_bytes;

		if (step->next_at)
			at += step->next_at[i];
		lanes->children[i] = (const uint64_t *)at;
	}
	draw_prefetch(lanes, group, step);
}

#endif

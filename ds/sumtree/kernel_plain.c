/* Kernel in plain C, for CPUs without vectors and for ThreadSanitizer. */
#include "ds/sumtree/kernel.h"

#include "transport/barrier.h"

#include "wire/sumtree_layout.h"

#include "base/bits.h"

#include <stdbool.h>

#define FANOUT_MOST 16u /* draws of more children are the caller's */

/*
 * Reads child k of a node. V1 pairs with P1: a reader of a published leaf sees its rows (rule 5).
 */
static inline uint64_t load_child(const uint64_t *children, uint32_t k, bool leaves)
{
	const struct rword64 *words = (const struct rword64 *)(const void *)children;

	return leaves ? rword64_load_acquire(&words[k]) : rword64_load_relaxed(&words[k]);
}

/* The children of a draw as read, and their sum. */
struct family {
	const uint64_t *words;
	uint64_t total;
};

/*
 * Moves one lane down to the child that its remainder falls in; false = the children have no mass,
 * or the child is behind the last node: the caller must settle it.
 */
static inline bool pick(struct draw_lanes *lanes, uint32_t i, const struct draw_step *step,
			struct family family, bool leaves)
{
	const uint64_t *words = family.words;
	uint64_t r = lanes->r[i], prefix = 0, below = 0, word = 0, child = 0;
	uint64_t node = lanes->node[i] * step->fanout;

	for (uint32_t k = 0; k < step->fanout; k++) {
		bool here = prefix <= r;

		below = here ? prefix : below;
		word = here ? words[k] : word;
		child = here ? k : child;
		prefix += draw_mass(words[k], leaves);
	}
	node += child;
	if (family.total == 0 || node >= step->limit)
		return false;
	lanes->node[i] = node;
	lanes->r[i] = r - below;
	lanes->expected[i] = draw_mass(word, leaves);
	if (leaves)
		lanes->word[i] = word;
	return true;
}

static inline uint32_t pick_eight(struct draw_lanes *lanes, uint32_t group,
				  const struct draw_step *step, bool leaves)
{
	uint64_t words[DRAW_GROUP][FANOUT_MOST], totals[DRAW_GROUP];
	const uint64_t *fresh = NULL;
	uint32_t redo = 0;

	if (step->fanout > FANOUT_MOST)
		return (1u << DRAW_GROUP) - 1;
	for (uint32_t i = 0; i < DRAW_GROUP; i++) {
		uint32_t lane = group * DRAW_GROUP + i;

		totals[i] = 0;
		for (uint32_t k = 0; k < step->fanout; k++) {
			words[i][k] = load_child(lanes->children[lane], k, leaves);
			totals[i] += draw_mass(words[i][k], leaves);
		}
		if (totals[i] == lanes->expected[lane])
			continue;
		if (!fresh)
			fresh = draw_fresh(lanes);
		if (totals[i] == 0)
			redo |= 1u << i;
	}
	for (uint32_t i = 0; i < DRAW_GROUP; i++) {
		uint32_t lane = group * DRAW_GROUP + i;

		if (redo >> i & 1)
			continue;
		if (totals[i] != lanes->expected[lane]) {
			lanes->ratio[lane] *= (double)lanes->expected[lane] / (double)totals[i];
			lanes->r[lane] = (uint64_t)((unsigned __int128)fresh[i] * totals[i] >> 64);
		}
		if (!pick(lanes, lane, step, (struct family){ words[i], totals[i] }, leaves))
			redo |= 1u << i;
	}
	if (redo == 0 && step->next_base)
		draw_aim(lanes, group, step);
	return redo;
}

static uint32_t pick_inner(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	return pick_eight(lanes, group, step, false);
}

static uint32_t pick_leaves(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	return pick_eight(lanes, group, step, true);
}

static uint32_t pick_sums(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	uint32_t redo = 0;

	for (uint32_t i = group * DRAW_GROUP; i < (group + 1) * DRAW_GROUP; i++)
		if (!pick(lanes, i, step, (struct family){ lanes->children[i], lanes->expected[i] },
			  false))
			redo |= 1u << i % DRAW_GROUP;
	if (redo == 0 && step->next_base)
		draw_aim(lanes, group, step);
	return redo;
}

static void split(struct draw_lanes *lanes, uint32_t group, const struct draw_trees *trees,
		  const struct draw_step *step, uint32_t *shard)
{
	for (uint32_t i = 0, lane = group * DRAW_GROUP; i < DRAW_GROUP; i++, lane++) {
		uint32_t t = (uint32_t)(lanes->node[lane] >> trees->log2);

		shard[i] = t;
		lanes->node[lane] &= bits_mask(trees->log2);
		lanes->inner_at[lane] = trees->inner[t];
		lanes->leaves_at[lane] = trees->leaves[t];
	}
	if (step->next_base)
		draw_aim(lanes, group, step);
}

static void plain_copy(const uint64_t *from, uint32_t n, uint64_t *to, uint64_t *sums)
{
	for (uint32_t i = 0; i < n; i++) {
		sums[i] = 0;
		for (uint32_t k = 0; k < SUMS_FANOUT; k++, from++, to++) {
			*to = draw_mass(load_child(from, 0, false), false);
			sums[i] += *to;
		}
	}
}

const struct sumtree_kernel sumtree_kernel_plain = { pick_inner, pick_leaves, pick_sums, split,
						     plain_copy };

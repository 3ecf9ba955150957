/* Kernel in plain C, for CPUs without vectors and for ThreadSanitizer. */
#include "ds/sumtree/kernel.h"

#include "transport/barrier.h"

#include "wire/sumtree_layout.h"

#include <stdbool.h>

/* Moves one lane down; false = the caller must settle it. */
static inline bool plain_pick(struct draw_lanes *lanes, uint32_t i, const struct draw_step *step,
			      bool leaves)
{
	const struct rword64 *children = (const struct rword64 *)(const void *)lanes->children[i];
	uint64_t r = lanes->r[i], prefix = 0, any = 0;
	uint64_t below = 0, word = 0, node = lanes->node[i] * step->fanout, child = 0;

	for (uint32_t k = 0; k < step->fanout; k++) {
		/* V1 pairs with P1: a reader of a published leaf sees its rows (rule 5). */
		uint64_t w = leaves ? rword64_load_acquire(&children[k])
				    : rword64_load_relaxed(&children[k]);
		bool here = prefix <= r;

		below = here ? prefix : below;
		word = here ? w : word;
		child = here ? k : child;
		any |= w;
		prefix += leaves ? leaf_priority(w) : w;
	}
	node += child;
	if (prefix != lanes->expected[i] || (!leaves && (int64_t)any < 0) || node >= step->limit)
		return false;
	lanes->node[i] = node;
	lanes->r[i] = r - below;
	lanes->expected[i] = leaves ? leaf_priority(word) : word;
	if (leaves)
		lanes->word[i] = word;
	return true;
}

static inline uint32_t pick_eight(struct draw_lanes *lanes, uint32_t group,
				  const struct draw_step *step, bool leaves)
{
	uint32_t redo = 0;

	for (uint32_t i = 0; i < DRAW_GROUP; i++)
		if (!plain_pick(lanes, group * DRAW_GROUP + i, step, leaves))
			redo |= 1u << i;
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

const struct sumtree_kernel sumtree_kernel_plain = { pick_inner, pick_leaves };

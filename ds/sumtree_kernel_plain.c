/* The picks in plain C, for CPUs without vectors and for ThreadSanitizer. */
#include "ds/sumtree_kernel.h"

#include "transport/barrier.h"

#include "wire/sumtree_layout.h"

#include <stdbool.h>

/* Takes one lane down; false = it needs another look. */
static inline bool pick(struct draw_lanes *lanes, uint32_t i, uint32_t fanout, bool leaves)
{
	const struct rword64 *children = (const struct rword64 *)(const void *)lanes->children[i];
	uint64_t r = lanes->r[i], prefix = 0, any = 0;
	uint64_t below = 0, word = 0, child = 0;

	for (uint32_t k = 0; k < fanout; k++) {
		/* A leaf's row is visible to whoever saw the leaf published: A1 of rule 5. */
		uint64_t w = leaves ? rword64_load_acquire(&children[k])
				    : rword64_load_relaxed(&children[k]);
		bool here = prefix <= r;

		below = here ? prefix : below;
		word = here ? w : word;
		child = here ? k : child;
		any |= w;
		prefix += leaves ? leaf_priority(w) : w;
	}
	if (prefix != lanes->expected[i] || (!leaves && (int64_t)any < 0))
		return false;
	lanes->node[i] = lanes->node[i] * fanout + child;
	lanes->r[i] = r - below;
	lanes->expected[i] = leaves ? leaf_priority(word) : word;
	if (leaves)
		lanes->word[i] = word;
	return true;
}

static inline void pick_all(struct draw_lanes *lanes, uint32_t groups, uint32_t fanout, bool leaves)
{
	for (uint32_t g = 0; g < groups; g++) {
		uint8_t redo = 0;

		for (uint32_t i = 0; i < DRAW_GROUP; i++)
			if (!pick(lanes, g * DRAW_GROUP + i, fanout, leaves))
				redo |= (uint8_t)(1u << i);
		lanes->redo[g] = redo;
	}
}

static void pick_inner(struct draw_lanes *lanes, uint32_t groups, uint32_t fanout)
{
	pick_all(lanes, groups, fanout, false);
}

static void pick_leaves(struct draw_lanes *lanes, uint32_t groups, uint32_t fanout)
{
	pick_all(lanes, groups, fanout, true);
}

const struct sumtree_kernel sumtree_kernel_plain = { pick_inner, pick_leaves };

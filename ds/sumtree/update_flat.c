/*
 * An update of the leaves of many trees in one pass, in the usual case: a loop for each of 64 trees, over
 * its four leaves, would wait longer for branches than for the leaves.
 */
#include "ds/sumtree/sumtree.h"

#include "ds/sumtree/change.h"
#include "ds/sumtree/deferred.h"
#include "ds/sumtree/kernel.h"
#include "ds/sumtree/nodes.h"
#include "ds/sumtree/tops.h"

#include "transport/barrier.h"

#include "base/bits.h"

#define AHEAD 8u /* leaves prefetched ahead of the change */

bool sumtree_enter_flat(struct tree_deltas *deltas, uint32_t tree, const struct epoch *ep)
{
	if (!deltas->flat || tree >= deltas->tops->n_trees)
		return false;
	deltas->tops->trees[tree].steady = steady_tag(ep);
	return true;
}

static inline const struct rword64 *flat_leaf(const struct sumtree_tops *tops,
					      const struct leaf_op *op)
{
	const uint8_t *leaf = tops->trees[op->tree].leaves + (uint64_t)op->slot * 8;

	return (const struct rword64 *)(const void *)leaf;
}

/* Stops at the first op that is not of the usual case; returns the number done. */
static uint32_t update_steadily(const struct sumtree *like, struct tree_deltas *deltas,
				struct leaf_op *ops, uint32_t n)
{
	const struct sumtree_tops *tops = deltas->tops;
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct leaf_op *op = &ops[i];
		uint32_t steady = tops->trees[op->tree].steady;
		uint64_t found = op->word, wanted, priority;

		if (i + AHEAD < n && like->prefetchw)
			draw_prefetch_to_write(flat_leaf(tops, &ops[i + AHEAD]));
		priority = max_u64(1, min_u64(op->priority, like->max_prio));
		wanted = leaf_make(steady, op->gen, priority);
		if (leaf_tag(found) != steady || op->slot >= like->geo.leaves ||
		    !word_fits(CHANGE_UPDATE, op, found) ||
		    !rword64_cas(flat_leaf(tops, op), &found, wanted))
			break;
		op->result = LEAF_DONE;
		tree_deltas_add(&deltas->side[steady & 1],
				(op->tree << tops->flat_log2) + node_parent(like, 0, op->slot),
				(int64_t)(priority - leaf_priority(found)));
	}
	return i;
}

size_t sumtree_update_flat(const struct sumtree *tree, struct tree_deltas *deltas,
			   struct leaf_op *ops, size_t n)
{
	size_t done = 0;
	uint32_t now = 0, steadily = 0;

	while (steadily == now && done < n) {
		now = (uint32_t)min_u64(n - done, TRANSPORT_VECTOR);
		if (tree_deltas_reserve(tree, deltas, now))
			break;
		steadily = update_steadily(tree, deltas, ops + done, now);
		done += steadily;
	}
	return done;
}

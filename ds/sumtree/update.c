/*
 * Updates of leaves in the usual case: each has a tag of our epoch, and is as it was seen. Of one tree, or of
 * many in one pass: a loop for each of 64 trees, over its four leaves, would wait longer for branches than for
 * the leaves.
 */
#include "ds/sumtree/sumtree.h"

#include "ds/sumtree/change.h"
#include "ds/sumtree/deferred.h"
#include "ds/sumtree/kernel.h"
#include "ds/sumtree/nodes.h"
#include "ds/sumtree/tops.h"

#include "transport/barrier.h"

#include "base/bits.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define AHEAD 8u /* leaves prefetched ahead of the change */

bool sumtree_enter_flat(struct tree_deltas *deltas, uint32_t tree, const struct epoch *ep)
{
	if (!deltas->flat || tree >= deltas->tops->n_trees)
		return false;
	deltas->tops->trees[tree].steady = steady_tag(ep);
	return true;
}

static inline const struct rword64 *op_leaf(struct change c, bool flat, const struct leaf_op *op)
{
	const uint8_t *leaves;

	if (!flat)
		return leaf_at(c.tree, op->slot);
	leaves = c.deltas->tops->trees[op->tree].leaves;
	return (const struct rword64 *)(const void *)leaves + op->slot;
}

/*
 * Stops at the first op that is not of the usual case; returns the number done. flat, a constant: the ops name
 * their trees, which have one geometry and the tags that sumtree_enter_flat set.
 */
ALWAYS_INLINE uint32_t update_steadily(struct change c, bool flat, struct leaf_op *ops, uint32_t n)
{
	const struct sumtree *tree = c.tree;
	const struct sumtree_tops *tops = c.deltas->tops;
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct leaf_op *op = &ops[i];
		uint32_t steady = flat ? tops->trees[op->tree].steady : c.steady;
		uint32_t first = flat ? op->tree << tops->flat_log2 : tree->flat;
		uint64_t found = op->word, wanted, priority;

		if (i + AHEAD < n && tree->prefetchw)
			cpu_prefetch_to_write(op_leaf(c, flat, &ops[i + AHEAD]));
		priority = max_u64(1, min_u64(op->priority, tree->max_prio));
		wanted = leaf_make(steady, op->gen, priority);
		if (leaf_tag(found) != steady || (flat && op->slot >= tree->geo.leaves) ||
		    !word_fits(CHANGE_UPDATE, op, found) ||
		    !rword64_cas(op_leaf(c, flat, op), &found, wanted))
			break;
		op->result = LEAF_DONE;
		tree_deltas_add(&c.deltas->side[steady & 1], first + node_parent(tree, 0, op->slot),
				(int64_t)(priority - leaf_priority(found)));
	}
	return i;
}

uint32_t sumtree_update_steadily(const struct change *c, struct leaf_op *ops, uint32_t n)
{
	return update_steadily(*c, false, ops, n);
}

size_t sumtree_update_flat(const struct sumtree *tree, struct tree_deltas *deltas,
			   struct leaf_op *ops, size_t n)
{
	const struct change c = { .tree = tree, .deltas = deltas };
	size_t done = 0;
	uint32_t now = 0, steadily = 0;

	while (steadily == now && done < n) {
		now = (uint32_t)min_u64(n - done, TRANSPORT_VECTOR);
		if (tree_deltas_reserve(tree, deltas, now))
			break;
		steadily = update_steadily(c, true, ops + done, now);
		done += steadily;
	}
	return done;
}

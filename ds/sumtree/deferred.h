/*
 * deferred.h - private to ds/sumtree/: changes of leaves that are not yet in the sums above
 * them.
 *
 *   leaf CAS -> list of {level-1 node, sum}  one for each inner array, adjacent nodes combined
 *            -> flush: FAA each node, combine to parents, FAA, ... and to the owner's tops
 *
 * Nothing is held over calls: a draw that reads private sums (ds/sumtree/tops.h) gains nothing from
 * it, and others would learn of the changes later.
 */
#ifndef RLV_DS_SUMTREE_DEFERRED_H
#define RLV_DS_SUMTREE_DEFERRED_H

#include "ds/sumtree/sumtree.h"
#include "ds/part/wr_list.h"

#include "transport/transport.h"

#include <stdbool.h>
#include <stdint.h>

#define DELTA_MAX 1024u /* entries of a list; applied when another vector does not fit */

/* Level-1 nodes and their deltas, in the order of the changes. */
struct delta_list {
	uint32_t n;
	bool unsorted;
	uint32_t node[DELTA_MAX];
	int64_t sum[DELTA_MAX];
};

/* Deltas of one inner array. */
struct delta_side {
	struct delta_list list;
	int64_t size; /* change of the number of live leaves */
};

/* A run of deltas of one level, in ascending order of nodes. */
struct delta_run {
	uint32_t *node;
	int64_t *sum;
	uint32_t n;
};

struct tree_deltas {
	struct wr_list *sink; /* additions are appended to this chain, unsent; NULL = in place */
	struct sumtree_tops *tops; /* additions are shown to these private sums, or NULL */
	uint32_t users;            /* accesses that share them */
	bool flat; /* nodes of the lists have the numbers of all trees of the tops */
	struct delta_side side[2];

	/* Scratch memory of the calls, too large for the stack: 256 ops are 12 KiB. */
	struct leaf_op ops[TRANSPORT_VECTOR];
	uint32_t sorted_node[DELTA_MAX];
	int64_t sorted_sum[DELTA_MAX];
	const struct rword64 *words[DELTA_MAX];
};

/* True if there is nothing to flush. */
static inline bool tree_deltas_are_none(const struct tree_deltas *deltas)
{
	const struct delta_side *side = deltas->side;

	return (side[0].list.n | side[1].list.n) == 0 && (side[0].size | side[1].size) == 0;
}

/*
 * Makes room in both lists for n more changes, n <= TRANSPORT_VECTOR: a full list is added to the
 * sums. -ENOTSUP: words not changeable in place, and no sink; -ECHILD: after a fork.
 */
RLV_MUST_CHECK int tree_deltas_reserve(const struct sumtree *tree, struct tree_deltas *deltas,
				       uint32_t n);

/* Adds the change of a level-1 node to the list of a side; room was reserved. */
static inline void tree_deltas_add(struct delta_side *side, uint32_t node, int64_t sum)
{
	struct delta_list *list = &side->list;
	uint32_t last = list->n ? list->node[list->n - 1] : 0;

	if (list->n && node == last) {
		list->sum[list->n - 1] += sum;
		return;
	}
	list->unsorted |= node < last;
	list->node[list->n] = node;
	list->sum[list->n++] = sum;
}

#endif

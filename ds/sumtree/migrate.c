#include "ds/sumtree/migrate.h"

#include "transport/transport.h"

#include "wire/ring_layout.h"
#include "wire/sumtree_layout.h"

#include "base/bits.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#define NO_NODE UINT32_MAX

/*
 * Running sums: each level has one open node. When the walk leaves it, its sum is added to the
 * array and to the open node above.
 */
struct walk {
	const struct sumtree *tree;
	struct migrate_counts *counts;
	uint32_t epoch;     /* e: leaves go to e+1 */
	uint64_t array_off; /* arr[e+1] */
	uint64_t sum[TREE_MAX_LEVELS + 1];
	uint32_t node[TREE_MAX_LEVELS + 1];
	uint64_t live;
	uint64_t max;
	size_t n_adds;
	struct transport_atomic adds[TRANSPORT_VECTOR];
};

static int make_additions(struct walk *walk)
{
	int rc = transport_faa(walk->tree->region->tr, walk->adds, walk->n_adds);

	for (size_t i = 0; !rc && i < walk->n_adds; i++)
		walk->counts->lost_answers += walk->adds[i].status != ATOMIC_DONE;
	walk->n_adds = 0;
	return rc;
}

static int post_addition(struct walk *walk, uint64_t off, uint64_t value)
{
	walk->adds[walk->n_adds++] = (struct transport_atomic){ .region = walk->tree->region,
								.off = off,
								.value = value };
	return walk->n_adds == TRANSPORT_VECTOR ? make_additions(walk) : 0;
}

/*
 * Adds value to a node of a level, which becomes the level's open node. If another one was open,
 * its sum is added to the array, and in the same way to its parent. NO_NODE: only closes the open
 * one.
 */
static int add_to_node(struct walk *walk, uint32_t level, uint32_t node, uint64_t value)
{
	for (;; level++) {
		uint64_t sum = walk->sum[level];
		uint32_t before = walk->node[level];
		int rc;

		walk->node[level] = node;
		if (before == node || !sum) {
			walk->sum[level] += value;
			return 0;
		}
		walk->sum[level] = value;
		rc = post_addition(
			walk, walk->array_off + walk->tree->level_off[level] + before * 8ull, sum);
		if (rc || level == walk->tree->geo.levels)
			return rc;
		node = before / walk->tree->geo.fanout[level];
		value = sum;
	}
}

/*
 * Tries once to move the leaves of words[] that lack the new tag. Leaves that changed meanwhile
 * keep the word found, for the next try; *left_out: their number. A tag of no current epoch is
 * damage; no client can hold a delta for it, so it is moved on like any other.
 */
static int try_migrate(struct walk *walk, uint32_t first, uint64_t *words, uint32_t n,
		       uint32_t *left_out)
{
	uint32_t from = walk->epoch & 3u, to = (from + 1) & 3u;
	struct transport_atomic ops[TRANSPORT_VECTOR];
	uint32_t which[TRANSPORT_VECTOR], n_ops = 0, fanout = walk->tree->geo.fanout[0];
	int rc;

	*left_out = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t word = words[i];

		if (leaf_tag(word) == to) { /* moved by a client, or here */
			walk->max = max_u64(walk->max, leaf_priority(word));
			continue;
		}
		which[n_ops] = i;
		ops[n_ops++] = (struct transport_atomic){
			.region = walk->tree->region,
			.off = walk->tree->leaves_off + (first + i) * 8ull,
			.expected = word,
			.value = leaf_make(to, leaf_gen(word), leaf_priority(word)),
		};
	}
	rc = transport_cas(walk->tree->region->tr, ops, n_ops);
	for (uint32_t i = 0; !rc && i < n_ops; i++) {
		bool answered = ops[i].status == ATOMIC_DONE;
		uint64_t priority = leaf_priority(ops[i].old);

		if (answered && ops[i].old == ops[i].expected) {
			words[which[i]] = ops[i].value;
			walk->counts->repaired_tags += leaf_tag(ops[i].old) != from;
			walk->live += priority != 0;
			walk->max = max_u64(walk->max, priority);
			if (priority)
				rc = add_to_node(walk, 1, (first + which[i]) / fanout, priority);
			continue;
		}
		/* No answer: retry from the known word; the CAS may have succeeded or not. */
		walk->counts->lost_answers += !answered;
		words[which[i]] = answered ? ops[i].old : ops[i].expected;
		(*left_out)++;
	}
	return rc;
}

int sumtree_migrate(struct shard *shard, uint32_t view, uint32_t epoch,
		    struct migrate_counts *counts)
{
	const struct sumtree *tree = &shard->trees[view];
	struct walk walk = { .tree = tree,
			     .counts = counts,
			     .epoch = epoch,
			     .array_off = tree->inner_off[(epoch + 1) & 1] };
	uint64_t before, old,
		max_off = shard->desc.views[view].words_off +
			  offsetof(struct view_words, max_priority);
	int rc = transport_load(tree->region, max_off, &before);

	for (uint32_t first = 0; !rc && first < tree->geo.leaves; first += TRANSPORT_VECTOR) {
		uint32_t n = (uint32_t)min_u64(tree->geo.leaves - first, TRANSPORT_VECTOR);
		uint64_t words[TRANSPORT_VECTOR] = { 0 };

		rc = transport_fetch(tree->region, tree->leaves_off + first * 8ull, words, n * 8);
		for (uint32_t left = n; !rc && left;)
			rc = try_migrate(&walk, first, words, n, &left);
	}
	for (uint32_t level = 1; !rc && level <= tree->geo.levels; level++)
		rc = add_to_node(&walk, level, NO_NODE, 0);
	if (!rc && walk.live)
		rc = post_addition(&walk, walk.array_off, walk.live); /* the size word */
	if (!rc)
		rc = make_additions(&walk);
	/*
	 * Lowers the running maximum to the largest live leaf, unless a client raises it meanwhile.
	 * An empty view keeps its maximum. No answer: both values are a valid maximum.
	 */
	if (!rc && walk.max && walk.max < before) {
		rc = transport_cas_word(tree->region, max_off, before, walk.max, &old);
		rc = rc == -EIO ? 0 : rc;
	}
	counts->live_leaves += walk.live;
	return rc;
}

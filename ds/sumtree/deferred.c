/* Turns deltas of leaves into FAAs of their ancestors; see ds/sumtree/deferred.h. */
#include "ds/sumtree/deferred.h"

#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/kernel.h"
#include "ds/sumtree/nodes.h"
#include "ds/sumtree/tops.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/sumtree_layout.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>

#define AHEAD 8u /* lines prefetched ahead of the write */
#define RADIX_BITS 8u

/* -------- open and close -------- */

int tree_deltas_open(struct tree_deltas **deltas_out)
{
	*deltas_out = mem_zalloc(sizeof(**deltas_out));
	if (!*deltas_out)
		return error_set(-ENOMEM, "sum tree deltas: cannot allocate %zu bytes",
				 sizeof(**deltas_out));
	(*deltas_out)->users = 1;
	return 0;
}

struct tree_deltas *tree_deltas_share(struct tree_deltas *deltas)
{
	deltas->users++;
	return deltas;
}

void tree_deltas_close(struct tree_deltas **deltas)
{
	if (deltas && *deltas && --(*deltas)->users == 0)
		mem_free(*deltas);
	if (deltas)
		*deltas = NULL;
}

void tree_deltas_show(struct tree_deltas *deltas, struct sumtree *tree, struct sumtree_tops *tops,
		      uint32_t t)
{
	deltas->tops = tops;
	deltas->flat = deltas->users > 1 && tops && tops->from && tops->flat_log2;
	tree->number = t;
	tree->flat = deltas->flat ? t << tops->flat_log2 : 0;
}

/* -------- FAAs -------- */

static struct rword64 *word_at(const struct sumtree *tree, uint64_t off)
{
	return (struct rword64 *)(void *)(tree->region->base + off);
}

/*
 * Adds value to the word at off: in place or, with a sink, by the chain that the access sends next.
 * 0: does nothing.
 */
static int add_word(const struct sumtree *tree, struct tree_deltas *deltas, uint64_t off,
		    int64_t value)
{
	struct wr_list *sink = deltas->sink;
	int ret;

	if (value == 0)
		return 0;
	if (!sink) {
		rword64_add(word_at(tree, off), (uint64_t)value);
		return 0;
	}
	ret = wr_list_reserve(sink, sink->n + 1);
	if (ret)
		return ret;
	*wr_list_add(sink, NOTE_SUM) = wr_add(tree->region, off, (uint64_t)value);
	return 0;
}

/* -------- combining -------- */

/*
 * Replaces the nodes of a run by their parents and adds up neighbours with the same parent, in
 * place, without unpredictable branches. recip: the reciprocal of the fan-out (nodes.h).
 */
static inline void deferred_combine(struct delta_run *run, uint64_t recip)
{
	uint32_t last = (uint32_t)(run->node[0] * recip >> NODE_RECIP_SHIFT), k = 0;
	int64_t sum = 0;

	for (uint32_t i = 0; i < run->n; i++) {
		uint32_t node = (uint32_t)(run->node[i] * recip >> NODE_RECIP_SHIFT);

		k += node != last;
		sum = (node == last ? sum : 0) + run->sum[i];
		run->node[k] = node;
		run->sum[k] = sum;
		last = node;
	}
	run->n = k + 1;
}

/*
 * Sorts the run by node, of `nodes` on the level (radix sort); *run then names the buffer of the
 * two that holds the result.
 */
static void sort_run(struct delta_run *run, struct tree_deltas *deltas, uint32_t nodes)
{
	struct delta_run to = { deltas->sorted_node, deltas->sorted_sum, run->n };
	const uint32_t node_bits = 32, mask = (1u << RADIX_BITS) - 1;

	for (uint32_t shift = 0; shift < node_bits && nodes >> shift; shift += RADIX_BITS) {
		uint32_t at[1u << RADIX_BITS] = { 0 }, sum = 0;
		struct delta_run from = *run;

		for (uint32_t i = 0; i < from.n; i++)
			at[from.node[i] >> shift & mask]++;
		for (uint32_t d = 0; d <= mask; d++) {
			uint32_t n = at[d];

			at[d] = sum;
			sum += n;
		}
		for (uint32_t i = 0; i < from.n; i++) {
			uint32_t to_idx = at[from.node[i] >> shift & mask]++;

			to.node[to_idx] = from.node[i];
			to.sum[to_idx] = from.sum[i];
		}
		*run = to;
		to = from;
	}
}

/* -------- applying -------- */

/*
 * Adds the run to the nodes of a level, whose first word is at off: in place, or by the chain
 * deltas->sink. Kept minimal in place: the locked instructions dominate a flush.
 */
static int add_level(const struct sumtree *tree, struct tree_deltas *deltas, uint64_t off,
		     const struct delta_run *run)
{
	const struct rword64 *words;
	int ret = 0;

	if (deltas->sink) {
		for (uint32_t i = 0; ret == 0 && i < run->n; i++)
			ret = add_word(tree, deltas, off + (uint64_t)run->node[i] * 8, run->sum[i]);
		return ret;
	}
	words = word_at(tree, off);
	for (uint32_t i = 0; i < run->n; i++) {
		if (i + AHEAD < run->n && tree->prefetchw)
			cpu_prefetch_to_write(&words[run->node[i + AHEAD]]);
		if (run->sum[i] != 0)
			rword64_add(&words[run->node[i]], (uint64_t)run->sum[i]);
	}
	return 0;
}

/* A level of an inner array: where its first word is, and 2^log2 numbers for each tree. */
struct flat_level {
	uint32_t parity, log2;
	uint64_t off;
};

static inline const struct rword64 *flat_word(const struct sumtree_tops *tops,
					      const struct flat_level *level, uint32_t node)
{
	const uint8_t *words = tops->trees[node >> level->log2].inner[level->parity] + level->off;

	return (const struct rword64 *)(const void *)words + (node & bits_mask(level->log2));
}

/*
 * As add_level, in place, for flat nodes: the lines of the next trees arrive meanwhile. Finds the words of
 * all nodes first: what follows a locked instruction waits for it. words: room for them.
 */
static void add_flat(const struct sumtree_tops *tops, const struct flat_level *level,
		     const struct delta_run *run, const struct rword64 **words)
{
	bool prefetchw = tops->from->trees[0].prefetchw;

	for (uint32_t i = 0; i < run->n; i++)
		words[i] = flat_word(tops, level, run->node[i]);
	for (uint32_t i = 0; i < run->n; i++) {
		if (i + AHEAD < run->n && prefetchw)
			cpu_prefetch_to_write(words[i + AHEAD]);
		if (run->sum[i] != 0)
			rword64_add(words[i], (uint64_t)run->sum[i]);
	}
}

/* Adds a run of flat level-1 nodes to the sums of all levels of all trees, and to the private tops. */
static void apply_flat(const struct sumtree *tree, struct tree_deltas *deltas, uint32_t parity,
		       struct delta_run *run)
{
	struct sumtree_tops *tops = deltas->tops;
	struct flat_level level = { .parity = parity, .log2 = tops->flat_log2 };

	for (uint32_t l = 1; l <= tree->geo.levels; l++) {
		if (l > 1) {
			deferred_combine(run, tree->recip[l - 1]);
			level.log2 -= bits_log2_floor(tree->geo.fanout[l - 1]);
		}
		level.off = tree->level_off[l];
		add_flat(tops, &level, run, deltas->words);
	}
	sumtree_tops_add_flat(tops, parity, run);
}

/*
 * Adds the deltas of the inner array of that parity to the sums of all levels, and empties their
 * list.
 */
static int apply_list(const struct sumtree *tree, struct tree_deltas *deltas, uint32_t parity)
{
	struct delta_list *list = &deltas->side[parity].list;
	struct delta_run run = { list->node, list->sum, list->n };
	int ret = 0;

	if (list->n == 0)
		return 0;
	if (list->unsorted) {
		sort_run(&run, deltas, deltas->flat ? UINT32_MAX : tree->nodes[1]);
		deferred_combine(&run, (uint64_t)1 << NODE_RECIP_SHIFT);
	}
	list->n = 0;
	list->unsorted = false;
	if (deltas->flat) {
		apply_flat(tree, deltas, parity, &run);
		return 0;
	}
	for (uint32_t l = 1; ret == 0 && l <= tree->geo.levels; l++) {
		if (l > 1)
			deferred_combine(&run, tree->recip[l - 1]);
		ret = add_level(tree, deltas, tree->inner_off[parity] + tree->level_off[l], &run);
	}
	if (ret == 0 && deltas->tops)
		sumtree_tops_add(deltas->tops, tree->number, parity, &run);
	return ret;
}

static int begin_changes(const struct sumtree *tree, const struct tree_deltas *deltas)
{
	if (deltas->sink)
		return 0;
	if (!transport_changes_in_place(tree->region))
		return error_set(
			-ENOTSUP,
			"sum tree: deferred deltas need words that can be changed in place");
	if (transport_is_forked(tree->region->tr))
		return error_set(-ECHILD,
				 "sum tree: opened before fork(): open it again in the child");
	return 0;
}

int tree_deltas_reserve(const struct sumtree *tree, struct tree_deltas *deltas, uint32_t n)
{
	int ret = begin_changes(tree, deltas);

	for (uint32_t p = 0; ret == 0 && p < 2; p++)
		if (deltas->side[p].list.n + n > DELTA_MAX)
			ret = apply_list(tree, deltas, p);
	return ret;
}

/* Adds what the deltas count of the tree's live leaves to its size words. */
static int apply_sizes(const struct sumtree *tree, struct tree_deltas *deltas)
{
	int ret = 0;

	for (uint32_t p = 0; p < 2; p++) {
		int64_t size = deltas->side[p].size;
		int err = size ? add_word(tree, deltas, node_size_off(tree, p), size) : 0;

		deltas->side[p].size = 0;
		ret = ret ? ret : err;
	}
	return ret;
}

int sumtree_flush(const struct sumtree *tree, struct tree_deltas *deltas)
{
	int ret = begin_changes(tree, deltas), first = 0;

	for (uint32_t p = 0; ret == 0 && p < 2; p++) {
		int err = apply_list(tree, deltas, p);

		first = first ? first : err;
	}
	if (ret == 0)
		ret = apply_sizes(tree, deltas);
	return first ? first : ret;
}

int sumtree_end_tree(const struct sumtree *tree, struct tree_deltas *deltas)
{
	return deltas->flat ? apply_sizes(tree, deltas) : sumtree_flush(tree, deltas);
}

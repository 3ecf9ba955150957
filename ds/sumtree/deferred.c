/* Turns deltas of leaves into FAAs of their ancestors; see ds/sumtree/deferred.h. */
#include "ds/sumtree/deferred.h"

#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/nodes.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/sumtree_layout.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>

#define AHEAD 8u /* lines prefetched ahead of the write */
#define RADIX_BITS 8u

/* -------- open and close -------- */

static int open_dense(struct delta_side *side, uint32_t nodes)
{
	side->dense = mem_array(nodes, sizeof(*side->dense));
	side->dirty = mem_array(div_up(nodes, 64), sizeof(*side->dirty));
	return side->dense && side->dirty ? 0 : -ENOMEM;
}

int tree_deltas_open(const struct sumtree *tree, const struct tree_deltas_opts *opts,
		     struct tree_deltas **deltas_out)
{
	struct tree_deltas *deltas = mem_zalloc(sizeof(*deltas));
	uint32_t nodes;

	if (!deltas)
		return error_set(-ENOMEM, "sum tree deltas: cannot allocate %zu bytes",
				 sizeof(*deltas));
	if (opts)
		deltas->opts = *opts;
	if (deltas->opts.defer_calls > 1) {
		deltas->dense_level = 1;
		while (tree->nodes[deltas->dense_level] > DENSE_MAX)
			deltas->dense_level++;
		nodes = tree->nodes[deltas->dense_level];
		if (open_dense(&deltas->side[0], nodes) || open_dense(&deltas->side[1], nodes)) {
			tree_deltas_close(&deltas);
			return error_set(-ENOMEM, "sum tree deltas: %u nodes are too many", nodes);
		}
	}
	*deltas_out = deltas;
	return 0;
}

void tree_deltas_close(struct tree_deltas **deltas)
{
	if (!deltas || !*deltas)
		return;
	for (int p = 0; p < 2; p++) {
		mem_free((*deltas)->side[p].dense);
		mem_free((*deltas)->side[p].dirty);
	}
	mem_free(*deltas);
	*deltas = NULL;
}

static bool side_is_empty(const struct delta_side *side)
{
	return side->list.n == 0 && side->size == 0 && !side->held;
}

bool tree_deltas_empty(const struct tree_deltas *deltas)
{
	return side_is_empty(&deltas->side[0]) && side_is_empty(&deltas->side[1]);
}

/* -------- FAAs -------- */

static struct rword64 *word_at(const struct sumtree *tree, uint64_t off)
{
	return (struct rword64 *)(void *)(tree->region->base + off);
}

/* Adds in place, or to the chain that the access sends next. */
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
	*wr_list_add(sink, NOTE_SUM) = (struct transport_wr){
		.verb = VERB_FAA,
		.atomic = { .region = tree->region, .off = off, .value = (uint64_t)value },
	};
	return 0;
}

/* -------- combining -------- */

/* A run of deltas of one level, in ascending order of nodes. */
struct delta_run {
	uint32_t *node;
	int64_t *sum;
	uint32_t n;
};

/*
 * Replaces nodes by their parents, recip being that of the fan-out, and combines neighbours of the
 * same node, in place, without unpredictable branches.
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

/* Levels from <= l < end. */
struct level_range {
	uint32_t from, end;
};

/* Radix sort; *run then names the buffer of the two that holds the result. */
static void sort_run(struct delta_run *run, struct tree_deltas *deltas, uint32_t nodes)
{
	struct delta_run to = { deltas->sorted_node, deltas->sorted_sum, run->n };
	const uint32_t node_bits = 24, mask = (1u << RADIX_BITS) - 1;

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
 * Adds the run to the nodes of a level, whose first word is at off. Kept minimal in place: the
 * locked instructions dominate a flush.
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
		if (i + AHEAD < run->n)
			__builtin_prefetch(&words[run->node[i + AHEAD]], 1);
		if (run->sum[i] != 0)
			rword64_add(&words[run->node[i]], (uint64_t)run->sum[i]);
	}
	return 0;
}

/* Adds the run to a range of levels; leaves it at level range.end, if the tree has one. */
static int apply_levels(const struct sumtree *tree, struct tree_deltas *deltas, uint64_t inner_off,
			struct level_range range, struct delta_run *run)
{
	int ret = 0;

	for (uint32_t l = range.from; ret == 0 && l < range.end; l++) {
		ret = add_level(tree, deltas, inner_off + tree->level_off[l], run);
		if (l < tree->geo.levels)
			deferred_combine(run, tree->recip[l]);
	}
	return ret;
}

/* Adds the list to all levels, or to the levels that are not held. */
static int apply_list(const struct sumtree *tree, struct tree_deltas *deltas, uint32_t parity)
{
	struct delta_side *side = &deltas->side[parity];
	struct delta_list *list = &side->list;
	struct delta_run run = { list->node, list->sum, list->n };
	struct level_range range = { 1, tree->geo.levels + 1 };
	int ret;

	if (list->n == 0)
		return 0;
	if (list->unsorted) {
		sort_run(&run, deltas, tree->nodes[1]);
		deferred_combine(&run, (uint64_t)1 << NODE_RECIP_SHIFT);
	}
	list->n = 0;
	list->unsorted = false;
	if (deltas->dense_level)
		range.end = deltas->dense_level;
	ret = apply_levels(tree, deltas, tree->inner_off[parity], range, &run);
	if (ret || !deltas->dense_level)
		return ret;
	for (uint32_t i = 0; i < run.n; i++) {
		uint32_t node = run.node[i];

		side->dense[node] += run.sum[i];
		side->dirty[node / 64] |= (uint64_t)1 << node % 64;
	}
	side->held = true;
	return 0;
}

/* Adds the held deltas, as many at a time as fit into the scratch run. */
static int apply_held(const struct sumtree *tree, struct tree_deltas *deltas, uint32_t parity)
{
	struct delta_side *side = &deltas->side[parity];
	struct delta_run run = { deltas->sorted_node, deltas->sorted_sum, 0 };
	struct level_range range = { deltas->dense_level, tree->geo.levels + 1 };
	uint32_t words = (uint32_t)div_up(tree->nodes[deltas->dense_level], 64);
	int ret = 0;

	for (uint32_t w = 0; side->held && w < words;) {
		for (run.n = 0; w < words && run.n + 64 <= DELTA_MAX; w++) {
			for (uint64_t bits = side->dirty[w]; bits; bits &= bits - 1) {
				uint32_t node = w * 64 + bits_ctz(bits);

				run.node[run.n] = node;
				run.sum[run.n++] = side->dense[node];
				side->dense[node] = 0;
			}
			side->dirty[w] = 0;
		}
		if (ret == 0 && run.n > 0)
			ret = apply_levels(tree, deltas, tree->inner_off[parity], range, &run);
	}
	side->held = false;
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

static bool may_hold(struct tree_deltas *deltas)
{
	uint64_t now;

	if (!deltas->dense_level || ++deltas->calls >= deltas->opts.defer_calls)
		return false;
	if (!deltas->opts.clock || !deltas->opts.defer_ns)
		return true;
	now = clock_now_ns(deltas->opts.clock);
	if (deltas->calls == 1)
		deltas->since_ns = now;
	return now - deltas->since_ns < deltas->opts.defer_ns;
}

int sumtree_flush(const struct sumtree *tree, struct tree_deltas *deltas, bool force)
{
	bool hold = !tree_deltas_empty(deltas) && may_hold(deltas) && !force;
	int ret = begin_changes(tree, deltas);

	if (ret)
		return ret;
	for (uint32_t p = 0; p < 2; p++) {
		struct delta_side *side = &deltas->side[p];
		int64_t size = side->size;
		int err = apply_list(tree, deltas, p), held;

		if (!hold) {
			held = apply_held(tree, deltas, p);
			err = err ? err : held;
			side->size = 0;
			if (err == 0)
				err = add_word(tree, deltas, node_size_off(tree, p), size);
		}
		ret = ret ? ret : err;
	}
	if (!hold)
		deltas->calls = 0;
	return ret;
}

/*
 * Random operations on trees of many shapes against an array: leaves, live counts and sums are
 * equal, and draws hit only live leaves with the right probability.
 */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "ds/sumtree/sumtree.h"

#include "tests/support/fixture/tree_fixture.h"

#include "base/rng.h"

#define STEPS 400
#define MAX_OPS 64u
#define DRAWS 300u

struct oracle {
	uint32_t leaves;
	uint32_t *gen;  /* 0 = never claimed */
	uint64_t *prio; /* 0 = no item */
	uint64_t *word; /* as last seen by a draw or an update */
};

struct world {
	struct tree_fixture fx;
	struct tree_handle h;
	struct forest from;
	struct oracle o;
	struct rng rng;
	uint32_t next_gen;
};

static uint32_t pick(struct world *w, uint32_t bound)
{
	return (uint32_t)rng_uniform_u64(&w->rng, bound);
}

/* Now and then at the ends of the range. */
static uint64_t pick_priority(struct world *w)
{
	switch (pick(w, 8)) {
	case 0:
		return 1;
	case 1:
		return w->h.tree.max_prio;
	case 2:
		return UINT64_MAX;
	default:
		return 1 + rng_uniform_u64(&w->rng, 1u << 20);
	}
}

static uint64_t stored(const struct world *w, uint64_t priority)
{
	return priority > w->h.tree.max_prio ? w->h.tree.max_prio : priority;
}

static void finish_call(struct world *w)
{
	assert_int_equal(sumtree_flush(&w->h.tree, w->h.deltas), 0);
	assert_int_equal(epoch_leave(&w->h.ep), 0);
}

static void do_insert(struct world *w)
{
	uint64_t priorities[MAX_OPS];
	uint32_t first = pick(w, w->o.leaves);
	uint32_t room = w->o.leaves - first;
	struct leaf_run run = { first, 1 + pick(w, room < MAX_OPS ? room : MAX_OPS),
				w->next_gen++ };

	assert_int_equal(sumtree_claim(&w->h.tree, &w->h.ep, &run, w->h.deltas), 0);
	for (uint32_t i = 0; i < run.n; i++) {
		priorities[i] = pick(w, 4) ? pick_priority(w) : 0;
		w->o.gen[first + i] = run.gen;
		w->o.prio[first + i] = stored(w, priorities[i]);
	}
	assert_int_equal(sumtree_publish(&w->h.tree, &w->h.ep, &run, priorities, w->h.deltas), 0);
}

/*
 * Distinct slots with generations that are often right, and words that are often those of the
 * leaves.
 */
static uint32_t make_ops(struct world *w, struct leaf_op *ops)
{
	uint32_t n = 1 + pick(w, w->o.leaves < MAX_OPS ? w->o.leaves : MAX_OPS);
	uint32_t stride = w->o.leaves / n, first = pick(w, w->o.leaves);
	bool down = pick(w, 2);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = (first + (down ? n - 1 - i : i) * stride) % w->o.leaves;

		ops[i] = (struct leaf_op){
			.slot = slot,
			.gen = pick(w, 8) ? w->o.gen[slot] : w->o.gen[slot] + 1,
			.priority = pick_priority(w),
			.word = pick(w, 4) ? w->o.word[slot] : 0,
		};
	}
	return n;
}

static void expect_results(struct world *w, const struct leaf_op *ops, uint32_t n, bool take)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = ops[i].slot;
		uint64_t prio = w->o.prio[slot];

		if (ops[i].gen != w->o.gen[slot]) {
			assert_int_equal(ops[i].result, LEAF_STALE);
		} else if (prio == 0) {
			assert_int_equal(ops[i].result, LEAF_ABSENT);
		} else {
			assert_int_equal(ops[i].result, LEAF_DONE);
			assert_int_equal(leaf_priority(ops[i].word), prio);
			w->o.prio[slot] = take ? 0 : stored(w, ops[i].priority);
		}
		w->o.word[slot] = ops[i].word;
	}
}

static void do_change(struct world *w, bool take)
{
	struct leaf_op ops[MAX_OPS];
	uint32_t n = make_ops(w, ops);

	if (take)
		assert_int_equal(sumtree_consume(&w->h.tree, &w->h.ep, ops, n, w->h.deltas), 0);
	else
		assert_int_equal(sumtree_update(&w->h.tree, &w->h.ep, ops, n, w->h.deltas), 0);
	expect_results(w, ops, n, take);
}

static uint64_t oracle_total(const struct oracle *o)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < o->leaves; i++)
		total += o->prio[i];
	return total;
}

static void do_draw(struct world *w)
{
	static uint32_t shard[DRAWS], slot[DRAWS];
	static uint64_t word[DRAWS];
	static double probability[DRAWS];
	const struct draws out = { shard, slot, word, probability };
	const struct draw_opts opts = { .stratified = pick(w, 2), .now_ns = 1 };
	uint64_t total = oracle_total(&w->o);
	uint32_t n = 1 + pick(w, DRAWS);
	int ret = sumtree_draw(&w->from, &opts, &w->rng, n, &out);

	if (total == 0) {
		assert_int_equal(ret, -ENODATA);
		return;
	}
	assert_int_equal(ret, 0);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(shard[i], 0);
		assert_true(slot[i] < w->o.leaves);
		assert_int_equal(leaf_priority(word[i]), w->o.prio[slot[i]]);
		assert_int_equal(leaf_gen(word[i]), w->o.gen[slot[i]]);
		assert_true(leaf_priority(word[i]) > 0);
		w->o.word[slot[i]] = word[i];
		assert_true(fabs(probability[i] * (double)total - (double)leaf_priority(word[i])) <
			    1e-9 * (double)leaf_priority(word[i]));
	}
}

static void expect_leaves(struct world *w)
{
	uint64_t live = 0;
	int64_t size;

	for (uint32_t i = 0; i < w->o.leaves; i++) {
		uint64_t word = tree_fixture_word(&w->fx, 0, i);

		assert_int_equal(leaf_priority(word), w->o.prio[i]);
		assert_int_equal(leaf_gen(word), w->o.gen[i]);
		live += w->o.prio[i] != 0;
	}
	tree_handle_assert_exact(&w->h);
	assert_int_equal(sumtree_size(&w->h.tree, &w->h.ep, &size), 0);
	assert_int_equal(size, live);
}

struct shape {
	uint32_t leaves;
	uint16_t fanout[4];
};

/* kept: with private sums over all draws, which see our changes as we make them. */
static void open_world(struct world *w, const struct shape *shape, bool kept, uint64_t seed)
{
	tree_fixture_open(&w->fx, shape->leaves, shape->fanout[0] ? shape->fanout : NULL);
	tree_handle_open(&w->h, &w->fx, 0, true);
	w->from = (struct forest){ &w->h.tree, &w->h.ep, 1, NULL };
	if (kept) {
		assert_int_equal(sumtree_tops_open(&w->from.tops), 0);
		tree_deltas_show(w->h.deltas, &w->h.tree, w->from.tops, 0);
	}
	rng_seed(&w->rng, seed, shape->leaves);
	w->next_gen = 1;
	w->o.leaves = shape->leaves;
	w->o.gen = calloc(shape->leaves, sizeof(*w->o.gen));
	w->o.prio = calloc(shape->leaves, sizeof(*w->o.prio));
	w->o.word = calloc(shape->leaves, sizeof(*w->o.word));
}

static void close_world(struct world *w)
{
	free(w->o.gen);
	free(w->o.prio);
	free(w->o.word);
	sumtree_tops_close(&w->from.tops);
	tree_handle_close(&w->h);
	tree_fixture_close(&w->fx);
}

static void run_shape(const struct shape *shape, bool kept, uint64_t seed)
{
	struct world w;

	open_world(&w, shape, kept, seed);
	for (int step = 0; step < STEPS; step++) {
		assert_int_equal(epoch_enter(&w.h.ep), 0);
		switch (pick(&w, 4)) {
		case 0:
			do_insert(&w);
			break;
		case 1:
			do_change(&w, false);
			break;
		case 2:
			do_change(&w, true);
			break;
		default:
			do_draw(&w);
		}
		finish_call(&w);
		if (step % 100 == 99)
			expect_leaves(&w);
	}
	close_world(&w);
}

TEST(sumtree__agrees_with_an_array_in_every_shape)
{
	static const struct shape shapes[] = {
		{ 1, { 8 } },         { 7, { 8 } },
		{ 8, { 16 } },        { 65, { 8 } },
		{ 512, { 8 } },       { 513, { 8 } },
		{ 1000, { 16, 8 } },  { 4096, { 16, 8 } },
		{ 3000, { 8 } },      { 5000, { 24, 8, 40 } },
		{ 2222, { 24 } },     { 9999, { 1024 } },
		{ 20000, { 64, 8 } }, { 70000, { 8 } },
		{ 131072, { 0 } },
	};
	uint64_t seed = test_seed("sumtree model", 20260001);

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		run_shape(&shapes[i], false, seed + i);
		run_shape(&shapes[i], true, seed + i);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}

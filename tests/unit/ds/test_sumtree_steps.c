/*
 * Draws as steps: the reads of each step, interleaved steps of several draws, and draws that fail
 * on the way.
 */
#include "tests/support/test.h"
#include "tests/support/fixture/tree_fixture.h"

#include "ds/sumtree/steps.h"

#include "transport/wait_set.h"

#include "base/bits.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define LEAVES 4096u
#define MOST 1000u

static const uint16_t fanout[] = { 16, 8, 0 };

struct rig {
	struct tree_fixture fx;
	struct tree_handle h;
	struct forest from;
};

struct result {
	uint32_t shard[MOST], slot[MOST];
	uint64_t word[MOST];
	double probability[MOST];
};

static struct draws draws_of(struct result *r)
{
	return (struct draws){ r->shard, r->slot, r->word, r->probability };
}

/* Every second leaf is live, of priority 100 + slot. */
static void open_rig(struct rig *rig, bool live)
{
	const struct leaf_run run = { 0, LEAVES, 1 };
	static uint64_t priorities[LEAVES];

	for (uint32_t i = 0; i < LEAVES; i++)
		priorities[i] = live && i % 2 ? 100 + i : 0;
	tree_fixture_open(&rig->fx, LEAVES, fanout);
	tree_handle_open(&rig->h, &rig->fx, 0, false);
	tree_handle_fill(&rig->h, &run, priorities);
	rig->from = (struct forest){ &rig->h.tree, &rig->h.ep, 1, NULL };
}

static void close_rig(struct rig *rig)
{
	tree_handle_close(&rig->h);
	tree_fixture_close(&rig->fx);
}

static void make_reads(const struct transport_io *io, size_t n)
{
	struct wait_set reads;

	assert_int_equal(wait_set_read(&reads, io, n), 0);
	assert_int_equal(wait_set_wait(&reads), 0);
}

/* Runs one step; returns the number of its reads, 0 = done. */
static size_t step(struct sumtree_steps *steps)
{
	const struct transport_io *io;
	size_t n;

	assert_int_equal(sumtree_steps_next(steps, &io, &n), 0);
	make_reads(io, n);
	return n;
}

static void expect_items(const struct result *r, uint32_t n)
{
	double mass = 0;

	for (uint32_t i = 1; i < LEAVES; i += 2)
		mass += 100.0 + i;
	for (uint32_t i = 0; i < n; i++) {
		double p = (100.0 + r->slot[i]) / mass;

		assert_int_equal(r->slot[i] % 2, 1);
		assert_int_equal(leaf_priority(r->word[i]), 100 + r->slot[i]);
		assert_true(fabs(r->probability[i] - p) < 1e-9 * p);
	}
}

TEST(sumtree_steps__a_step_for_the_tops_and_one_for_each_level)
{
	static const uint32_t sizes[] = { 1, 255, 256, 257, MOST };
	const struct draw_opts opts = { .stratified = true };
	static struct result result;
	struct sumtree_steps *steps;
	struct rig rig;
	struct rng rng;

	open_rig(&rig, true);
	rng_seed(&rng, 1, 0);
	assert_int_equal(sumtree_steps_open(&steps), 0);
	for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
		const struct draws out = draws_of(&result);
		uint32_t n_steps = 0;

		assert_int_equal(
			sumtree_steps_begin(steps, &(struct steps_task){ &rig.from, &opts, &rng,
									 sizes[k], out }),
			0);
		while (step(steps) > 0)
			n_steps++;
		assert_int_equal(n_steps, 1 + rig.h.tree.geo.levels);
		assert_int_equal(step(steps), 0); /* done is done */
		expect_items(&result, sizes[k]);
	}
	sumtree_steps_close(&steps);
	assert_null(steps);
	close_rig(&rig);
}

TEST(sumtree_steps__draws_that_take_turns_do_not_disturb_each_other)
{
	static struct result alone[3], mixed[3];
	struct sumtree_steps *steps[3];
	struct rng rng[3];
	struct rig rig;
	size_t left = 1;

	open_rig(&rig, true);
	for (uint32_t k = 0; k < 3; k++) {
		const struct draws out = draws_of(&alone[k]), other = draws_of(&mixed[k]);

		rng_seed(&rng[k], k, 0);
		assert_int_equal(sumtree_draw(&rig.from, NULL, &rng[k], 300, &out), 0);
		rng_seed(&rng[k], k, 0);
		assert_int_equal(sumtree_steps_open(&steps[k]), 0);
		assert_int_equal(
			sumtree_steps_begin(steps[k], &(struct steps_task){ &rig.from, NULL,
									    &rng[k], 300, other }),
			0);
		step(steps[k]); /* each is a step ahead of the next */
		for (uint32_t j = 0; j < k; j++)
			step(steps[j]);
	}
	while (left) {
		left = 0;
		for (uint32_t k = 0; k < 3; k++)
			left += step(steps[k]);
	}
	for (uint32_t k = 0; k < 3; k++) {
		assert_memory_equal(alone[k].slot, mixed[k].slot, 300 * sizeof(uint32_t));
		sumtree_steps_close(&steps[k]);
	}
	close_rig(&rig);
}

TEST(sumtree_steps__draws_lost_below_begin_again_together)
{
	static struct result result;
	const struct draws out = draws_of(&result);
	struct sumtree_steps *steps;
	uint32_t n_steps = 0;
	struct rig rig;
	struct rng rng;

	open_rig(&rig, true);
	for (uint32_t i = 0; i < LEAVES / 2; i++) /* gone, and the sums do not know it yet */
		tree_fixture_set_word(&rig.fx, 0, i, 0);
	rng_seed(&rng, 1, 0);
	assert_int_equal(sumtree_steps_open(&steps), 0);
	assert_int_equal(
		sumtree_steps_begin(steps, &(struct steps_task){ &rig.from, NULL, &rng, 300, out }),
		0);
	while (step(steps) > 0)
		n_steps++;
	/* A few times all steps for those that are left, not for each alone. */
	assert_in_range(n_steps, 2 * (1 + rig.h.tree.geo.levels), 60);
	for (uint32_t i = 0; i < 300; i++)
		assert_true(result.slot[i] >= LEAVES / 2 && result.slot[i] % 2);
	sumtree_steps_close(&steps);
	close_rig(&rig);
}

TEST(sumtree_steps__of_nothing_gives_enodata_after_a_while)
{
	static struct result result;
	const struct draws out = draws_of(&result);
	struct sumtree_steps *steps;
	const struct transport_io *io;
	uint32_t n_steps = 0;
	struct rig rig;
	struct rng rng;
	size_t n;
	int ret;

	open_rig(&rig, false);
	rng_seed(&rng, 1, 0);
	assert_int_equal(sumtree_steps_open(&steps), 0);
	assert_int_equal(
		sumtree_steps_begin(steps, &(struct steps_task){ &rig.from, NULL, &rng, 10, out }),
		0);
	while ((ret = sumtree_steps_next(steps, &io, &n)) == 0) {
		assert_int_equal(n, 2);
		make_reads(io, n);
		assert_true(++n_steps < 100);
	}
	assert_int_equal(ret, -ENODATA);
	sumtree_steps_close(&steps);
	close_rig(&rig);
}

TEST(sumtree_steps__another_array_is_read_once_more)
{
	static struct result result;
	const struct draws out = draws_of(&result);
	struct sumtree_steps *steps;
	struct rig rig;
	struct rng rng;

	open_rig(&rig, true);
	rig.h.ep.number ^= 1; /* as of a pass ago */
	rng_seed(&rng, 1, 0);
	assert_int_equal(sumtree_steps_open(&steps), 0);
	assert_int_equal(
		sumtree_steps_begin(steps, &(struct steps_task){ &rig.from, NULL, &rng, 10, out }),
		0);
	assert_int_equal(step(steps), 2);
	assert_int_equal(step(steps), 2);
	assert_true(step(steps) > 0);
	while (step(steps) > 0)
		;
	expect_items(&result, 10);
	sumtree_steps_close(&steps);
	close_rig(&rig);
}

int main(void)
{
	return test_run(NULL, NULL);
}

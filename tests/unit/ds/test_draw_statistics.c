/*
 * Distribution of draws: chi-square against the priorities with fixed seeds; with deliberately
 * wrong sums the reported probabilities must still be true.
 */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "ds/sumtree/sumtree.h"

#include "tests/support/fixture/tree_fixture.h"

#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/rng.h"

#define LEAVES 2048u
#define TOP (LEAVES / 64) /* nodes of level 2 */
#define CALLS 400u
#define BATCH 256u
#define Z_MAX 5.0 /* one run in three million */

static const uint16_t fanout[] = { 8, 0 };
static const enum cpu_level levels[] = { CPU_PLAIN, CPU_AVX2, CPU_AVX512 };

struct rig {
	struct tree_fixture fx;
	struct tree_handle h;
	uint64_t priorities[LEAVES];
	uint64_t total;
};

struct tally {
	uint64_t seen[LEAVES];
};

static uint32_t shard[BATCH], slot[BATCH];
static uint64_t word[BATCH];
static double probability[BATCH];
static const struct draws out = { shard, slot, word, probability };

static void open_rig(struct rig *rig, bool in_place, uint64_t seed)
{
	const struct leaf_run run = { 0, LEAVES, 5 };
	struct rng rng;

	rng_seed(&rng, seed, 0);
	rig->total = 0;
	for (uint32_t i = 0; i < LEAVES; i++) {
		/* Sizes differ by 30; every ninth leaf is dead. */
		rig->priorities[i] = i % 9 == 4 ? 0 : 1000 + rng_uniform_u64(&rng, 30000);
		rig->total += rig->priorities[i];
	}
	tree_fixture_open(&rig->fx, LEAVES, fanout);
	tree_handle_open(&rig->h, &rig->fx, 0, in_place);
	tree_handle_fill(&rig->h, &run, rig->priorities);
}

static void close_rig(struct rig *rig)
{
	tree_handle_close(&rig->h);
	tree_fixture_close(&rig->fx);
	cpu_level_limit(CPU_AVX512);
}

/* Adds to an inner node, as deltas do that are under way. */
static void drift(struct rig *rig, uint32_t level, uint32_t node, int64_t by)
{
	uint64_t sum = tree_fixture_word(&rig->fx, level, node);

	tree_fixture_set_word(&rig->fx, level, node, sum + (uint64_t)by);
}

static void draw_many(struct rig *rig, const struct draw_opts *opts, uint64_t seed,
		      struct tally *tally)
{
	const struct forest from = { &rig->h.tree, &rig->h.ep, 1, NULL };
	struct rng rng;

	memset(tally, 0, sizeof(*tally));
	rng_seed(&rng, seed, 1);
	for (uint32_t call = 0; call < CALLS; call++) {
		assert_int_equal(sumtree_draw(&from, opts, &rng, BATCH, &out), 0);
		for (uint32_t i = 0; i < BATCH; i++) {
			assert_true(rig->priorities[slot[i]] > 0);
			assert_int_equal(leaf_priority(word[i]), rig->priorities[slot[i]]);
			tally->seen[slot[i]]++;
		}
	}
}

/* z score of the observed counts against the expected probabilities. */
static double chi_square(const struct tally *tally, const double *expected)
{
	static uint64_t seen[LEAVES];
	static double mean[LEAVES];
	uint32_t n = 0;

	for (uint32_t i = 0; i < LEAVES; i++) {
		if (expected[i] == 0) {
			assert_int_equal(tally->seen[i], 0);
			continue;
		}
		seen[n] = tally->seen[i];
		mean[n++] = expected[i] * CALLS * BATCH;
	}
	return test_chi_square_z(seen, mean, n);
}

static void exact_probabilities(const struct rig *rig, double *p)
{
	for (uint32_t i = 0; i < LEAVES; i++)
		p[i] = (double)rig->priorities[i] / (double)rig->total;
}

TEST(sumtree_draw__follows_priorities)
{
	static const struct draw_opts kinds[] = { { .stratified = false }, { .stratified = true } };
	uint64_t seed = test_seed("draw statistics", 20);
	static double p[LEAVES];
	struct tally tally;
	struct rig rig;

	for (uint32_t i = 0; i < 4; i++) {
		open_rig(&rig, i & 1, seed);
		exact_probabilities(&rig, p);
		draw_many(&rig, &kinds[i / 2], seed + i, &tally);
		assert_true(chi_square(&tally, p) < Z_MAX);
		close_rig(&rig);
	}
}

/* The test above can fail: another distribution is told apart. */
TEST(sumtree_draw__other_priorities_are_told_apart)
{
	static double p[LEAVES];
	struct tally tally;
	struct rig rig;

	open_rig(&rig, true, 1);
	exact_probabilities(&rig, p);
	for (uint32_t i = 0; i < LEAVES; i++) /* by a sixth */
		p[i] *= i & 1 ? 1.08 : 0.92;
	draw_many(&rig, NULL, 2, &tally);
	assert_true(chi_square(&tally, p) > Z_MAX);
	close_rig(&rig);
}

TEST(sumtree_draw__strata_have_equal_mass)
{
	const struct draw_opts opts = { .stratified = true };
	uint64_t before[LEAVES + 1] = { 0 };
	struct rng rng;
	struct rig rig;

	open_rig(&rig, true, 3);
	rng_seed(&rng, 4, 0);
	for (uint32_t i = 0; i < LEAVES; i++)
		before[i + 1] = before[i] + rig.priorities[i];
	for (uint32_t n = 1; n <= BATCH; n += 17) {
		const struct forest from = { &rig.h.tree, &rig.h.ep, 1, NULL };

		assert_int_equal(sumtree_draw(&from, &opts, &rng, n, &out), 0);
		for (uint32_t i = 0; i < n; i++) { /* leaf and stratum overlap */
			double low = (double)rig.total * i / n, high = low + (double)rig.total / n;

			assert_true((double)before[slot[i] + 1] > low - 1);
			assert_true((double)before[slot[i]] < high + 1);
		}
	}
	close_rig(&rig);
}

TEST(sumtree_draw__ranks_share_the_strata)
{
	uint64_t before[LEAVES + 1] = { 0 };
	struct rng rng;
	struct rig rig;

	open_rig(&rig, true, 3);
	rng_seed(&rng, 4, 0);
	for (uint32_t i = 0; i < LEAVES; i++)
		before[i + 1] = before[i] + rig.priorities[i];
	for (uint32_t rank = 0; rank < 3; rank++) {
		const struct draw_opts opts = { .stratified = true, .rank = rank, .world_size = 3 };
		const struct forest from = { &rig.h.tree, &rig.h.ep, 1, NULL };

		assert_int_equal(sumtree_draw(&from, &opts, &rng, 50, &out), 0);
		for (uint32_t i = 0; i < 50; i++) {
			double part = (double)rig.total / 150, low = part * (i * 3 + rank);

			assert_true((double)before[slot[i] + 1] > low - 1);
			assert_true((double)before[slot[i]] < low + part + 1);
		}
	}
	close_rig(&rig);
}

/*
 * Probabilities of leaves under sums that are wrong: of a node's mass by the level above, each
 * child gets its share of what the children add up to, negative ones clamped.
 */
static double share(struct rig *rig, uint32_t level, uint32_t i)
{
	uint32_t first = i / 8 * 8;
	double all = 0, own = 0;

	for (uint32_t k = level == 2 ? 0 : first; k < (level == 2 ? TOP : first + 8); k++) {
		uint64_t raw = tree_fixture_word(&rig->fx, level, k);
		int64_t value = level ? (int64_t)raw : (int64_t)leaf_priority(raw);

		if (value <= 0)
			continue;
		all += (double)value;
		own += k == i ? (double)value : 0;
	}
	return all > 0 ? own / all : 0;
}

static void drifted_probabilities(struct rig *rig, double *p)
{
	double all = 0;

	for (uint32_t i = 0; i < LEAVES; i++) {
		p[i] = share(rig, 2, i / 64) * share(rig, 1, i / 8) * share(rig, 0, i);
		all += p[i];
	}
	for (uint32_t i = 0; i < LEAVES; i++) /* draws that find no item are repeated */
		p[i] /= all;
}

/* The reported figures leave out the restarts, which condition on live nodes. */
static void expect_reported(struct rig *rig, uint64_t seed)
{
	const struct forest from = { &rig->h.tree, &rig->h.ep, 1, NULL };
	struct rng rng;

	rng_seed(&rng, seed, 2);
	assert_int_equal(sumtree_draw(&from, NULL, &rng, BATCH, &out), 0);
	for (uint32_t i = 0; i < BATCH; i++) {
		double true_p = share(rig, 2, slot[i] / 64) * share(rig, 1, slot[i] / 8) *
				share(rig, 0, slot[i]);

		assert_true(fabs(probability[i] - true_p) < 1e-9 * true_p);
	}
}

static void expect_drifted(struct rig *rig, uint64_t seed)
{
	static double p[LEAVES];
	struct tally tally;

	drifted_probabilities(rig, p);
	for (size_t l = 0; l < ARRAY_LEN(levels); l++) {
		cpu_level_limit(levels[l]);
		expect_reported(rig, seed);
	}
	draw_many(rig, NULL, seed, &tally);
	assert_true(chi_square(&tally, p) < Z_MAX);
}

TEST(sumtree_draw__drifted_sums_report_true_probabilities)
{
	uint64_t seed = test_seed("drifted draws", 31);
	struct rig rig;

	for (uint32_t i = 0; i < 2; i++) {
		open_rig(&rig, i, seed);
		drift(&rig, 1, 3, 50000);
		drift(&rig, 1, 40, -20000);
		drift(&rig, 2, 2, 400000);
		drift(&rig, 2, 7, -100000);
		expect_drifted(&rig, seed);
		close_rig(&rig);
	}
}

TEST(sumtree_draw__negative_sums_count_as_nothing)
{
	uint64_t seed = test_seed("negative draws", 32);
	struct rig rig;

	open_rig(&rig, true, seed);
	drift(&rig, 1, 3, -5000000);
	drift(&rig, 2, 5, -50000000);
	expect_drifted(&rig, seed);
	close_rig(&rig);
}

/* Sums say that there is something where every leaf is dead: such draws begin again. */
TEST(sumtree_draw__dead_nodes_are_left_for_live_ones)
{
	uint64_t seed = test_seed("dead draws", 33);
	struct rig rig;

	open_rig(&rig, true, seed);
	for (uint32_t i = 64; i < 128; i++) {
		rig.priorities[i] = 0;
		tree_fixture_set_word(&rig.fx, 0, i, leaf_make(0, 5, 0));
	}
	expect_drifted(&rig, seed);
	close_rig(&rig);
}

TEST(sumtree_draw__only_dead_leaves_give_enodata)
{
	const struct draw_opts opts = { .stratified = true };
	struct rng rng;
	struct rig rig;

	open_rig(&rig, true, 1);
	rng_seed(&rng, 1, 0);
	for (uint32_t i = 0; i < LEAVES; i++)
		tree_fixture_set_word(&rig.fx, 0, i, leaf_make(0, 5, 0));
	for (uint32_t n = 1; n < 20; n++) {
		const struct forest from = { &rig.h.tree, &rig.h.ep, 1, NULL };

		assert_int_equal(sumtree_draw(&from, &opts, &rng, n, &out), -ENODATA);
	}
	close_rig(&rig);
}

/*
 * One leaf with the smallest priority beside one with nearly all of the mass: both are drawn by
 * their probability.
 */
TEST(sumtree_draw__extreme_priorities)
{
	const struct leaf_run run = { 0, LEAVES, 1 };
	uint64_t priorities[LEAVES] = { 0 };
	struct tree_fixture fx;
	struct tree_handle h;
	struct rng rng;

	tree_fixture_open(&fx, LEAVES, fanout);
	tree_handle_open(&h, &fx, 0, true);
	priorities[0] = 1;
	priorities[LEAVES - 1] = h.tree.max_prio;
	tree_handle_fill(&h, &run, priorities);
	rng_seed(&rng, 1, 0);
	for (uint32_t call = 0; call < 100; call++) {
		const struct forest from = { &h.tree, &h.ep, 1, NULL };

		assert_int_equal(sumtree_draw(&from, NULL, &rng, BATCH, &out), 0);
		for (uint32_t i = 0; i < BATCH; i++)
			assert_int_equal(slot[i], LEAVES - 1);
	}
	tree_handle_close(&h);
	tree_fixture_close(&fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}

/* Both ends of a draw, without a tree below: tops that are made up. */
#include "tests/support/test.h"

#include <string.h>

#include "ds/sumtree/deferred.h"
#include "ds/sumtree/place.h"

#include "base/bits.h"
#include "base/rng.h"

#define TREES 4u
#define NODES 64u

struct scene {
	struct sumtree trees[TREES];
	struct epoch epochs[TREES];
	struct forest from;
	struct sumtree_tops tops;
	struct sumtree_descent down;
	struct rng rng;
};

/* Trees of one level of 64 nodes, of so much mass each. */
static struct scene *set_up(const uint64_t mass[], uint32_t n)
{
	static struct region region;
	static struct scene s;

	sumtree_tops_fini(&s.tops);
	memset(&s, 0, sizeof(s));
	s.from = (struct forest){ s.trees, s.epochs, n, NULL };
	for (uint32_t t = 0; t < n; t++) {
		s.trees[t].region = &region;
		s.trees[t].geo.levels = 1;
		s.trees[t].nodes[1] = NODES;
	}
	assert_int_equal(sumtree_tops_fit(&s.tops, &s.from), 0);
	for (uint32_t i = 0; i < n * NODES; i++)
		s.tops.level[0][i] = mass[i / NODES];
	for (uint32_t i = 0; s.tops.top && i < n * NODES / SUMS_FANOUT; i++)
		s.tops.level[1][i] = mass[i * SUMS_FANOUT / NODES] * SUMS_FANOUT;
	sumtree_tops_end(&s.tops);
	assert_true(sumtree_tops_begin_draw(&s.tops));
	s.down.kernel = sumtree_kernel_get();
	rng_seed(&s.rng, 5, 0);
	s.down.from = &s.from;
	s.down.rng = &s.rng;
	return &s;
}

static void place(struct scene *s, const struct draw_opts *opts, uint32_t n)
{
	struct strata strata = strata_make(opts, n);

	sumtree_place(&s->down, &s->tops, &strata, 0, n);
	sumtree_descent_run_private(&s->down);
}

static void count_nodes(const struct scene *s, uint32_t n, uint32_t seen[TREES][NODES])
{
	for (uint32_t i = 0; i < n; i++)
		seen[s->down.shard[i]][s->down.lanes.node[i]]++;
}

TEST(sumtree_place__strata_fall_on_all_nodes_alike)
{
	static const uint64_t mass[] = { 1000, 1000 };
	const struct draw_opts opts = { .stratified = true };

	for (uint32_t n = 1; n <= 2; n++) {
		struct scene *s = set_up(mass, n);
		uint32_t seen[TREES][NODES] = { { 0 } };

		place(s, &opts, DRAW_CHUNK);
		count_nodes(s, DRAW_CHUNK, seen);
		for (uint32_t k = 0; k < n * NODES; k++)
			assert_int_equal(seen[k / NODES][k % NODES], DRAW_CHUNK / NODES / n);
	}
}

TEST(sumtree_place__ranks_share_the_strata)
{
	static const uint64_t mass[] = { 1000 };
	uint32_t seen[TREES][NODES] = { { 0 } };

	for (uint32_t rank = 0; rank < 2; rank++) {
		const struct draw_opts opts = { .stratified = true, .rank = rank, .world_size = 2 };
		struct scene *s = set_up(mass, 1);

		place(s, &opts, NODES / 2);
		count_nodes(s, NODES / 2, seen);
	}
	for (uint32_t k = 0; k < NODES; k++)
		assert_int_equal(seen[0][k], 1);
}

TEST(sumtree_place__draws_keep_their_places_in_the_batch)
{
	static const uint64_t mass[] = { 10, 20, 30, 40 };
	const struct draw_opts stratified = { .stratified = true };
	struct scene *s = set_up(mass, TREES);
	uint32_t falls = 0;

	place(s, &stratified, DRAW_CHUNK);
	for (uint32_t i = 1; i < DRAW_CHUNK; i++)
		assert_true(s->down.shard[i - 1] <= s->down.shard[i]);
	place(s, NULL, DRAW_CHUNK);
	for (uint32_t i = 1; i < DRAW_CHUNK; i++)
		falls += s->down.shard[i - 1] > s->down.shard[i];
	assert_in_range(falls, DRAW_CHUNK / 5, DRAW_CHUNK / 2); /* 35 % of neighbours */
}

TEST(sumtree_place__lanes_name_a_point_within_their_node)
{
	static const uint64_t mass[] = { 3, 0, 700, 0 };
	struct scene *s = set_up(mass, TREES);
	uint32_t in_first = 0;

	for (int round = 0; round < 40; round++) {
		place(s, NULL, 250);
		for (uint32_t i = 0; i < s->down.groups * DRAW_GROUP; i++) {
			assert_true(mass[s->down.shard[i]] > 0);
			assert_in_range(s->down.lanes.node[i], 0, NODES - 1);
			assert_true(s->down.lanes.expected[i] == mass[s->down.shard[i]]);
			assert_true(s->down.lanes.r[i] < s->down.lanes.expected[i]);
			in_first += i < 250 && s->down.shard[i] == 0;
		}
	}
	assert_in_range(in_first, 15, 80); /* 42.7 of 10,000 */
}

/* 64 random bits do not reach every quantum of 2^61, and 2^64 is drawn in coarser units. */
static void check_large_mass(uint64_t mass_of_node, uint32_t shift)
{
	const uint64_t mass[] = { mass_of_node, mass_of_node, mass_of_node, mass_of_node };
	const struct draw_opts opts = { .stratified = true };
	struct scene *s = set_up(mass, TREES);
	uint32_t seen[TREES][NODES] = { { 0 } };
	uint64_t low_bits = 0;

	assert_int_equal(s->tops.shift, shift);
	assert_true(s->tops.total >> 60 != 0);
	place(s, &opts, DRAW_CHUNK);
	count_nodes(s, DRAW_CHUNK, seen);
	for (uint32_t i = 0; i < DRAW_CHUNK; i++) {
		assert_int_equal(seen[i / NODES][i % NODES], 1);
		low_bits |= s->down.lanes.r[i];
	}
	assert_true((low_bits & 0xff) == 0xff);
}

TEST(sumtree_place__of_more_than_60_bits_of_mass)
{
	check_large_mass(UINT64_C(1) << 53, 0);
	check_large_mass(UINT64_C(1) << 56, 3);
}

/* Changes of the owner are drawn from at once; another array is a reason to read all again. */
TEST(sumtree_tops_add__keeps_all_sums_exact)
{
	static const uint64_t mass[] = { 100, 100, 100 };
	struct scene *s = set_up(mass, 3);
	uint32_t node[] = { 7, 8, 63 };
	int64_t sum[] = { 3100, -100, -200 };
	const struct delta_run run = { node, sum, 3 };

	sumtree_tops_add(&s->tops, 1, 0, &run);
	assert_false(s->tops.due);
	assert_int_equal(s->tops.level[0][64 + 7], 3200);
	assert_int_equal(s->tops.level[0][64 + 8], 0);
	assert_int_equal(s->tops.level[0][64 + 63], 0); /* never negative */
	assert_true(sumtree_tops_begin_draw(&s->tops));
	assert_int_equal(s->tops.total, 3 * 6400 + 3100 - 100 - 100);
	place(s, NULL, DRAW_CHUNK);
	for (uint32_t i = 0; i < DRAW_CHUNK; i++) {
		bool raised = s->down.shard[i] == 1 && s->down.lanes.node[i] == 7;

		assert_int_equal(s->down.lanes.expected[i], raised ? 3200 : 100);
		assert_true(s->down.lanes.r[i] < s->down.lanes.expected[i]);
	}
	sumtree_tops_add(&s->tops, 1, 1, &run);
	assert_true(s->tops.due);
}

/* Words of a damaged region: their sums wrap at 2^64, and the draw still names a node. */
TEST(sumtree_place__sums_that_wrap_stay_within_the_trees)
{
	static const uint64_t mass[] = { 1, 1, 1, 1 };

	for (uint32_t round = 0; round < 200; round++) {
		struct scene *s = set_up(mass, TREES);

		rng_seed(&s->rng, round, 1);
		for (uint32_t i = 0; i < TREES * NODES; i++)
			s->tops.level[0][i] = rng_next_u64(&s->rng) >> 1;
		sumtree_tops_end(&s->tops);
		if (!sumtree_tops_begin_draw(&s->tops))
			continue;
		for (uint32_t n = 1; n <= 3; n++) {
			place(s, NULL, n);
			for (uint32_t i = 0; i < n; i++)
				assert_true(s->down.shard[i] < TREES &&
					    s->down.lanes.node[i] < NODES);
		}
	}
}

TEST(sumtree_emit__probability_is_of_the_whole_mass)
{
	static const uint64_t mass[] = { 50, 50 };
	uint32_t shard[8], slot[8];
	uint64_t word[8];
	double probability[8];
	const struct draws out = { shard, slot, word, probability };
	struct scene *s = set_up(mass, 2);

	place(s, NULL, 4);
	for (uint32_t i = 0; i < 4; i++)
		s->down.lanes.word[i] = leaf_make(LEAF_DONE, 1, 10 * (uint64_t)(i + 1));
	s->down.lanes.ratio[3] = 0.5;
	sumtree_emit(&s->down, &out, 2);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(shard[2 + i], s->down.shard[i]);
		assert_int_equal(slot[2 + i], s->down.lanes.node[i]);
		assert_true(word[2 + i] == s->down.lanes.word[i]);
		assert_true(fabs(probability[2 + i] * 6400 - (i == 3 ? 20 : 10 * (double)(i + 1))) <
			    1e-9);
	}
	sumtree_emit_one(&s->down, 1, &out, 7);
	assert_true(probability[7] == probability[3] && slot[7] == slot[3]);
}

int main(void)
{
	return test_run(NULL, NULL);
}

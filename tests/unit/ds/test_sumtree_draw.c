/* Draws: costs, the same keys at every vector level, forests, garbage in the region. */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "ds/sumtree/sumtree.h"

#include "tests/support/fixture/tree_fixture.h"

#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/rng.h"

#define LEAVES 4096u
#define BATCH 256u

static const uint16_t fanout[] = { 16, 8, 0 };

struct rig {
	struct tree_fixture fx;
	struct tree_handle h;
};

static uint32_t shard[2 * BATCH], slot[2 * BATCH];
static uint64_t word[2 * BATCH];
static double probability[2 * BATCH];
static const struct draws out = { shard, slot, word, probability };

/* All leaves live, gen 1, priority 100 + slot. */
static void open_rig(struct rig *rig, bool in_place)
{
	const struct leaf_run run = { 0, LEAVES, 1 };
	static uint64_t priorities[LEAVES];

	for (uint32_t i = 0; i < LEAVES; i++)
		priorities[i] = 100 + i;
	tree_fixture_open(&rig->fx, LEAVES, fanout);
	tree_handle_open(&rig->h, &rig->fx, 0, in_place);
	tree_handle_fill(&rig->h, &run, priorities);
}

static void close_rig(struct rig *rig)
{
	tree_handle_close(&rig->h);
	tree_fixture_close(&rig->fx);
	cpu_level_limit(CPU_AVX512);
}

/* -------- costs -------- */

/* Nodes of a level that the drawn leaves lie under; neighbours of one node count once. */
static uint64_t nodes_seen(const struct sumtree *tree, uint32_t level)
{
	uint32_t leaves = 1;
	uint64_t n = 0;

	for (uint32_t l = 0; l < level; l++)
		leaves *= tree->geo.fanout[l];
	for (uint32_t i = 0; i < BATCH; i++)
		n += i == 0 || slot[i] / leaves != slot[i - 1] / leaves;
	return n;
}

/* Draws of one node share its read. */
static void expect_draw_cost(struct rig *rig, const struct transport_stats *was)
{
	const struct transport_stats *is = &rig->h.mt.tr.stats;
	const struct sumtree *tree = &rig->h.tree;
	uint64_t bytes = 8 + 64 + 8 * (uint64_t)tree->nodes[tree->geo.levels];
	uint64_t reads = 2;

	for (uint32_t l = 0; l < tree->geo.levels; l++) {
		uint64_t n = nodes_seen(tree, l + 1);

		reads += n;
		bytes += n * 8u * tree->geo.fanout[l];
	}
	assert_int_equal(is->phases - was->phases, 1 + tree->geo.levels);
	assert_int_equal(is->reads - was->reads, reads);
	assert_int_equal(is->read_bytes - was->read_bytes, bytes);
	assert_int_equal(is->cas - was->cas, 0);
}

TEST(sumtree_draw__costs_a_phase_a_level)
{
	const struct draw_opts opts = { .stratified = true };
	struct transport_stats was;
	struct forest from;
	struct rng rng;
	struct rig rig;

	open_rig(&rig, false);
	from = (struct forest){ &rig.h.tree, &rig.h.ep, 1, NULL };
	rng_seed(&rng, 1, 0);
	was = rig.h.mt.tr.stats;
	assert_int_equal(sumtree_draw(&from, &opts, &rng, BATCH, &out), 0);
	expect_draw_cost(&rig, &was);
	close_rig(&rig);
}

/* -------- the same keys -------- */

struct keys {
	uint32_t slot[2 * BATCH];
	double probability[2 * BATCH];
};

/* Draws 2 BATCH - 3 from a tree whose sums drift a little. */
static void draw_keys(bool in_place, uint64_t seed, struct keys *keys)
{
	const struct draw_opts opts = { .stratified = true };
	struct forest from;
	struct rng rng;
	struct rig rig;

	open_rig(&rig, in_place);
	tree_fixture_set_word(&rig.fx, 1, 9, tree_fixture_word(&rig.fx, 1, 9) + 3000);
	tree_fixture_set_word(&rig.fx, 2, 20, tree_fixture_word(&rig.fx, 2, 20) - 70000);
	from = (struct forest){ &rig.h.tree, &rig.h.ep, 1, NULL };
	rng_seed(&rng, seed, 0);
	memset(keys, 0, sizeof(*keys));
	assert_int_equal(sumtree_draw(&from, &opts, &rng, 2 * BATCH - 3, &out), 0);
	memcpy(keys->slot, slot, (2 * BATCH - 3) * sizeof(slot[0]));
	memcpy(keys->probability, probability, (2 * BATCH - 3) * sizeof(probability[0]));
	close_rig(&rig);
}

TEST(sumtree_draw__same_keys_at_every_vector_level)
{
	static struct keys keys[3];
	uint64_t seed = test_seed("vector levels", 8);

	for (uint64_t i = 0; i < 20; i++) {
		cpu_level_limit(CPU_PLAIN);
		draw_keys(true, seed + i, &keys[0]);
		cpu_level_limit(CPU_AVX2);
		draw_keys(true, seed + i, &keys[1]);
		cpu_level_limit(CPU_AVX512);
		draw_keys(true, seed + i, &keys[2]);
		assert_memory_equal(&keys[0], &keys[1], sizeof(keys[0]));
		assert_memory_equal(&keys[0], &keys[2], sizeof(keys[0]));
	}
}

/* -------- several trees -------- */

#define TREES 140u /* more than are kept as read */

struct shard_trees {
	struct rig rig[TREES];
	struct sumtree trees[TREES];
	struct epoch epochs[TREES];
	struct forest from;
};

static void shard_trees_open(struct shard_trees *g, uint32_t views_every)
{
	for (uint32_t t = 0; t < TREES; t++) {
		open_rig(&g->rig[t], !views_every || t % views_every);
		g->trees[t] = g->rig[t].h.tree;
		g->epochs[t] = g->rig[t].h.ep;
	}
	g->from = (struct forest){ g->trees, g->epochs, TREES, NULL };
}

static void shard_trees_close(struct shard_trees *g)
{
	for (uint32_t t = 0; t < TREES; t++)
		close_rig(&g->rig[t]);
}

TEST(sumtree_draw__one_distribution_over_many_trees)
{
	static const uint32_t kinds[] = { 0, 1, 3 }; /* in place, by views, both */
	const struct draw_opts opts = { .stratified = true };
	static struct shard_trees g;
	double tree_mass = (double)LEAVES * (100 + (LEAVES - 1) / 2.0);

	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		uint32_t per_tree[TREES] = { 0 };
		struct rng rng;

		shard_trees_open(&g, kinds[k]);
		rng_seed(&rng, 6, 0);
		assert_int_equal(sumtree_draw(&g.from, &opts, &rng, 2 * BATCH, &out), 0);
		for (uint32_t i = 0; i < 2 * BATCH; i++) {
			double p = (100.0 + slot[i]) / (tree_mass * TREES);

			assert_true(fabs(probability[i] - p) < 1e-9 * p);
			assert_int_equal(leaf_priority(word[i]), 100 + slot[i]);
			per_tree[shard[i]]++;
		}
		for (uint32_t t = 0; t < TREES; t++) /* 3.7 each, by strata */
			assert_in_range(per_tree[t], 3, 5);
		shard_trees_close(&g);
	}
}

/* Each tree has a transport of its own. */
TEST(sumtree_draw__many_transports_share_the_phases)
{
	static struct shard_trees g;
	int64_t sizes[100];
	const struct draw_opts opts = { .stratified = true, .sizes_out = sizes };
	uint64_t before = 0, after = 0;
	struct rng rng;

	shard_trees_open(&g, 1);
	g.from.n = 100;
	rng_seed(&rng, 6, 0);
	for (uint32_t t = 0; t < TREES; t++)
		before += g.rig[t].h.mt.tr.stats.phases;
	assert_int_equal(sumtree_draw(&g.from, &opts, &rng, BATCH, &out), 0);
	for (uint32_t t = 0; t < TREES; t++)
		after += g.rig[t].h.mt.tr.stats.phases;
	assert_int_equal(after - before, 1 + g.trees[0].geo.levels);
	for (uint32_t t = 0; t < 100; t++)
		assert_int_equal(sizes[t], LEAVES);
	shard_trees_close(&g);
}

TEST(sumtree_draw__bad_forest_is_refused)
{
	static const uint16_t other[] = { 8, 0 };
	struct sumtree trees[2];
	struct epoch epochs[2];
	struct forest from = { trees, epochs, 0, NULL };
	struct tree_fixture fx;
	struct rng rng;
	struct rig rig;

	open_rig(&rig, true);
	tree_fixture_open(&fx, LEAVES, other);
	rng_seed(&rng, 1, 0);
	assert_int_equal(sumtree_draw(&from, NULL, &rng, 1, &out), -EINVAL);
	trees[0] = rig.h.tree;
	sumtree_init(&trees[1], &rig.h.mt.region, &fx.geo, &fx.place);
	epochs[0] = epochs[1] = rig.h.ep;
	from.n = 2;
	assert_int_equal(sumtree_draw(&from, NULL, &rng, 1, &out), -EINVAL);
	tree_fixture_close(&fx);
	close_rig(&rig);
}

/* Words of a broken region lead to errors or to leaves of the tree, never out of it. */
TEST(sumtree_draw__garbage_in_the_region_stays_inside)
{
	uint64_t seed = test_seed("garbage", 77);
	struct rng rng;

	rng_seed(&rng, seed, 0);
	for (uint32_t round = 0; round < 60; round++) {
		struct tree_fixture fx;
		struct tree_handle h;
		struct forest from;
		int ret;

		tree_fixture_open(&fx, 1001, fanout);
		tree_handle_open(&h, &fx, 0, round & 1);
		cpu_level_limit((enum cpu_level)(round % 3));
		rng_fill_u64(&rng, (uint64_t *)(void *)(fx.bytes + fx.place.inner_off[0]),
			     (fx.size - fx.place.inner_off[0]) / 8);
		from = (struct forest){ &h.tree, &h.ep, 1, NULL };
		ret = sumtree_draw(&from, NULL, &rng, BATCH, &out);
		assert_true(ret == 0 || ret == -ENODATA);
		for (uint32_t i = 0; ret == 0 && i < BATCH; i++)
			assert_true(slot[i] < 1001);
		tree_handle_close(&h);
		tree_fixture_close(&fx);
	}
	cpu_level_limit(CPU_AVX512);
}

int main(void)
{
	return test_run(NULL, NULL);
}

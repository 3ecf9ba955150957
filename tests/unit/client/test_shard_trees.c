/*
 * Shard trees: the trees that a sampler draws from when shards are away, their shard numbers, and
 * the state kept of missing ones.
 */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include "client/writer/append.h"
#include "client/sampler/sampler.h"

#include <errno.h>
#include <string.h>

static const struct rlv_view plain_view = { .n_step = 1 };

/* Adopts the server's placement. */
static struct shard_trees *enter(struct nodes_rig *rig)
{
	struct handle *h = &rig->sampler->h;

	h->set.ask_ns = 0;
	assert_int_equal(handle_begin(h, 0), 0);
	return &rig->sampler->trees;
}

TEST(shard_trees_build__all_shards_have_their_own_numbers)
{
	struct nodes_rig *rig = nodes_rig_open(&plain_view, NODES_IN_PLACE, 3);
	uint32_t shards[] = { 2, 0, 1 };
	struct shard_trees *trees = enter(rig);

	assert_int_equal(trees->forest.n, 3);
	assert_false(trees->sparse);
	assert_true(trees->addressable);
	shard_trees_name_shards(trees, shards, 3);
	assert_int_equal(shards[0], 2);
	assert_int_equal(shards[1], 0);
	nodes_rig_close(rig);
}

TEST(shard_trees_build__without_a_shard_later_ones_move_up)
{
	struct nodes_rig *rig = nodes_rig_open(&plain_view, NODES_IN_PLACE, 3);
	uint32_t shards[] = { 0, 1, 1 };
	struct shard_trees *trees;

	nodes_set(&rig->nx, 1, RLV_SHARD_GONE, 0);
	trees = enter(rig);
	assert_int_equal(trees->forest.n, 2);
	assert_true(trees->sparse);
	shard_trees_name_shards(trees, shards, 3);
	assert_int_equal(shards[0], 0);
	assert_int_equal(shards[1], 2);
	assert_int_equal(shards[2], 2);
	assert_ptr_equal(trees->trees[1].region, handle_shard(&rig->sampler->h, 2)->tree);
	nodes_set(&rig->nx, 1, RLV_SHARD_ACTIVE, META_WEIGHT_FULL);
	trees = enter(rig);
	assert_int_equal(trees->forest.n, 3);
	assert_false(trees->sparse);
	nodes_rig_close(rig);
}

TEST(shard_trees_items__those_away_are_counted_apart)
{
	struct nodes_rig *rig = nodes_rig_open(&plain_view, NODES_WIRE, 3);
	struct shard_trees *trees;
	int64_t all, there;

	replay_append_plain(&rig->nx.fx, rig->writer, 0, 900);
	rlv_batch_release(rig->sampler, replay_sample(rig->sampler, 64));
	trees = enter(rig);
	all = shard_trees_items(trees);
	there = trees->items[1];
	assert_true(there > 0 && all > there);
	assert_int_equal(shard_trees_items_lost(trees, &rig->sampler->h.set), 0);
	nodes_cut(&rig->nx, 1, 1);
	rlv_batch_release(rig->sampler, replay_sample(rig->sampler, 64));
	assert_int_equal(shard_trees_items(trees), all - there);
	assert_int_equal(shard_trees_items_lost(trees, &rig->sampler->h.set), there);
	nodes_return(&rig->nx, 1);
	nodes_rig_close(rig);
}

/* -------- ordered views -------- */

/* Up to 64 items of a table of one shard. */
static int find(struct shard_trees *trees, uint32_t n, uint32_t slot[64], uint32_t *found_out)
{
	uint32_t shard[64];
	uint64_t word[64];
	const struct shard_trees_items out = { shard, slot, word };
	int ret = shard_trees_find(trees, n, &out, found_out);

	for (uint32_t i = 0; ret == 0 && i < *found_out; i++) {
		assert_int_equal(shard[i], 0);
		assert_true(leaf_priority(word[i]) > 0);
	}
	return ret;
}

static void expect_order(enum rlv_selector selector)
{
	const struct rlv_view view = { .n_step = 1, .selector = selector };
	struct nodes_rig *rig = nodes_rig_open(&view, NODES_WIRE, 1);
	struct shard_trees *trees = enter(rig);
	uint32_t slot[64], found;

	replay_expect(find(trees, 8, slot, &found), -ENODATA, "no item");
	replay_append_plain(&rig->nx.fx, rig->writer, 0, 40); /* more than a block */
	assert_int_equal(handle_flush(&rig->writer->h), 0);
	assert_int_equal(find(trees, 64, slot, &found), 0);
	assert_in_range(found, 36, 39);
	for (uint32_t i = 1; i < found; i++)
		assert_true(selector == RLV_FIFO ? slot[i] > slot[i - 1] : slot[i] < slot[i - 1]);
	assert_int_equal(trees->sizes[0], found);
	assert_int_equal(find(trees, 3, slot, &found), 0);
	assert_int_equal(found, 3);
	nodes_rig_close(rig);
}

TEST(shard_trees_find__fifo_begins_with_the_oldest)
{
	expect_order(RLV_FIFO);
}

TEST(shard_trees_find__lifo_begins_with_the_newest)
{
	expect_order(RLV_LIFO);
}

int main(void)
{
	return test_run(NULL, NULL);
}

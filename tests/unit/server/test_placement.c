#include "tests/support/test.h"

#include "catalog/placement.h"

#define GIB ((uint64_t)1 << 30)

static struct placement_node node_of(uint32_t shards, uint64_t free)
{
	return (struct placement_node){ .shards = shards, .free = free, .takes = true };
}

/* Does steps until there are none; how many. shards of the nodes are changed as they say. */
static uint32_t spread(struct placement_node *nodes, uint32_t n, uint32_t wanted)
{
	uint32_t steps = 0;

	for (;;) {
		struct placement_step step = placement_next(nodes, n, wanted);

		if (step.kind != PLACEMENT_ADD && step.kind != PLACEMENT_MOVE)
			return steps;
		nodes[step.to].shards++;
		if (step.kind == PLACEMENT_MOVE)
			nodes[step.from].shards--;
		assert_true(++steps < 1000);
	}
}

TEST(placement_pick__equals_take_turns)
{
	const struct placement_node nodes[] = { node_of(0, GIB), node_of(0, GIB), node_of(0, GIB) };
	uint32_t turn = 0, times[3] = { 0 };

	for (int i = 0; i < 9; i++)
		times[placement_pick(nodes, 3, &turn)]++;
	assert_int_equal(times[0], 3);
	assert_int_equal(times[1], 3);
	assert_int_equal(times[2], 3);
}

TEST(placement_pick__most_room_first)
{
	struct placement_node nodes[] = { node_of(0, GIB), node_of(0, 8 * GIB), node_of(0, GIB) };
	uint32_t turn = 0;

	for (int i = 0; i < 6; i++) {
		assert_int_equal(placement_pick(nodes, 3, &turn), 1);
		nodes[1].free -= GIB;
	}
}

TEST(placement_pick__who_takes_none_is_left_out)
{
	struct placement_node nodes[] = { node_of(0, GIB), node_of(0, 8 * GIB) };
	uint32_t turn = 0;

	nodes[1].takes = false;
	assert_int_equal(placement_pick(nodes, 2, &turn), 0);
	nodes[0].takes = false;
	assert_int_equal(placement_pick(nodes, 2, &turn), 2);
	assert_int_equal(placement_pick(nodes, 0, &turn), 0);
}

TEST(placement_next__a_spread_table_stays)
{
	struct placement_node nodes[] = { node_of(2, GIB), node_of(1, GIB), node_of(2, GIB) };

	assert_int_equal(placement_next(nodes, 3, 5).kind, PLACEMENT_DONE);
}

TEST(placement_next__one_that_joins_gets_its_share)
{
	struct placement_node nodes[] = { node_of(4, GIB), node_of(4, GIB), node_of(0, GIB) };

	assert_int_equal(spread(nodes, 3, 8), 2);
	assert_int_equal(nodes[0].shards, 3);
	assert_int_equal(nodes[1].shards, 3);
	assert_int_equal(nodes[2].shards, 2);
}

TEST(placement_next__one_shard_each_is_added_not_moved)
{
	struct placement_node nodes[] = { node_of(1, GIB), node_of(0, GIB) };
	struct placement_step step = placement_next(nodes, 2, 2);

	assert_int_equal(step.kind, PLACEMENT_ADD);
	assert_int_equal(step.to, 1);
}

TEST(placement_next__what_was_lost_is_added_where_fewest_are)
{
	struct placement_node nodes[] = { node_of(2, GIB), node_of(1, 8 * GIB), node_of(1, GIB) };
	struct placement_step step = placement_next(nodes, 3, 6);

	assert_int_equal(step.kind, PLACEMENT_ADD);
	assert_int_equal(step.to, 1);
	assert_int_equal(spread(nodes, 3, 6), 2);
}

/* The node may return with all its parts. */
TEST(placement_next__shards_of_a_node_that_is_down_count)
{
	struct placement_node nodes[] = { node_of(2, GIB), node_of(2, GIB), node_of(2, GIB) };

	nodes[2].takes = false;
	assert_int_equal(placement_next(nodes, 3, 6).kind, PLACEMENT_DONE);
}

TEST(placement_next__all_shards_leave_a_node_that_leaves)
{
	struct placement_node nodes[] = { node_of(3, GIB), node_of(3, GIB), node_of(3, GIB) };

	nodes[1].takes = false;
	nodes[1].leaves = true;
	assert_int_equal(spread(nodes, 3, 9), 3);
	assert_int_equal(nodes[1].shards, 0);
	assert_true(nodes[0].shards + nodes[2].shards == 9);
	assert_true(nodes[0].shards >= 4 && nodes[2].shards >= 4);
}

TEST(placement_next__the_only_node_cannot_leave)
{
	struct placement_node nodes[] = { node_of(1, GIB) };

	nodes[0].takes = false;
	nodes[0].leaves = true;
	assert_int_equal(placement_next(nodes, 1, 1).kind, PLACEMENT_STUCK);
}

TEST(placement_next__no_nodes)
{
	assert_int_equal(placement_next(NULL, 0, 4).kind, PLACEMENT_DONE);
}

int main(void)
{
	return test_run(NULL, NULL);
}

/*
 * A part set: its use of the server's placements, the times of its requests, and each shard's share
 * of new blocks.
 */
#include "tests/support/fixture/nodes_fixture.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#define RAMP_NS ((uint64_t)1000 * CLOCK_NS_PER_S)
#define PATIENCE_NS (20 * CLOCK_NS_PER_MS)

struct rig {
	struct nodes_fixture nx;
	struct part_set set;
	struct fake_clock clock;
};

static struct rig *open_shards(uint32_t shards)
{
	const struct nodes_opts opts = { .nodes = 2, .table = { .shards = shards } };
	struct part_set like = { .access = *META_LOOKS };
	static struct rig rig;
	struct meta_opened opened;

	memset(&rig, 0, sizeof(rig));
	nodes_open(&rig.nx, &opts);
	like.meta = &rig.nx.meta;
	like.object = nodes_object(&rig.nx);
	like.kind = &table_kind;
	like.desc = &rig.nx.desc;
	assert_int_equal(like.meta->ops->open(like.meta, &like.object, &like.access, 1, &opened),
			 0);
	assert_int_equal(part_set_open(&like, &opened.place, DEADLINE_NEVER, &rig.set), 0);
	meta_opened_fini(&opened);
	fake_clock_init(&rig.clock, (uint64_t)1 << 62);
	rig.set.clock = &rig.clock.clock;
	part_set_begin(&rig.set, DEADLINE_NEVER, PATIENCE_NS);
	return &rig;
}

static struct rig *open_rig(void)
{
	return open_shards(2);
}

static void close_rig(struct rig *rig)
{
	part_set_close(&rig->set);
	nodes_close(&rig->nx);
}

static void heal(struct rig *rig)
{
	assert_int_equal(part_set_heal(&rig->set), 0);
}

/* -------- shares -------- */

TEST(part_set_weight__rises_to_its_whole_within_the_ramp)
{
	struct rig *rig = open_rig();
	uint64_t now;

	rig->nx.ramp_ns = RAMP_NS;
	nodes_set(&rig->nx, 1, RLV_SHARD_ACTIVE, 200);
	heal(rig);
	now = rig->set.statuses[1].weight_ns;
	assert_int_equal(part_set_weight(&rig->set, 1, now), 200);
	assert_int_equal(part_set_weight(&rig->set, 1, now + RAMP_NS / 2), 600);
	assert_int_equal(part_set_weight(&rig->set, 1, now + RAMP_NS), META_WEIGHT_FULL);
	assert_int_equal(part_set_weight(&rig->set, 1, now + 9 * RAMP_NS), META_WEIGHT_FULL);
	assert_int_equal(part_set_weight(&rig->set, 1, now - 1), 200); /* clocks of CPUs differ */
	close_rig(rig);
}

TEST(part_set_weight__of_shards_that_take_no_blocks_is_0)
{
	struct rig *rig = open_rig();

	nodes_set(&rig->nx, 0, RLV_SHARD_DRAINING, META_WEIGHT_FULL);
	nodes_set(&rig->nx, 1, RLV_SHARD_GONE, META_WEIGHT_FULL);
	heal(rig);
	assert_non_null(rig->set.parts[0]);
	assert_null(rig->set.parts[1]);
	assert_int_equal(part_set_weight(&rig->set, 0, 0), 0);
	assert_int_equal(part_set_weight(&rig->set, 1, 0), 0);
	close_rig(rig);
}

/* -------- taking up -------- */

TEST(part_set_heal__another_life_of_a_node_is_another_memory)
{
	struct rig *rig = open_rig();
	uint64_t opened = rig->set.statuses[1].opened, other = rig->set.statuses[0].opened;

	heal(rig);
	assert_int_equal(rig->set.statuses[1].opened, opened);
	rig->nx.nodes[1].target->incarnation++;
	heal(rig);
	assert_non_null(rig->set.parts[1]);
	assert_true(rig->set.statuses[1].opened > opened); /* closed, and opened anew */
	assert_int_equal(rig->set.statuses[0].opened, other);
	close_rig(rig);
}

TEST(part_set_heal__what_the_server_cannot_reach_is_used_on)
{
	struct rig *rig = open_rig();

	nodes_set(&rig->nx, 1, RLV_SHARD_DOWN, 0);
	heal(rig);
	assert_non_null(rig->set.parts[1]);
	assert_int_equal(rig->set.statuses[1].state, RLV_SHARD_ACTIVE);
	assert_false(rig->set.statuses[1].granted);
	nodes_set(&rig->nx, 1, RLV_SHARD_LOST, 0);
	heal(rig);
	assert_null(rig->set.parts[1]);
	assert_int_equal(rig->set.statuses[1].state, RLV_SHARD_LOST);
	close_rig(rig);
}

TEST(part_set_heal__a_dropped_table_is_an_error)
{
	struct rig *rig = open_rig();

	rig->nx.server_away = true; /* and this is none */
	assert_int_equal(part_set_heal(&rig->set), 0);
	assert_int_equal(rig->set.asked, 1);
	rig->nx.server_away = false;
	rig->nx.dropped = true;
	assert_int_equal(part_set_heal(&rig->set), -ESTALE);
	rig->nx.dropped = false;
	close_rig(rig);
}

/* -------- turns -------- */

TEST(part_turn_next__few_parts_are_looked_at_in_each_call)
{
	struct part_turn turn = { 0 };

	for (uint32_t call = 0; call < 3; call++) {
		part_turn_next(&turn, PART_FEW, 0);
		assert_int_equal(turn.first, 0);
		assert_int_equal(turn.end, PART_FEW);
	}
}

TEST(part_turn_next__many_parts_take_turns_and_all_after_a_time)
{
	const uint32_t n = PART_FEW + 1;
	const uint64_t began = 9 * PART_TURN_NS;
	struct part_turn turn = { 0 };

	part_turn_next(&turn, n, began); /* the first call */
	assert_int_equal(turn.first, 0);
	assert_int_equal(turn.end, n);
	for (uint32_t at = 0; at < n; at += PART_LOOKS) {
		part_turn_next(&turn, n, began + 1);
		assert_int_equal(turn.first, at);
		assert_int_equal(turn.end, at + PART_LOOKS < n ? at + PART_LOOKS : n);
	}
	part_turn_next(&turn, n, began + 2);
	part_turn_next(&turn, n, began + 1 + PART_TURN_NS);
	assert_int_equal(turn.first, PART_LOOKS);
	part_turn_next(&turn, n, began + 2 + PART_TURN_NS);
	assert_int_equal(turn.first, 0);
	assert_int_equal(turn.end, n);
}

/* The last of many shards is orphaned: the calls of one turn find it, or the first one after 1 ms. */
static void find_orphan(uint64_t pause_ns, uint32_t calls_min, uint32_t calls_max)
{
	struct rig *rig = open_shards(12);
	struct part *last = &rig->nx.shards[11]->part;
	uint32_t calls = 0;

	assert_int_equal(part_set_enter(&rig->set), 0); /* looks at all */
	assert_int_equal(part_set_enter(&rig->set), 0);
	assert_int_equal(part_set_state(last, REGION_ORPHANED), 0);
	while (rig->set.parts[11] && calls < 20) {
		fake_clock_advance(&rig->clock, pause_ns);
		assert_int_equal(part_set_enter(&rig->set), 0);
		calls++;
	}
	assert_in_range(calls, calls_min, calls_max);
	assert_int_equal(rig->set.n_up, 11);
	close_rig(rig);
}

TEST(part_set_enter__finds_an_orphan_among_many_shards_in_a_turn)
{
	find_orphan(0, 5, 6);
}

TEST(part_set_enter__finds_an_orphan_among_many_shards_after_the_time_of_a_turn)
{
	find_orphan(PART_TURN_NS, 1, 1);
}

/* -------- when to ask -------- */

TEST(part_set_is_due__only_when_there_is_something_to_ask)
{
	struct rig *rig = open_rig();

	assert_false(part_set_is_due(&rig->set));
	atomic_store(&rig->nx.meta.layout, rig->set.layout + 1); /* heard with a lease */
	assert_true(part_set_is_due(&rig->set));
	atomic_store(&rig->nx.meta.layout, rig->set.layout);
	nodes_set(&rig->nx, 1, RLV_SHARD_DOWN, 0);
	nodes_cut(&rig->nx, 1, 1);
	rig->set.nodes[rig->set.statuses[1].node].tr->broken = -ECONNRESET;
	assert_int_equal(part_set_drop(&rig->set), 1);
	assert_true(part_set_is_due(&rig->set));
	close_rig(rig);
}

/* Half of 50 ms to all of it, then twice that, and 2 s at most. */
TEST(part_set_heal__asks_less_and_less_while_shards_are_away)
{
	struct rig *rig = open_rig();
	uint64_t most = 50 * CLOCK_NS_PER_MS;

	nodes_cut(&rig->nx, 1, 1);
	rig->set.nodes[rig->set.statuses[1].node].tr->broken = -ECONNRESET;
	part_set_drop(&rig->set);
	for (uint32_t i = 0; i < 10; i++) {
		uint64_t pause;

		heal(rig);
		most = 2 * most < 2 * (uint64_t)CLOCK_NS_PER_S ? 2 * most
							       : 2 * (uint64_t)CLOCK_NS_PER_S;
		pause = rig->set.ask_ns - rig->set.asked_ns;
		assert_in_range(pause, most / 2, most);
		assert_false(part_set_is_due(&rig->set));
		fake_clock_advance(&rig->clock, pause);
		assert_true(part_set_is_due(&rig->set));
	}
	nodes_return(&rig->nx, 1);
	heal(rig);
	assert_int_equal(rig->set.n_away, 0);
	assert_int_equal(rig->set.asked, 0);
	assert_false(part_set_is_due(&rig->set));
	close_rig(rig);
}

int main(void)
{
	return test_run(NULL, NULL);
}

/*
 * The catalog over nodes in this process, with a simulated clock: new shards, leaving shards, the
 * control shard, nodes that return with or without their regions.
 */
#include "tests/support/fixture/fleet.h"
#include "tests/support/must_internal.h"

#include "ds/part/slot.h"
#include "ds/sumtree/nodes.h"

#include "wire/region.h"

#include <errno.h>
#include <string.h>

#define ACTIVE PART_ACTIVE
#define DRAINING PART_DRAINING
#define DOWN PART_DOWN
#define LOST PART_LOST
#define GONE PART_GONE

/* A word of a shard, changed as a client would. */
static void add(struct fleet *fx, uint32_t s, uint64_t off, uint64_t value)
{
	uint64_t old;

	must(transport_faa_word(fx->table->attached[s]->tree, off, value, &old));
}

static uint64_t word(struct fleet *fx, uint32_t s, size_t member)
{
	const struct shard *shard = shard_of(fx->table->attached[s]);
	uint64_t value;

	must(transport_load(shard->part.limits, shard_limits_off(shard, 0) + member, &value));
	return value;
}

static void count(struct fleet *fx, uint32_t s, size_t member, uint64_t value)
{
	const struct shard *shard = shard_of(fx->table->attached[s]);
	uint64_t old;

	must(transport_faa_word(shard->part.limits, shard_limits_off(shard, 0) + member, value,
				&old));
}

/* Blocks are claimed in shard s. */
static void claim(struct fleet *fx, uint32_t s, uint64_t blocks)
{
	const struct shard *shard = shard_of(fx->table->attached[s]);

	add(fx, s, shard_word_off(shard, offsetof(struct shard_words, head)), blocks);
}

/* n items are in shard s, as its sums say. */
static void put_items(struct fleet *fx, uint32_t s, uint64_t n)
{
	const struct sumtree *tree = &shard_of(fx->table->attached[s])->trees[0];

	add(fx, s, node_size_off(tree, 0), n);
	add(fx, s, node_size_off(tree, 1), n);
}

#define CASE(f) TEST_WITH(f, fleet_setup, fleet_teardown)

/* -------- placing -------- */

CASE(catalog_create__shards_go_round)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 4, false);
	assert_int_equal(catalog_parts_of(&fx->cat, fx->node[0], NULL), 2);
	assert_int_equal(catalog_parts_of(&fx->cat, fx->node[1], NULL), 2);
}

CASE(catalog_create__auto_is_one_for_each_node)
{
	const struct table_wish wish = fleet_wish(1, true);
	struct fleet *fx = *state;
	struct catalog_object *again = NULL;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 1, true);
	assert_int_equal(fx->table->n_parts, 2);
	assert_int_equal(table_state_of(fx->table)->desc.n_shards, 2);
	must(fleet_create(fx, &wish, &again));
	assert_ptr_equal(again, fx->table);
}

CASE(catalog_create__auto_takes_fewer_where_the_capacity_is_small)
{
	struct table_wish wish = fleet_wish(1, true);
	struct fleet *fx = *state;

	for (uint32_t n = 0; n < 3; n++)
		fleet_start(fx, n);
	wish.desc.capacity = 200;
	must(table_plan(&wish.desc, &wish.opts));
	must(fleet_create(fx, &wish, &fx->table));
	assert_in_range(fx->table->n_parts, 1, 2);
}

/* Waits until a node is known by its address; the server's own attachments exist already. */
static void reach_by_rdma(struct fleet *fx, uint32_t n)
{
	const uint32_t none = 4711;
	struct region *region;

	assert_int_equal(node_attach(fx->node[n], &none, 1, &region), -EAGAIN);
	fleet_settle(fx);
	assert_non_null(fx->node[n]->tr);
	snprintf(fx->node[n]->uri, sizeof(fx->node[n]->uri), "verbs:host:1");
}

/* Nodes that are reached over a wire: fewer levels, each of them wider. */
CASE(catalog_create__over_rdma_the_tree_is_wide)
{
	struct table_wish wish = fleet_wish(1, false);
	struct fleet *fx = *state;
	struct catalog_object *again = NULL;

	wish.desc.capacity = 100000; /* which a tree over a wire needs two levels for */
	must(table_plan(&wish.desc, &wish.opts));
	fleet_start(fx, 0);
	reach_by_rdma(fx, 0);
	must(fleet_create(fx, &wish, &fx->table));
	assert_true(table_state_of(fx->table)->desc.tree.fanout[0] > wish.desc.tree.fanout[0]);
	must(fleet_create(fx, &wish, &again));
	assert_ptr_equal(again, fx->table);
}

CASE(catalog_create__a_fanout_that_was_wished_is_kept)
{
	static const uint16_t fanout[] = { 8, 8, 0 };
	struct table_wish wish = fleet_wish(1, false);
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	reach_by_rdma(fx, 0);
	wish.opts.fanout = fanout;
	must(table_plan(&wish.desc, &wish.opts));
	must(fleet_create(fx, &wish, &fx->table));
	assert_int_equal(table_state_of(fx->table)->desc.tree.fanout[0], 8);
}

CASE(catalog_spread_step__a_node_that_joins_gets_a_new_number)
{
	struct fleet *fx = *state;
	uint64_t ramp, layout;

	fleet_start(fx, 0);
	fleet_make_table(fx, 1, true);
	layout = fx->table->layout;
	fleet_start(fx, 1);
	fleet_tick(fx, 1);
	assert_int_equal(fx->table->n_parts, 2);
	assert_int_equal(fleet_view(fx, 1), ACTIVE);
	assert_ptr_equal(fx->table->parts[1].node, fx->node[1]);
	assert_true(fx->table->layout > layout);
	assert_int_equal(shard_of(fx->table->attached[1])->desc.shard, 1);
	/* A new shard's share of new blocks rises over time. */
	assert_int_equal(catalog_weight(&fx->cat, &fx->table->parts[1], &ramp), 100);
	assert_true(ramp == FLEET_RAMP_NS);
	fake_clock_advance(&fx->clock, FLEET_RAMP_NS / 2);
	assert_int_equal(catalog_weight(&fx->cat, &fx->table->parts[1], &ramp), 550);
	fake_clock_advance(&fx->clock, FLEET_RAMP_NS / 2);
	assert_int_equal(catalog_weight(&fx->cat, &fx->table->parts[1], &ramp), 1000);
	assert_true(ramp == 0);
}

#define FILLERS 64u

/* Regions of the largest sizes that there is room for, of no table's. Returns how many. */
static uint32_t fill_up(struct transport_target *target, uint32_t ids[FILLERS])
{
	struct target_region spec = {
		.kind = OBJECT_TABLE, .object = 99, .role = REGION_ROWS, .size = 32 << 20
	};
	uint32_t n = 0;

	while (spec.size >= 4096 && n < FILLERS) {
		if (target->ops->register_region(target, &spec) == 0)
			ids[n++] = spec.id;
		else
			spec.size /= 2;
	}
	return n;
}

/* The node says nothing when it has room again. */
CASE(catalog_spread_step__what_failed_is_tried_again)
{
	struct fleet *fx = *state;
	uint32_t asked, n, ids[FILLERS];

	fleet_start(fx, 0);
	fleet_make_table(fx, 1, true);
	fleet_start(fx, 1);
	n = fill_up(fx->mem[1].target, ids);
	fleet_tick(fx, 1);
	assert_int_equal(fx->table->n_parts, 1);
	asked = atomic_load(&fx->mem[1].requests);
	fleet_tick(fx, CLOCK_NS_PER_S / 2);
	assert_int_equal(atomic_load(&fx->mem[1].requests), asked);
	while (n-- > 0)
		must(fx->mem[1].target->ops->unregister_region(fx->mem[1].target, ids[n]));
	fleet_tick(fx, CLOCK_NS_PER_S);
	assert_int_equal(fx->table->n_parts, 2);
	assert_ptr_equal(fx->table->parts[1].node, fx->node[1]);
}

CASE(catalog_add_shard__who_holds_a_slot_has_it_there)
{
	const struct slot_holder holder = { .client_id = 77 };
	struct fleet *fx = *state;
	struct slot_info info;
	uint32_t owner;

	fleet_start(fx, 0);
	fleet_make_table(fx, 1, false);
	must(slots_get(&fx->table->slots, &holder, 1, &owner));
	must(fleet_add_shard(fx, 0));
	must(slot_read(fx->table->attached[1], owner - 1, &info));
	assert_int_equal(info.state, SLOT_LIVE);
	assert_true(info.lease == 77);
}

CASE(catalog_add_shard__no_room_leaves_nothing)
{
	struct fleet *fx = *state;
	struct target_stats before, after;
	int ret = 0;

	fleet_start(fx, 0);
	fleet_make_table(fx, 1, false);
	for (uint32_t i = 0; ret == 0 && i < 100; i++) {
		fx->mem[0].target->ops->stats(fx->mem[0].target, &before);
		ret = fleet_add_shard(fx, 0);
	}
	assert_int_equal(ret, -ENOSPC);
	fx->mem[0].target->ops->stats(fx->mem[0].target, &after);
	assert_true(after.used_bytes == before.used_bytes);
	assert_true(fx->table->n_parts > 2);
	assert_int_equal(fx->table->slots.n_parts, fx->table->n_parts);
}

/* -------- nodes that go and come -------- */

CASE(catalog_refresh__down_and_up_are_layouts)
{
	struct fleet *fx = *state;
	uint64_t layout;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	layout = fx->table->layout;
	fleet_tick(fx, 1);
	assert_true(fx->table->layout == layout);
	fleet_go_down(fx, 1);
	fleet_tick(fx, 1);
	assert_int_equal(fleet_view(fx, 1), DOWN);
	assert_true(fx->table->layout == layout + 1);
	fleet_join(fx, 1);
	fleet_tick(fx, 1);
	assert_int_equal(fleet_view(fx, 1), ACTIVE);
	assert_true(fx->table->layout == layout + 2);
	assert_true(catalog_newest_layout(&fx->cat) == layout + 2);
}

CASE(catalog_node_up__another_life_in_memory_has_lost_its_shards)
{
	struct fleet *fx = *state;
	char was[NODE_URI_BYTES];

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	snprintf(was, sizeof(was), "%s", fx->node[1]->uri);
	fleet_go_down(fx, 1);
	assert_string_equal(catalog_part_uri(fx->table, 1), was);
	memory_node_close(&fx->mem[1]);
	fleet_start(fx, 1);
	assert_string_not_equal(fx->node[1]->uri, was);
	assert_string_equal(catalog_part_uri(fx->table, 1), was);
	assert_int_equal(fleet_view(fx, 1), LOST);
	assert_int_equal(fleet_view(fx, 0), ACTIVE);
	assert_int_equal(catalog_parts_of(&fx->cat, fx->node[1], NULL), 0);
}

/* A node that was declared lost returns with all its regions: they are not wanted any more. */
CASE(catalog_node_up__what_was_lost_is_freed)
{
	struct fleet *fx = *state;
	struct target_stats stats;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	fleet_go_down(fx, 1);
	must(nodes_drop(&fx->nodes, fx->node[1]));
	assert_int_equal(fleet_view(fx, 1), LOST);
	fleet_join(fx, 1);
	assert_int_equal(fleet_view(fx, 1), LOST);
	fleet_settle(fx);
	fx->mem[1].target->ops->stats(fx->mem[1].target, &stats);
	assert_int_equal(stats.regions, 0);
}

CASE(catalog_load__lost_and_added_shards_are_remembered)
{
	struct fleet *fx = *state;
	uint64_t layout;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	must(fleet_add_shard(fx, 0));
	fleet_go_down(fx, 1);
	must(nodes_drop(&fx->nodes, fx->node[1]));
	fleet_tick(fx, 1);
	layout = fx->table->layout;
	memory_node_hang_up(&fx->mem[0]);
	catalog_fini(&fx->cat);
	nodes_fini(&fx->nodes);
	fleet_load(fx);
	fleet_join(fx, 0);
	fx->table = catalog_find(&fx->cat, "t");
	assert_int_equal(fx->table->n_parts, 3);
	assert_int_equal(fleet_view(fx, 0), ACTIVE);
	assert_int_equal(fleet_view(fx, 1), LOST);
	assert_int_equal(fleet_view(fx, 2), ACTIVE);
	assert_true(fx->table->layout >= layout);
}

/* -------- the control shard -------- */

CASE(catalog_control__lost_and_another_counts_on)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	assert_int_equal(fx->table->control, 0);
	count(fx, 0, offsetof(struct view_limits, ins_admitted), 110);
	count(fx, 0, offsetof(struct view_limits, ins_committed), 100);
	count(fx, 0, offsetof(struct view_limits, smp_admitted), 60);
	count(fx, 0, offsetof(struct view_limits, smp_committed), 50);
	fleet_tick(fx, 2 * (uint64_t)CLOCK_NS_PER_S); /* reads them */
	count(fx, 0, offsetof(struct view_limits, ins_committed), 7);
	fleet_go_down(fx, 0);
	fleet_tick(fx, 2 * (uint64_t)CLOCK_NS_PER_S);
	assert_int_equal(fx->table->control, 0); /* it may come back */
	must(nodes_drop(&fx->nodes, fx->node[0]));
	fleet_tick(fx, 1);
	assert_int_equal(fx->table->control, 1);
	/* Steps that were admitted and not committed are admitted again by their client. */
	assert_true(word(fx, 1, offsetof(struct view_limits, ins_admitted)) == 100);
	assert_true(word(fx, 1, offsetof(struct view_limits, ins_committed)) == 100);
	assert_true(word(fx, 1, offsetof(struct view_limits, smp_admitted)) == 50);
	assert_true(word(fx, 1, offsetof(struct view_limits, smp_committed)) == 50);
}

CASE(catalog_control__never_read_counts_what_is_there)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	put_items(fx, 1, 42);
	table_state_of(fx->table)->words_known = false;
	fleet_go_down(fx, 0);
	must(nodes_drop(&fx->nodes, fx->node[0]));
	fx->cat.next_reading = UINT64_MAX;
	fleet_tick(fx, 1);
	assert_int_equal(fx->table->control, 1);
	assert_true(word(fx, 1, offsetof(struct view_limits, ins_committed)) == 42);
}

/* -------- draining -------- */

CASE(catalog_drain__empty_goes_when_clients_know)
{
	struct fleet *fx = *state;
	struct target_stats stats;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	fx->all_know = false;
	must(catalog_drain(&fx->cat, fx->table, 1));
	assert_int_equal(fleet_view(fx, 1), DRAINING);
	fleet_tick(fx, 1);
	assert_int_equal(fleet_view(fx, 1), GONE);
	assert_true(fx->table->layout == catalog_newest_layout(&fx->cat));
	fleet_tick(fx, 1);
	assert_true(fx->asked == fx->table->layout);
	assert_non_null(fx->table->attached[1]); /* somebody may be drawing there */
	fx->all_know = true;
	fleet_tick(fx, 1);
	assert_null(fx->table->attached[1]);
	fx->mem[1].target->ops->stats(fx->mem[1].target, &stats);
	assert_int_equal(stats.regions, 0);
	assert_int_equal(catalog_parts_of(&fx->cat, fx->node[1], NULL), 0);
}

CASE(catalog_drain__clients_that_are_stopped_have_their_time)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	fx->all_know = false;
	must(catalog_drain(&fx->cat, fx->table, 1));
	fleet_tick(fx, 1);
	fleet_tick(fx, FLEET_PATIENCE_NS - 1);
	assert_non_null(fx->table->attached[1]);
	fleet_tick(fx, 1);
	assert_null(fx->table->attached[1]);
}

CASE(catalog_drain__goes_when_the_others_took_in_as_much)
{
	struct fleet *fx = *state;
	struct catalog_leaving leaving;
	uint64_t block;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	block = table_state_of(fx->table)->desc.block;
	put_items(fx, 1, 3 * block);
	must(catalog_drain(&fx->cat, fx->table, 1));
	fleet_tick(fx, 1);
	claim(fx, 0, 2);
	fleet_tick(fx, 1);
	assert_int_equal(fleet_view(fx, 1), DRAINING);
	assert_int_equal(catalog_parts_of(&fx->cat, fx->node[1], &leaving), 1);
	assert_true(leaving.items_begin == 3 * block);
	assert_true(leaving.items_left == block);
	claim(fx, 1, 5); /* of its own do not count */
	fleet_tick(fx, 1);
	assert_int_equal(fleet_view(fx, 1), DRAINING);
	claim(fx, 0, 1);
	fleet_tick(fx, 1);
	assert_int_equal(fleet_view(fx, 1), GONE);
}

/* A slow actor fills it still. */
CASE(catalog_drain__an_open_block_is_waited_for)
{
	struct fleet *fx = *state;
	const struct shard *shard;
	uint64_t old;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	shard = shard_of(fx->table->attached[1]);
	must(transport_cas_word(shard->tree, shard_header_off(shard, 3), 0, block_make(true, 1, 3),
				&old));
	must(catalog_drain(&fx->cat, fx->table, 1));
	fleet_tick(fx, 1);
	fleet_tick(fx, FLEET_PATIENCE_NS);
	assert_int_equal(fleet_view(fx, 1), DRAINING);
	must(transport_cas_word(shard->tree, shard_header_off(shard, 3), block_make(true, 1, 3),
				block_make(false, 1, 3), &old));
	fleet_tick(fx, 1);
	assert_int_equal(fleet_view(fx, 1), GONE);
}

/*
 * A client that does not know the new control shard counts at the old one: those counts are kept.
 */
CASE(catalog_drain__the_control_shard_hands_its_counts_over)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	count(fx, 0, offsetof(struct view_limits, ins_admitted), 100);
	count(fx, 0, offsetof(struct view_limits, ins_committed), 100);
	fx->all_know = false;
	must(catalog_drain(&fx->cat, fx->table, 0));
	fleet_tick(fx, 1);
	assert_int_equal(fx->table->control, 1);
	assert_int_equal(fleet_view(fx, 0), DRAINING);
	assert_true(word(fx, 1, offsetof(struct view_limits, ins_committed)) == 100);
	count(fx, 0, offsetof(struct view_limits, ins_committed), 5);
	count(fx, 0, offsetof(struct view_limits, smp_committed), 3);
	count(fx, 1, offsetof(struct view_limits, ins_committed), 10);
	fx->all_know = true;
	fleet_tick(fx, 1);
	assert_int_equal(fleet_view(fx, 0), GONE);
	assert_true(word(fx, 1, offsetof(struct view_limits, ins_committed)) == 115);
	assert_true(word(fx, 1, offsetof(struct view_limits, ins_admitted)) == 105);
	assert_true(word(fx, 1, offsetof(struct view_limits, smp_committed)) == 3);
}

CASE(catalog_spread_step__a_node_that_leaves_hands_all_on)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	fleet_start(fx, 1);
	fleet_make_table(fx, 2, false);
	must(nodes_set_draining(&fx->nodes, fx->node[1], true));
	catalog_spread_soon(fx->table);
	for (int i = 0; i < 10; i++)
		fleet_tick(fx, (uint64_t)CLOCK_NS_PER_S);
	assert_int_equal(catalog_parts_of(&fx->cat, fx->node[1], NULL), 0);
	assert_int_equal(catalog_parts_of(&fx->cat, fx->node[0], NULL), 2);
	assert_int_equal(fleet_view(fx, 1), GONE);
	assert_int_equal(fleet_view(fx, 2), ACTIVE);
}

int main(void)
{
	if (test_skips_valgrind("no pidfds"))
		return TEST_EXIT_SKIP;
	if (test_skips_msan("SQLite"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}

/*
 * Nodes on files that die and begin anew: what of their rows is believed.
 */
#include "tests/support/fleet.h"
#include "tests/support/shard_fixture.h"
#include "tests/support/test.h"

#include <string.h>

static void must(int ret)
{
	if (ret)
		fail_msg("%s", error_last());
}

/* The node dies, and begins anew on its file, in the same boot of its host or in the next one. */
static void begin_anew(struct fleet *fx, uint32_t n, bool same_boot)
{
	fleet_go_down(fx, n);
	fx->mem[n].boot_id[0] += !same_boot;
	memory_node_restart(&fx->mem[n]);
	fleet_join(fx, n);
	assert_int_equal(fleet_view(fx, n), RELIVE__SHARD_STATE__SHARD_ACTIVE);
}

/* A block of items in shard 0, of which the bytes of the last row are not as they were sealed. */
static uint32_t put_block_with_a_torn_row(struct fleet *fx)
{
	struct shard *shard = fx->table->attached[0];
	struct access acc;
	uint32_t first;

	shard_fixture_take_slot(shard, 1);
	shard_fixture_access(shard, 1, &acc);
	first = shard_fixture_fill_block(&acc, 100);
	access_close(&acc);
	shard->rows->base[shard_row_off(shard, first + shard->desc.block - 1)] ^= 1;
	return shard->desc.block;
}

static uint32_t live_items(struct fleet *fx)
{
	const struct shard *shard = fx->table->attached[0];
	uint32_t n = 0;

	for (uint32_t i = 0; i < shard->desc.slots; i++) {
		uint64_t leaf;

		must(transport_load(shard->tree, shard_leaf_off(shard, 0, i), &leaf));
		n += leaf_priority(leaf) != 0;
	}
	return n;
}

static void catalog_node_up__after_a_power_loss_no_torn_row_is_given_out(void **state)
{
	struct fleet *fx = *state;
	uint32_t items;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	items = put_block_with_a_torn_row(fx);
	begin_anew(fx, 0, false);
	assert_int_equal(live_items(fx), items - 1);
}

/* The kernel keeps what was stored: nobody reads all rows for that. */
static void catalog_node_up__after_a_kill_rows_are_what_was_stored(void **state)
{
	struct fleet *fx = *state;
	uint32_t items;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	items = put_block_with_a_torn_row(fx);
	begin_anew(fx, 0, true);
	assert_int_equal(live_items(fx), items);
}

/* The server was away, or died before it had looked: what counts is the boot of the last look. */
static void catalog_load__in_which_boot_rows_were_whole_is_remembered(void **state)
{
	struct fleet *fx = *state;
	uint32_t items;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	items = put_block_with_a_torn_row(fx);
	memory_node_hang_up(&fx->mem[0]);
	catalog_fini(&fx->cat);
	nodes_fini(&fx->nodes);
	fleet_load(fx);
	fx->table = catalog_find(&fx->cat, "t");
	fx->mem[0].boot_id[0]++;
	memory_node_restart(&fx->mem[0]);
	fleet_join(fx, 0);
	assert_int_equal(live_items(fx), items - 1);
}

static void catalog_create__rows_of_persistent_nodes_get_checksums(void **state)
{
	struct catalog_wish wish = fleet_wish(1, false);
	struct fleet *fx = *state;

	fleet_start_on_file(fx, 0);
	must(fleet_create(fx, &wish, &fx->table));
	assert_int_equal(fx->table->desc.flags, 0); /* not wished for */
	snprintf(wish.desc.name, sizeof(wish.desc.name), "%s", "by_nodes");
	wish.crc_by_nodes = true;
	must(table_plan(&wish.desc, &wish.opts));
	must(fleet_create(fx, &wish, &fx->table));
	assert_int_equal(fx->table->desc.flags, TABLE_ROW_CRC);
	must(fleet_create(fx, &wish, &fx->table)); /* finds it */
}

static void catalog_create__rows_in_memory_need_no_checksums(void **state)
{
	struct catalog_wish wish = fleet_wish(1, false);
	struct fleet *fx = *state;

	wish.crc_by_nodes = true;
	fleet_start(fx, 0);
	must(fleet_create(fx, &wish, &fx->table));
	assert_int_equal(fx->table->desc.flags, 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, fleet_setup, fleet_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(catalog_node_up__after_a_power_loss_no_torn_row_is_given_out),
		CASE(catalog_node_up__after_a_kill_rows_are_what_was_stored),
		CASE(catalog_load__in_which_boot_rows_were_whole_is_remembered),
		CASE(catalog_create__rows_of_persistent_nodes_get_checksums),
		CASE(catalog_create__rows_in_memory_need_no_checksums),
	};

	if (test_skips_valgrind("no pidfds"))
		return TEST_EXIT_SKIP;
	if (test_skips_msan("SQLite"))
		return TEST_EXIT_SKIP;
	return TEST_RUN(tests, NULL, NULL);
}

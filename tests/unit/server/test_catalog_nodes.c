/* Nodes with pools in files that die and restart: which of their rows are accepted. */
#include "tests/support/fixture/fleet.h"
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/must_internal.h"

#include <errno.h>
#include "transport/pool/region_name.h"
#include "wire/region.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static void expect_active(struct fleet *fx)
{
	assert_int_equal(fleet_view(fx, 0), PART_ACTIVE);
}

/* The node is killed, and begins anew on its file. */
static void begin_anew(struct fleet *fx)
{
	fleet_go_down(fx, 0);
	memory_node_restart(&fx->mem[0]);
	fleet_join(fx, 0);
}

/* The same after a clean end. */
static void end_and_begin_anew(struct fleet *fx)
{
	fleet_go_down(fx, 0);
	memory_node_end_and_restart(&fx->mem[0]);
	fleet_join(fx, 0);
}

/* A block of items in shard 0, of which the bytes of the last row are not as they were sealed. */
static uint32_t put_block_with_a_torn_row(struct fleet *fx)
{
	struct shard *shard = shard_of(fx->table->attached[0]);
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
	const struct shard *shard = shard_of(fx->table->attached[0]);
	uint32_t n = 0;

	for (uint32_t i = 0; i < shard->desc.slots; i++) {
		uint64_t leaf;

		must(transport_load(shard->tree, shard_leaf_off(shard, 0, i), &leaf));
		n += leaf_priority(leaf) != 0;
	}
	return n;
}

#define CASE(f) TEST_WITH(f, fleet_setup, fleet_teardown)

/* A kill, or a copy put in its place: nothing but the mark tells one from the other. */
CASE(catalog_node_up__of_a_file_that_was_not_closed_reads_all_rows)
{
	struct fleet *fx = *state;
	uint32_t items;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	items = put_block_with_a_torn_row(fx);
	fleet_go_down(fx, 0);
	memory_node_restart(&fx->mem[0]);
	fleet_join(fx, 0);
	assert_int_equal(fleet_view(fx, 0), PART_ACTIVE);
	assert_int_equal(live_items(fx), items - 1);
}

/*
 * The node is killed and begins anew. Returns the number of turns of the server's loop that ended
 * before the recovery of shard 0 did, where each look at the clock takes step_ns.
 */
static uint32_t turns_of_a_recovery(struct fleet *fx, uint64_t step_ns)
{
	uint32_t turns = 0;

	fx->hasty = true;
	begin_anew(fx);
	while (node_is_attaching(fx->node[0])) /* has a deadline: its looks take no time */
		fleet_settle(fx);
	atomic_store(&fx->clock.step_ns, step_ns);
	do {
		turns += catalog_object_is_recovering(fx->table);
		fleet_settle(fx);
		fx->cat.slice_until = 0;
		catalog_attach_tick(&fx->cat, fx->table);
	} while (catalog_object_is_recovering(fx->table));
	atomic_store(&fx->clock.step_ns, 0);
	expect_active(fx);
	return turns;
}

/* The clock moves by looks alone, and recovery looks after each piece: turns are counted exactly. */
CASE(catalog_node_up__a_turn_recovers_for_20_ms_and_returns)
{
	struct fleet *fx = *state;
	uint32_t turns;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	(void)put_block_with_a_torn_row(fx);
	turns = turns_of_a_recovery(fx, 20 * CLOCK_NS_PER_MS);
	assert_true(turns >
		    table_state_of(fx->table)->desc.blocks); /* a piece is a block's rows at most */
	assert_int_equal(turns_of_a_recovery(fx, 5 * CLOCK_NS_PER_MS), turns / 4);
}

/* All was durable then, and nobody had it: rows are not read again. */
CASE(catalog_node_up__after_a_clean_end_rows_are_not_read)
{
	struct fleet *fx = *state;
	uint32_t items;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	items = put_block_with_a_torn_row(fx);
	end_and_begin_anew(fx);
	expect_active(fx);
	assert_int_equal(live_items(fx), items);
}

/* The server was away, or died before it had looked. */
CASE(catalog_load__rows_are_read_by_the_next_server)
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
	memory_node_restart(&fx->mem[0]);
	fleet_join(fx, 0);
	assert_int_equal(live_items(fx), items - 1);
}

/* An incarnation that was never recovered ends cleanly: the recovery is still due. */
CASE(catalog_node_up__a_life_without_a_server_changes_nothing)
{
	struct fleet *fx = *state;
	uint32_t items;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	items = put_block_with_a_torn_row(fx);
	fleet_go_down(fx, 0);
	memory_node_restart(&fx->mem[0]);
	memory_node_end_and_restart(&fx->mem[0]);
	fleet_join(fx, 0);
	expect_active(fx);
	assert_int_equal(live_items(fx), items - 1);
}

/* Another client of the shard's rows, with its own mapping. */
struct user {
	struct transport *tr;
	struct region *rows;
};

static void use_rows(struct fleet *fx, struct user *user)
{
	const struct transport_opts opts = { .client_id = 99 };
	const struct catalog_guest guest = { 1, opts.client_id, PART_WRITES, 0 };
	struct catalog_grants grants;

	must(fleet_grant(fx, 0, &guest, &grants));
	must(transport_open(fx->node[0]->uri, &opts, &user->tr));
	must(transport_attach(user->tr, &grants.places[REGION_ROWS], &user->rows));
}

static void let_go(struct user *user)
{
	transport_detach(&user->rows);
	transport_close(&user->tr);
}

/* No part is repaired while a process uses it; the next process repairs it. */
CASE(catalog_node_up__what_is_in_use_is_left_alone_until_it_is_not)
{
	struct fleet *fx = *state;
	struct user user;
	uint32_t items;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	items = put_block_with_a_torn_row(fx);
	use_rows(fx, &user);
	begin_anew(fx);
	expect_active(fx);
	assert_int_equal(live_items(fx), items);
	end_and_begin_anew(fx); /* as clean as it may be: somebody may still store rows */
	expect_active(fx);
	assert_int_equal(live_items(fx), items);
	let_go(&user);
	begin_anew(fx);
	expect_active(fx);
	assert_int_equal(live_items(fx), items - 1);
}

/* Once is enough: the server that comes back finds a shard that it knows, in use again. */
CASE(catalog_load__what_was_made_sound_is_not_again)
{
	struct fleet *fx = *state;
	struct part_life life;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	begin_anew(fx);
	must(part_life(fx->table->attached[0], &life));
	assert_true(life.is_sound);
	assert_true(life.opener == fx->mem[0].target->incarnation);
}

static void make_table_without_checksums(struct fleet *fx)
{
	struct table_wish wish = fleet_wish(1, false);

	fleet_start_on_file(fx, 0);
	must(fleet_create(fx, &wish, &fx->table));
	assert_int_equal(table_state_of(fx->table)->desc.flags, 0);
}

/* Without checksums a torn row cannot be detected. */
CASE(catalog_node_up__rows_without_checksums_are_refused_until_trusted)
{
	struct fleet *fx = *state;
	uint32_t items;

	make_table_without_checksums(fx);
	items = put_block_with_a_torn_row(fx);
	begin_anew(fx);
	assert_int_equal(fleet_view(fx, 0), PART_DOWN);
	assert_true(fx->table->parts[0].refused);
	assert_int_equal(fx->table->refusal.code, -EBADMSG);
	assert_non_null(strstr(fx->table->refusal.text, "table t shard 0"));
	assert_non_null(strstr(fx->table->refusal.text, "--trust"));
	begin_anew(fx); /* as it was */
	assert_int_equal(fleet_view(fx, 0), PART_DOWN);
	fx->cat.trust = true;
	begin_anew(fx);
	expect_active(fx);
	assert_int_equal(live_items(fx), items);
}

CASE(catalog_node_up__rows_without_checksums_of_a_clean_end)
{
	struct fleet *fx = *state;
	uint32_t items;

	make_table_without_checksums(fx);
	items = put_block_with_a_torn_row(fx);
	end_and_begin_anew(fx);
	expect_active(fx);
	assert_int_equal(live_items(fx), items);
}

/* Holds the region as an attached client does: a file description of its own, with a lock. */
static int map_rows(const struct fleet *fx, uint32_t s)
{
	const struct target_region region = {
		.id = fx->table->parts[s].ids[REGION_ROWS],
		.kind = OBJECT_TABLE,
		.object = fx->table->id,
		.part = s,
		.role = REGION_ROWS,
	};
	char name[REGION_NAME_BYTES], path[200];
	int fd;

	region_name_format(&region, REGION_WHOLE, name);
	(void)snprintf(path, sizeof(path), "%s/%s", fx->mem[0].path, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_SH), 0);
	return fd;
}

/*
 * A shard that no process maps is recovered at once, even if another shard of its node is in use.
 */
CASE(catalog_node_up__recovers_the_shards_that_nobody_maps)
{
	struct fleet *fx = *state;
	int mapper;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 2, false);
	must(part_mark_dirty(fx->table->attached[0])); /* until its sums are made anew */
	must(part_mark_dirty(fx->table->attached[1]));
	mapper = map_rows(fx, 0);
	fleet_go_down(fx, 0);
	catalog_node_down(&fx->cat, fx->node[0]); /* the server's own mappings */
	memory_node_restart(&fx->mem[0]);
	fleet_join(fx, 0);
	assert_true(fx->table->parts[0].drift);
	assert_false(fx->table->parts[1].drift);
	close(mapper);
}

CASE(catalog_create__rows_of_persistent_nodes_get_checksums)
{
	struct table_wish wish = fleet_wish(1, false);
	struct fleet *fx = *state;

	fleet_start_on_file(fx, 0);
	must(fleet_create(fx, &wish, &fx->table));
	assert_int_equal(table_state_of(fx->table)->desc.flags, 0); /* not wished for */
	snprintf(wish.desc.name, sizeof(wish.desc.name), "%s", "by_nodes");
	wish.crc_by_nodes = true;
	must(table_plan(&wish.desc, &wish.opts));
	must(fleet_create(fx, &wish, &fx->table));
	assert_int_equal(table_state_of(fx->table)->desc.flags, TABLE_ROW_CRC);
	must(fleet_create(fx, &wish, &fx->table)); /* finds it */
}

CASE(catalog_create__rows_in_memory_need_no_checksums)
{
	struct table_wish wish = fleet_wish(1, false);
	struct fleet *fx = *state;

	wish.crc_by_nodes = true;
	fleet_start(fx, 0);
	must(fleet_create(fx, &wish, &fx->table));
	assert_int_equal(table_state_of(fx->table)->desc.flags, 0);
}

int main(void)
{
	if (test_skips_valgrind("no pidfds"))
		return TEST_EXIT_SKIP;
	if (test_skips_msan("SQLite"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}

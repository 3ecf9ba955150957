/*
 * Regions of nodes that the catalog does not know, or has given up: only the latter are freed
 * without a claim.
 */
#include "tests/support/fixture/fleet.h"
#include "tests/support/fixture/shard_fixture.h"
#include "tests/support/must_internal.h"

#include "server/statedb/sql.h"
#include "server/statedb/statedb.h"

#include "wire/region.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP RELIVE__POOL_CLAIM__POOL_KEEP
#define ADOPT RELIVE__POOL_CLAIM__POOL_ADOPT
#define DISCARD RELIVE__POOL_CLAIM__POOL_DISCARD

static uint32_t regions_at(struct fleet *fx, uint32_t n)
{
	struct target_stats stats;

	fx->mem[n].target->ops->stats(fx->mem[n].target, &stats);
	return stats.regions;
}

/* The server ends; nodes live on. */
static void stop_server(struct fleet *fx)
{
	for (uint32_t n = 0; n < FLEET_NODES; n++)
		if (fx->mem[n].target)
			memory_node_hang_up(&fx->mem[n]);
	catalog_fini(&fx->cat);
	nodes_fini(&fx->nodes);
	fx->table = NULL;
}

static void restart_server(struct fleet *fx)
{
	stop_server(fx);
	fleet_load(fx);
}

/* A server without a catalog. */
static void forget_all(struct fleet *fx)
{
	stop_server(fx);
	statedb_close(&fx->store);
	must(statedb_open(":memory:", &fx->store));
	fleet_load(fx);
}

static void put_block(struct fleet *fx)
{
	struct shard *shard = shard_of(fx->table->attached[0]);
	struct access acc;

	shard_fixture_take_slot(shard, 1);
	shard_fixture_access(shard, 1, &acc);
	(void)shard_fixture_fill_block(&acc, 100);
	access_close(&acc);
}

static uint64_t items(struct fleet *fx)
{
	uint64_t n = 0;

	must(table_shard_items(shard_of(fx->table->attached[0]), 0, &n));
	return n;
}

/* True if a note of the region is kept: a restart would look for it. */
static bool is_noted(struct fleet *fx, const char *node, uint32_t region)
{
	struct store_leftover left = { .region = region };
	bool found;

	snprintf(left.node, sizeof(left.node), "%s", node);
	must(store_find(fx->store, STORE_LEFTOVERS, &left, &found));
	return found;
}

static int create(struct fleet *fx)
{
	struct table_wish wish = fleet_wish(1, false);

	return table_create(&fx->cat, &wish, &fx->table);
}

/* A table "t" of that number, whichever number is the store's next. */
static void make_table_1(struct fleet *fx)
{
	fx->cat.last_id = TABLE_MAX_ID;
	fleet_make_table(fx, 1, false);
}

/* -------- refused -------- */

static void expect_refused(struct fleet *fx, uint32_t n, const char *words)
{
	uint32_t regions = regions_at(fx, n);

	assert_int_equal(fleet_claim(fx, n, KEEP), -EPERM);
	if (!strstr(error_last(), words))
		fail_msg("'%s' is not in: %s", words, error_last());
	assert_int_equal(regions_at(fx, n), regions);
}

#define CASE(f) TEST_WITH(f, fleet_setup, fleet_teardown)

CASE(catalog_admit__memory_of_a_table_that_is_not_known_is_refused)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	fleet_make_table(fx, 1, false);
	forget_all(fx);
	expect_refused(fx, 0, "holds tables t, which the catalog of store s");
}

CASE(catalog_admit__a_file_with_a_table_that_is_not_known_is_refused)
{
	struct fleet *fx = *state;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	forget_all(fx);
	memory_node_restart(&fx->mem[0]);
	expect_refused(fx, 0, "--adopt");
}

/* Object and part numbers of the region are those of our table; its uuid is another one. */
CASE(catalog_admit__another_table_of_the_same_numbers_is_not_ours)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	make_table_1(fx);
	forget_all(fx);
	fleet_start(fx, 1);
	make_table_1(fx);
	snprintf(fx->table->parts[0].node->name, NODE_NAME_BYTES, "0");
	memory_node_hang_up(&fx->mem[1]);
	(void)nodes_tick(&fx->nodes);
	expect_refused(fx, 0, "tables t");
}

/* -------- given up -------- */

CASE(catalog_drop__of_a_node_that_is_away_is_done_when_it_is_back)
{
	struct fleet *fx = *state;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	put_block(fx);
	fleet_go_down(fx, 0);
	must(catalog_drop(&fx->cat, fx->table));
	assert_true(is_noted(fx, "file", 1));
	restart_server(fx);
	memory_node_restart(&fx->mem[0]);
	fleet_join(fx, 0);
	fleet_settle(fx);
	assert_int_equal(regions_at(fx, 0), 0);
	assert_false(is_noted(fx, "file", 1));
}

/* The record stays in the store until the node has freed all. */
CASE(catalog_drop__cut_short_is_done_by_a_restart)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	fleet_make_table(fx, 2, false);
	must(catalog_drop(&fx->cat, fx->table));
	assert_true(is_noted(fx, "0", 1));
	restart_server(fx);
	assert_true(is_noted(fx, "0", 1));
	fleet_join(fx, 0);
	fleet_settle(fx);
	assert_int_equal(regions_at(fx, 0), 0);
	for (uint32_t region = 1; region <= 4; region++)
		assert_false(is_noted(fx, "0", region));
}

CASE(catalog_drop__leaves_nothing_noted)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	fleet_make_table(fx, 2, false);
	must(catalog_drop(&fx->cat, fx->table));
	fleet_settle(fx);
	for (uint32_t region = 1; region <= 4; region++)
		assert_false(is_noted(fx, "0", region));
}

CASE(catalog_create__cut_short_leaves_nothing)
{
	struct fleet *fx = *state;

	for (uint32_t made = 0; made <= 2; made++) {
		if (fx->mem[0].target)
			memory_node_close(&fx->mem[0]);
		forget_all(fx);
		fleet_start_on_file(fx, 0);
		for (uint32_t i = 0; i < made; i++) {
			assert_int_equal(create(fx), -EAGAIN);
			fleet_settle(fx);
		}
		assert_int_equal(regions_at(fx, 0), made);
		restart_server(fx);
		memory_node_restart(&fx->mem[0]);
		fleet_join(fx, 0);
		fleet_settle(fx);
		assert_int_equal(regions_at(fx, 0), 0);
	}
}

/*
 * A catalog copied while a table was made does not know whether the table was completed: it must
 * not free that table.
 */
CASE(catalog_admit__a_table_that_was_made_after_the_copy_is_refused)
{
	char path[] = "/tmp/relive-copy-XXXXXX";
	struct fleet *fx = *state;
	uint8_t *bytes;
	size_t len;
	int fd = mkstemp(path);

	fleet_start_on_file(fx, 0);
	assert_int_equal(create(fx), -EAGAIN);
	must(statedb_backup(fx->store, &bytes, &len));
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
	statedb_backup_free(bytes);
	fleet_make_table(fx, 1, false);
	put_block(fx);
	stop_server(fx);
	statedb_close(&fx->store);
	must(statedb_open(path, &fx->store));
	fleet_load(fx);
	memory_node_restart(&fx->mem[0]);
	expect_refused(fx, 0, "tables t");
	assert_int_equal(unlink(path), 0);
}

CASE(catalog_node_lost__memory_that_comes_back_is_freed)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	fleet_make_table(fx, 1, false);
	fleet_go_down(fx, 0);
	must(nodes_drop(&fx->nodes, fx->node[0]));
	fleet_join(fx, 0);
	fleet_settle(fx);
	assert_int_equal(regions_at(fx, 0), 0);
}

/* A file is not: nobody said that it may be erased. It can be taken in again. */
CASE(catalog_node_lost__a_file_that_comes_back_is_refused_and_adopted)
{
	struct fleet *fx = *state;
	uint64_t before;

	fleet_start_on_file(fx, 0);
	fleet_make_table(fx, 1, false);
	put_block(fx);
	before = items(fx);
	fleet_go_down(fx, 0);
	must(nodes_drop(&fx->nodes, fx->node[0]));
	memory_node_restart(&fx->mem[0]);
	expect_refused(fx, 0, "tables t");
	must(fleet_claim(fx, 0, ADOPT));
	assert_int_equal(fleet_view(fx, 0), PART_ACTIVE);
	assert_int_equal(items(fx), before);
}

/* -------- adopted and discarded -------- */

/* A table of one block on a file, and a server that does not know it. */
static uint64_t leave_a_table(struct fleet *fx)
{
	uint64_t n;

	fleet_start_on_file(fx, 0);
	make_table_1(fx);
	put_block(fx);
	n = items(fx);
	forget_all(fx);
	memory_node_restart(&fx->mem[0]);
	return n;
}

static void expect_table(struct fleet *fx, uint64_t n)
{
	fx->table = catalog_find(&fx->cat, "t");
	assert_non_null(fx->table);
	assert_int_equal(fleet_view(fx, 0), PART_ACTIVE);
	assert_int_equal(items(fx), n);
}

CASE(catalog_take__an_adopted_table_is_there_and_stays)
{
	struct fleet *fx = *state;
	uint64_t n = leave_a_table(fx);

	must(fleet_claim(fx, 0, ADOPT));
	expect_table(fx, n);
	restart_server(fx);
	memory_node_restart(&fx->mem[0]);
	must(fleet_claim(fx, 0, KEEP));
	expect_table(fx, n);
}

CASE(catalog_take__no_key_of_an_adopted_table_comes_again)
{
	struct fleet *fx = *state;
	uint64_t lap = 0, head;

	(void)leave_a_table(fx);
	must(fleet_claim(fx, 0, ADOPT));
	fx->table = catalog_find(&fx->cat, "t");
	must(transport_load(fx->table->attached[0]->tree,
			    shard_word_off(shard_of(fx->table->attached[0]),
					   offsetof(struct shard_words, head)),
			    &head));
	must(store_lap(fx->store, fx->table->id, 0, &lap));
	assert_true(lap > (head & BLOCK_SEQ_MASK) / table_state_of(fx->table)->desc.blocks);
}

CASE(catalog_take__a_full_disk_adopts_nothing)
{
	struct fleet *fx = *state;
	uint64_t n = leave_a_table(fx);

	must(statedb_sql_script(statedb_of(fx->store), "limit", "PRAGMA max_page_count = 1"));
	assert_int_equal(fleet_claim(fx, 0, ADOPT), -ENOSPC);
	assert_null(catalog_find(&fx->cat, "t"));
	must(statedb_sql_script(statedb_of(fx->store), "limit", "PRAGMA max_page_count = 1000"));
	memory_node_hang_up(&fx->mem[0]);
	(void)nodes_tick(&fx->nodes);
	must(fleet_claim(fx, 0, ADOPT));
	expect_table(fx, n);
}

CASE(catalog_take__what_is_discarded_is_freed)
{
	struct fleet *fx = *state;

	(void)leave_a_table(fx);
	must(fleet_claim(fx, 0, DISCARD));
	fleet_settle(fx);
	assert_int_equal(regions_at(fx, 0), 0);
	assert_null(catalog_find(&fx->cat, "t"));
}

/* The node ends before it has freed all: the claim holds for the regions that it named. */
CASE(catalog_take__discarding_goes_on_after_a_restart)
{
	struct fleet *fx = *state;

	(void)leave_a_table(fx);
	fx->hasty = true;
	must(fleet_claim(fx, 0, DISCARD));
	assert_true(is_noted(fx, "file", 1));
	restart_server(fx);
	memory_node_restart(&fx->mem[0]);
	must(fleet_claim(fx, 0, KEEP));
	fleet_settle(fx);
	assert_int_equal(regions_at(fx, 0), 0);
}

/* A conflict of names or numbers never erases a table, whatever the claim. */
CASE(catalog_admit__a_table_that_clashes_is_not_adopted_and_not_discarded)
{
	struct fleet *fx = *state;
	struct table_wish wish = fleet_wish(1, false);

	(void)leave_a_table(fx);
	fleet_start(fx, 1);
	must(fleet_create(fx, &wish, &fx->table)); /* another t */
	assert_int_equal(fleet_claim(fx, 0, ADOPT | DISCARD), -EEXIST);
	assert_non_null(strstr(error_last(), "another table of that name"));
	must(catalog_drop(&fx->cat, fx->table));
	fx->cat.last_id = TABLE_MAX_ID;
	snprintf(wish.desc.name, sizeof(wish.desc.name), "%s", "u");
	must(table_plan(&wish.desc, &wish.opts));
	must(fleet_create(fx, &wish, &fx->table)); /* table 1, as t was */
	assert_int_equal(fleet_claim(fx, 0, ADOPT | DISCARD), -EEXIST);
	assert_non_null(strstr(error_last(), "is table u's"));
	assert_int_equal(regions_at(fx, 0), REGION_ROLES - 1);
}

static void damage(struct fleet *fx, uint32_t role, uint64_t off)
{
	struct target_region *regions;
	size_t n;

	must(memnode_list_regions(fx->mem[0].target, &regions, &n));
	for (size_t i = 0; i < n; i++)
		if (regions[i].role == role)
			regions[i].base[off] ^= 1;
	mem_free(regions);
}

/* A damaged region is not taken in, and stays as it was. */
CASE(catalog_admit__a_damaged_table_is_not_adopted)
{
	static const struct {
		uint32_t role;
		uint64_t off;
	} places[] = {
		{ REGION_TREE, 0 },
		{ REGION_ROWS, 56 },
		{ REGION_TREE, 4096 + 40 },
		{ REGION_SLOTS, offsetof(struct region_superblock, state) },
		{ REGION_SLOTS, 0 },
		{ REGION_PAGES, 56 },
		{ REGION_ROWS, offsetof(struct region_superblock, uuid) },
	};
	struct fleet *fx = *state;
	uint64_t n = leave_a_table(fx);

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		damage(fx, places[i].role, places[i].off);
		assert_int_equal(fleet_claim(fx, 0, ADOPT), -EPERM);
		assert_non_null(strstr(error_last(), "not whole"));
		assert_int_equal(regions_at(fx, 0), REGION_ROLES - 1);
		damage(fx, places[i].role, places[i].off);
	}
	must(fleet_claim(fx, 0, ADOPT));
	expect_table(fx, n);
}

int main(void)
{
	if (test_skips_valgrind("no pidfds"))
		return TEST_EXIT_SKIP;
	if (test_skips_msan("SQLite"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}

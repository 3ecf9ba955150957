/* Tables that a client loads from a file: until the load is committed, that client alone has them. */
#include "tests/support/fixture/fleet.h"
#include "tests/support/must_internal.h"

#include "server/statedb/statedb.h"

#include <errno.h>
#include <string.h>

#define LOADER 7u

/* One step of the creation by a load of that number. */
static int step(struct fleet *fx, uint8_t load)
{
	const struct table_wish details = fleet_wish(2, false);
	struct catalog_wish wish = {
		.kind = &kind_table,
		.name = "t",
		.details = &details,
		.loader = LOADER,
	};

	memset(wish.uuid, load, sizeof(wish.uuid));
	return catalog_create(&fx->cat, &wish, &fx->table);
}

static int make(struct fleet *fx, uint8_t load)
{
	int ret = step(fx, load);

	while (ret == -EAGAIN) {
		fleet_settle(fx);
		ret = step(fx, load);
	}
	return ret;
}

static int make_plain(struct fleet *fx)
{
	const struct table_wish wish = fleet_wish(2, false);

	return fleet_create(fx, &wish, &fx->table);
}

static void restart_server(struct fleet *fx)
{
	memory_node_hang_up(&fx->mem[0]);
	catalog_fini(&fx->cat);
	nodes_fini(&fx->nodes);
	fleet_load(fx);
	fx->table = catalog_find(&fx->cat, "t");
}

static uint32_t regions_at(struct fleet *fx, uint32_t n)
{
	struct target_stats stats;

	fx->mem[n].target->ops->stats(fx->mem[n].target, &stats);
	return stats.regions;
}

/* True if the words of its parts say so, too. */
static bool is_loading(struct fleet *fx)
{
	uint32_t n = 0;

	for (uint32_t s = 0; s < fx->table->n_parts; s++) {
		uint64_t word;

		must(transport_load(fx->table->attached[s]->slots,
				    offsetof(struct region_superblock, loading), &word));
		n += word != 0;
	}
	assert_true(n == 0 || n == fx->table->n_parts);
	assert_int_equal(n != 0, fx->table->loader != 0);
	return n != 0;
}

/* Of a load that replaces nothing. */
static int commit(struct fleet *fx)
{
	struct catalog_object *replaced;
	int ret = catalog_commit(&fx->cat, fx->table, &replaced);

	assert_null(replaced);
	return ret;
}

#define CASE(f) TEST_WITH(f, fleet_setup, fleet_teardown)

CASE(catalog_create__by_a_load_is_that_loads_alone)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	assert_int_equal(step(fx, 1), -EAGAIN);
	assert_int_equal(make_plain(fx), -EBUSY); /* while it is being made ... */
	assert_int_equal(make(fx, 2), -EBUSY);
	must(make(fx, 1));
	assert_int_equal(make_plain(fx), -EBUSY); /* ... and when it is */
	assert_non_null(strstr(error_last(), "table t is being loaded by client 7"));
	assert_int_equal(make(fx, 2), -EBUSY);
	must(make(fx, 1)); /* asks again */
	assert_true(is_loading(fx));
	assert_int_equal(catalog_count(&fx->cat, &kind_table), 0);
	must(commit(fx));
	must(commit(fx));
	assert_false(is_loading(fx));
	assert_int_equal(catalog_count(&fx->cat, &kind_table), 1);
	must(make_plain(fx));
	assert_int_equal(make(fx, 1), -EEXIST);
}

CASE(catalog_load__a_load_goes_on)
{
	struct fleet *fx = *state;
	uint64_t loader = 0;

	fleet_start(fx, 0);
	must(make(fx, 1));
	restart_server(fx);
	assert_int_equal(fx->table->loader, LOADER);
	assert_int_equal(make_plain(fx), -EBUSY);
	assert_int_equal(commit(fx), -EHOSTDOWN); /* nothing is half done */
	assert_int_equal(fx->table->loader, LOADER);
	fleet_join(fx, 0);
	fleet_settle(fx);
	fleet_tick(fx, 0);
	assert_true(is_loading(fx));
	must(commit(fx));
	must(store_loader(fx->store, fx->table->id, &loader));
	assert_int_equal(loader, 0);
	restart_server(fx);
	assert_int_equal(fx->table->loader, 0);
}

CASE(catalog_drop__of_a_load_leaves_nothing)
{
	struct fleet *fx = *state;
	uint64_t loader = 0;
	uint32_t id;

	fleet_start(fx, 0);
	must(make(fx, 1));
	id = fx->table->id;
	must(catalog_drop(&fx->cat, fx->table));
	fleet_settle(fx);
	assert_int_equal(regions_at(fx, 0), 0);
	must(store_loader(fx->store, id, &loader));
	assert_int_equal(loader, 0);
	must(make_plain(fx));
	assert_false(is_loading(fx));
}

CASE(catalog_load__a_load_of_nobody_gives_ebadmsg)
{
	struct fleet *fx = *state;

	fleet_start(fx, 0);
	must(make(fx, 1));
	must(store_loader_put(fx->store, fx->table->id, 0));
	memory_node_hang_up(&fx->mem[0]);
	catalog_fini(&fx->cat);
	assert_int_equal(catalog_load(&fx->cat), -EBADMSG);
	assert_non_null(strstr(error_last(), "table t has no loader"));
}

/* A part that comes later is of a table that is marked already. */
CASE(catalog_add_part__of_a_load_is_not_marked)
{
	struct fleet *fx = *state;
	uint64_t word;

	fleet_start(fx, 0);
	must(make(fx, 1));
	fleet_start(fx, 1);
	must(fleet_add_shard(fx, 1));
	must(transport_load(fx->table->attached[2]->slots,
			    offsetof(struct region_superblock, loading), &word));
	assert_int_equal(word, 0);
}

/* The catalog is lost, too: what a load has left in a pool is no whole table. */
CASE(catalog_take__what_a_load_left_is_not_adopted)
{
	struct fleet *fx = *state;

	fleet_start_on_file(fx, 0);
	must(make(fx, 1));
	memory_node_hang_up(&fx->mem[0]);
	catalog_fini(&fx->cat);
	nodes_fini(&fx->nodes);
	statedb_close(&fx->store);
	must(statedb_open(":memory:", &fx->store));
	fleet_load(fx);
	memory_node_restart(&fx->mem[0]);
	assert_int_equal(fleet_claim(fx, 0, RELIVE__POOL_CLAIM__POOL_ADOPT), -EPERM);
	assert_non_null(strstr(error_last(), "a load from a file did not end"));
	must(fleet_claim(fx, 0, RELIVE__POOL_CLAIM__POOL_DISCARD));
	fleet_settle(fx);
	assert_int_equal(regions_at(fx, 0), 0);
}

int main(void)
{
	if (test_skips_valgrind("no pidfds"))
		return TEST_EXIT_SKIP;
	if (test_skips_msan("SQLite"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}

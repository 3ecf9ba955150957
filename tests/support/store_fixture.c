#include "tests/support/store_fixture.h"

#include "tests/support/crash_rows.h"
#include "tests/support/processes.h"
#include "tests/support/test.h"

bool store_fixture_node_is_up(void *store)
{
	struct rlv_store_info info = { .size = sizeof(info) };

	return rlv_store_info(store, &info) == 0 && info.n_nodes == 1 && info.nodes[0].state == 1;
}

void store_fixture_await_node(struct rlv_store *store)
{
	assert_true(processes_until(store_fixture_node_is_up, store));
}

struct rlv_table *store_fixture_crash_table(struct rlv_store *store, uint64_t capacity,
					    uint32_t block)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_table *table = NULL;
	int ret;

	opts.columns = crash_columns;
	opts.n_columns = CRASH_COLUMNS;
	opts.views = crash_views;
	opts.n_views = CRASH_VIEWS;
	opts.capacity = capacity;
	opts.block = block;
	opts.max_writers = 2;
	opts.max_clients = 8;
	ret = rlv_table_create(store, "t", &opts, &table);
	if (ret)
		fail_msg("create: %s: %s", rlv_error_name(ret), rlv_last_error());
	return table;
}

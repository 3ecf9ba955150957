/*
 * A table is saved and loaded from store to store, with other numbers of nodes and shards.
 */
#include "tests/support/must.h"
#include "tests/support/processes.h"

#include "relive/save.h"

#define N 3000u

static void load_prioritized(const char *uri, const char *file, uint32_t shards,
			     struct rlv_table_info *info_out)
{
	struct rlv_load_opts opts = RLV_LOAD_OPTS_INIT;
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;

	opts.shards = shards;
	must(rlv_store_open(uri, NULL, &store), "open");
	must(rlv_table_load(store, file, &opts, NULL, &table), "load");
	info_out->size = sizeof(*info_out);
	must(rlv_table_info(table, info_out), "info");
	must(rlv_table_save(table, file, NULL, NULL), "save");
	must(rlv_table_close(&table), "close");
	must(rlv_store_close(&store), "close");
}

/* A table of N steps with priorities, saved to file. */
static void make_prioritized(const char *file, struct rlv_table_info *info_out)
{
	const struct rlv_column column = { .name = "number", .dtype = RLV_I64 };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer *writer = NULL;
	struct rlv_store *store = NULL;
	struct rlv_table *table = NULL;
	int64_t number[N];
	double td[N];
	const void *columns[] = { number };

	for (uint32_t i = 0; i < N; i++) {
		number[i] = i;
		td[i] = (double)(i % 97) / 10;
	}
	opts.columns = &column;
	opts.n_columns = 1;
	opts.capacity = 8192;
	steps.n = N;
	steps.columns = columns;
	steps.td_error = td;
	must(rlv_store_open("embed:", NULL, &store), "open");
	must(rlv_table_create(store, "p", &opts, &table), "create");
	must(rlv_writer_open(table, NULL, &writer), "writer");
	must(rlv_writer_append(writer, 0, &steps, NULL), "append");
	must(rlv_writer_close(&writer), "close");
	info_out->size = sizeof(*info_out);
	must(rlv_table_info(table, info_out), "info");
	must(rlv_table_save(table, file, NULL, NULL), "save");
	must(rlv_table_close(&table), "close");
	must(rlv_store_close(&store), "close");
}

static void expect_same(const struct rlv_table_info *a, const struct rlv_table_info *b)
{
	assert_int_equal(a->views[0].items, b->views[0].items);
	assert_int_equal(a->views[0].inserted, b->views[0].inserted);
	assert_true(a->views[0].priority_sum == b->views[0].priority_sum);
}

/* From memory to two nodes with three shards, and back. */
TEST(save__from_store_to_store)
{
	static struct rlv_table_info before, there, back;
	const char *const node[] = { "--size", "32M", NULL };
	char file[PROCESSES_PATH + 64];
	struct processes ps;

	processes_init(&ps);
	processes_path(&ps, "saved", file);
	(void)processes_metad(&ps, "s", NULL);
	(void)processes_memnode(&ps, "s", "a", node);
	(void)processes_memnode(&ps, "s", "b", node);
	make_prioritized(file, &before);
	load_prioritized("shm:s", file, 3, &there);
	assert_int_equal(there.shards, 3);
	expect_same(&before, &there);
	load_prioritized("embed:", file, 1, &back);
	expect_same(&before, &back);
	processes_fini(&ps);
}

int main(void)
{
	return test_run(NULL, NULL);
}

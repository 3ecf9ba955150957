/*
 * Invalid arguments: each call returns a code and a message that names the argument, and changes
 * nothing.
 */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/must.h"
#include "tests/support/test.h"
#include "tests/support/store_nodes.h"

#include "relive/admin.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define EXPECT_EINVAL(call, word) replay_expect((call), -EINVAL, (word))

static const struct rlv_table_opts plain = { 0 };

/* -------- NULL and sizes -------- */

TEST(store__null_arguments)
{
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_node_info node;
	struct replay_fixture fx;
	size_t n = 1, none = 0;

	replay_open(&fx, &plain);
	EXPECT_EINVAL(rlv_store_open(NULL, NULL, &fx.store), "uri");
	EXPECT_EINVAL(rlv_store_open("embed:", NULL, NULL), "store_out");
	EXPECT_EINVAL(rlv_store_persist(NULL), "store");
	EXPECT_EINVAL(rlv_store_tables(fx.store, NULL, &n), "names");
	EXPECT_EINVAL(rlv_store_tables(NULL, NULL, &n), "store");
	EXPECT_EINVAL(rlv_store_waits(fx.store, NULL, sizeof(struct rlv_wait), &n), "waits");
	EXPECT_EINVAL(rlv_store_waits(fx.store, NULL, sizeof(struct rlv_wait), NULL), "n_inout");
	EXPECT_EINVAL(rlv_store_heaps(fx.store, NULL, sizeof(struct rlv_heap_info), &n), "heaps");
	EXPECT_EINVAL(rlv_store_heaps(fx.store, NULL, sizeof(struct rlv_heap_info), NULL),
		      "n_inout");
	EXPECT_EINVAL(rlv_store_lags(fx.store, NULL, sizeof(struct rlv_lag), &n), "lags");
	expect(rlv_store_lags(fx.store, NULL, sizeof(struct rlv_lag), &none), -ENOTSUP);
	EXPECT_EINVAL(rlv_store_nodes(fx.store, NULL, sizeof(struct rlv_node_info), &n), "nodes");
	EXPECT_EINVAL(rlv_store_nodes(fx.store, &node, 4, &n), "nodes: size 4");
	EXPECT_EINVAL(rlv_store_info(NULL, &info), "store");
	EXPECT_EINVAL(rlv_store_info(fx.store, NULL), "info_out");
	info.size = 8;
	EXPECT_EINVAL(rlv_store_info(fx.store, &info), "info_out->size 8");
	replay_close(&fx);
}

TEST(store_open__bad_options)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store = NULL;

	EXPECT_EINVAL(rlv_store_open("redis://x", NULL, &store), "redis");
	opts.size = 4;
	EXPECT_EINVAL(rlv_store_open("embed:", &opts, &store), "opts.size 4");
	opts.size = sizeof(opts);
	opts.pages = 9;
	EXPECT_EINVAL(rlv_store_open("embed:", &opts, &store), "opts.pages 9");
	assert_null(store);
}

TEST(table__null_arguments)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_verify_report report = { .size = sizeof(report) };
	struct rlv_table_info info = { .size = sizeof(info) };
	struct rlv_table *table = NULL;
	struct replay_fixture fx;

	replay_open(&fx, &plain);
	EXPECT_EINVAL(rlv_table_create(NULL, "x", &opts, &table), "store");
	EXPECT_EINVAL(rlv_table_create(fx.store, NULL, &opts, &table), "name");
	EXPECT_EINVAL(rlv_table_create(fx.store, "x", NULL, &table), "opts");
	EXPECT_EINVAL(rlv_table_create(fx.store, "x", &opts, NULL), "table_out");
	EXPECT_EINVAL(rlv_table_open(NULL, "x", &table), "store");
	EXPECT_EINVAL(rlv_table_open(fx.store, NULL, &table), "name");
	EXPECT_EINVAL(rlv_table_drop(fx.store, NULL), "name");
	EXPECT_EINVAL(rlv_table_info(NULL, &info), "table");
	EXPECT_EINVAL(rlv_table_info(fx.table, NULL), "info_out");
	EXPECT_EINVAL(rlv_table_verify(NULL, &report), "table");
	EXPECT_EINVAL(rlv_table_verify(fx.table, NULL), "report_out");
	info.size = 1;
	EXPECT_EINVAL(rlv_table_info(fx.table, &info), "info_out->size 1");
	report.size = 1;
	EXPECT_EINVAL(rlv_table_verify(fx.table, &report), "report_out->size 1");
	assert_null(table);
	replay_close(&fx);
}

/* -------- create -------- */

struct bad_create {
	struct rlv_column columns[RLV_MAX_COLUMNS + 1];
	struct rlv_view views[RLV_MAX_VIEWS + 1];
	struct rlv_table_opts opts;
	const char *name;
};

static void bad_init(struct bad_create *bad)
{
	*bad = (struct bad_create){ .opts = RLV_TABLE_OPTS_INIT, .name = "x" };
	memcpy(bad->columns, replay_obs_columns, sizeof(replay_obs_columns));
	bad->opts.columns = bad->columns;
	bad->opts.n_columns = REPLAY_COLUMNS;
	bad->opts.views = bad->views;
	bad->opts.n_views = 1;
	bad->opts.capacity = 4096;
}

/*
 * Checks that the call was refused with the word in the message, and that the store is unchanged.
 */
static void bad_expect(const struct bad_create *bad, const char *word)
{
	struct rlv_store_info before = { .size = sizeof(before) },
			      after = { .size = sizeof(after) };
	struct rlv_table *table = NULL;
	struct replay_fixture fx;
	uint64_t used;

	replay_open(&fx, &plain);
	assert_int_equal(rlv_store_info(fx.store, &before), 0);
	used = store_node_at(fx.store, 0).used_bytes;
	EXPECT_EINVAL(rlv_table_create(fx.store, bad->name, &bad->opts, &table), word);
	assert_null(table);
	assert_int_equal(rlv_store_info(fx.store, &after), 0);
	assert_int_equal(after.n_tables, before.n_tables);
	assert_int_equal(store_node_at(fx.store, 0).used_bytes, used);
	replay_close(&fx);
}

TEST(table_create__bad_names)
{
	const char *names[] = {
		"",     "a/b",
		"a b",  ".x",
		"-x",   "\xc3\xa4",
		"a\nb", "1234567890123456789012345678901234567890123456789012345678901234"
	};
	struct bad_create bad;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		bad_init(&bad);
		bad.name = names[i];
		bad_expect(&bad, "name");
	}
}

TEST(table_create__bad_column_names)
{
	const char *names[] = {
		NULL, "",    ".x",
		"1x", "a-b", "a234567890123456789012345678901234567890123456789012345678901234"
	};
	struct bad_create bad;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		bad_init(&bad);
		bad.columns[1].name = names[i];
		bad_expect(&bad, "columns[1].name");
	}
	bad_init(&bad);
	bad.columns[3].name = "obs";
	bad_expect(&bad, "columns[3].name \"obs\": columns[0] has it already");
	bad_init(&bad);
	bad.columns[3].name = "next_obs";
	bad_expect(&bad, "next_obs");
}

TEST(table_create__column_named_as_an_array_of_ours)
{
	struct bad_create bad;

	bad_init(&bad);
	bad.columns[2].name = "discount";
	bad_expect(&bad, "discount");
	bad_init(&bad);
	bad.columns[2].name = "steps";
	bad_expect(&bad, "steps");
}

TEST(table_create__bad_columns)
{
	struct bad_create bad;

	bad_init(&bad);
	bad.columns[2].dtype = 0;
	bad_expect(&bad, "columns[2].dtype 0");
	bad_init(&bad);
	bad.columns[2].dtype = RLV_BF16 + 1;
	bad_expect(&bad, "columns[2].dtype 14");
	bad_init(&bad);
	bad.columns[2].role = 9;
	bad_expect(&bad, "columns[2].role 9");
	bad_init(&bad);
	bad.columns[3].dtype = RLV_I32;
	bad_expect(&bad, "columns[3]");
	bad_init(&bad);
	bad.columns[3].ndim = 1;
	bad.columns[3].shape[0] = 2;
	bad_expect(&bad, "columns[3]");
	bad_init(&bad);
	bad.columns[0].ndim = RLV_MAX_DIMS + 1;
	bad_expect(&bad, "columns[0].ndim 7");
	bad_init(&bad);
	bad.columns[0].shape[0] = 0;
	bad_expect(&bad, "columns[0].shape[0]");
	bad_init(&bad);
	for (uint32_t d = 0; d < 6; d++)
		bad.columns[0].shape[d] = UINT32_MAX;
	bad.columns[0].ndim = 6;
	bad_expect(&bad, "columns[0]");
	bad_init(&bad);
	bad.opts.n_columns = 0;
	bad_expect(&bad, "opts.n_columns 0");
	bad_init(&bad);
	bad.opts.n_columns = RLV_MAX_COLUMNS + 1;
	bad_expect(&bad, "opts.n_columns 257");
	bad_init(&bad);
	bad.opts.columns = NULL;
	bad_expect(&bad, "columns");
}

TEST(table_create__bad_sizes)
{
	struct bad_create bad;

	bad_init(&bad);
	bad.opts.size = 12;
	bad_expect(&bad, "opts.size 12");
	bad_init(&bad);
	bad.opts.capacity = 0;
	bad_expect(&bad, "capacity");
	bad_init(&bad);
	bad.opts.capacity = UINT64_MAX;
	bad_expect(&bad, "capacity 18446744073709551615");
	bad_init(&bad);
	bad.opts.capacity = 1ull << 32;
	bad_expect(&bad, "shards are needed");
	bad_init(&bad);
	bad.opts.capacity = 64; /* too small for two blocks of each of 4 streams */
	bad_expect(&bad, "capacity 64");
	bad_init(&bad);
	bad.opts.capacity = 64;
	bad_expect(&bad, "4 writers");
	bad_init(&bad);
	bad.opts.shards = 1025;
	bad_expect(&bad, "opts.shards 1025");
	bad_init(&bad);
	bad.opts.max_writers = UINT32_MAX;
	bad_expect(&bad, "max_writers");
	bad_init(&bad);
	bad.opts.max_clients = 5000;
	bad_expect(&bad, "max_clients 5000");
	bad_init(&bad);
	bad.opts.block = 1;
	bad_expect(&bad, "block 1");
	bad_init(&bad);
	bad.opts.block = UINT32_MAX;
	bad_expect(&bad, "block");
	bad_init(&bad);
	bad.opts.row_crc = 3;
	bad_expect(&bad, "opts.row_crc 3");
	bad_init(&bad);
	bad.opts.fanout = (const uint16_t[]){ 7, 0 };
	bad_expect(&bad, "fan");
}

TEST(table_create__bad_views)
{
	struct bad_create bad;

	bad_init(&bad);
	bad.opts.n_views = 9;
	bad_expect(&bad, "opts.n_views 9");
	bad_init(&bad);
	bad.opts.views = NULL;
	bad_expect(&bad, "views");
	bad_init(&bad);
	bad.views[0].selector = 4;
	bad_expect(&bad, "views[0].selector 4");
	bad_init(&bad);
	bad.views[0].alpha = -0.5;
	bad_expect(&bad, "views[0].alpha -0.5");
	bad_init(&bad);
	bad.views[0].alpha = NAN;
	bad_expect(&bad, "views[0].alpha");
	bad_init(&bad);
	bad.views[0].eps = INFINITY;
	bad_expect(&bad, "views[0].eps inf");
	bad_init(&bad);
	bad.views[0].eps = -1;
	bad_expect(&bad, "views[0].eps -1");
	bad_init(&bad);
	bad.views[0].stack = 70000;
	bad_expect(&bad, "stack 70000");
	bad_init(&bad);
	bad.views[0].n_step = 60000; /* a block holds two windows */
	bad_expect(&bad, "window 60001");
}

TEST(table_create__bad_limiters)
{
	struct bad_create bad;

	bad_init(&bad);
	bad.views[0].limiter = rlv_limiter_min_size(5000);
	bad_expect(&bad, "min_size 5000");
	bad_init(&bad);
	bad.views[0].limiter = rlv_limiter_sample_to_insert(NAN, 10, 10);
	bad_expect(&bad, "views[0].limiter");
	bad_init(&bad);
	bad.views[0].limiter = rlv_limiter_sample_to_insert(-1, 10, 10);
	bad_expect(&bad, "samples_per_insert -1");
	bad_init(&bad);
	bad.views[0].limiter = rlv_limiter_sample_to_insert(2, 10, 0.25);
	bad_expect(&bad, "too narrow");
	bad_init(&bad);
	bad.views[0].limiter = (struct rlv_limiter){ .samples_per_insert = 1, .min_diff = 5 };
	bad_expect(&bad, "min_diff 5");
	bad_init(&bad);
	bad.views[0].limiter = rlv_limiter_queue(0);
	bad_expect(&bad, "limiter");
}

/* -------- writer -------- */

TEST(writer__bad_arguments)
{
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct rlv_stats stats = { .size = sizeof(stats) };
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_writer *writer = NULL, *none = NULL;
	struct replay_fixture fx;

	replay_open(&fx, &plain);
	EXPECT_EINVAL(rlv_writer_open(NULL, NULL, &writer), "table");
	EXPECT_EINVAL(rlv_writer_open(fx.table, NULL, NULL), "writer_out");
	opts.size = 3;
	EXPECT_EINVAL(rlv_writer_open(fx.table, &opts, &none), "opts.size 3");
	opts.size = sizeof(opts);
	opts.streams = 5;
	replay_expect(rlv_writer_open(fx.table, &opts, &none), -ENOSPC, "opts.streams 5");
	assert_null(none);
	writer = replay_writer(&fx, 2);
	EXPECT_EINVAL(rlv_writer_append(NULL, 0, &steps, NULL), "writer");
	EXPECT_EINVAL(rlv_writer_append(writer, 0, NULL, NULL), "steps");
	EXPECT_EINVAL(rlv_writer_append_vector(NULL, &steps), "writer");
	EXPECT_EINVAL(rlv_writer_append_vector(writer, NULL), "steps");
	EXPECT_EINVAL(rlv_writer_end_episode(NULL, 0, NULL), "writer");
	EXPECT_EINVAL(rlv_writer_end_episode(writer, 2, NULL), "stream 2");
	EXPECT_EINVAL(rlv_writer_stats(NULL, &stats), "writer");
	EXPECT_EINVAL(rlv_writer_stats(writer, NULL), "stats_out");
	stats.size = 2;
	EXPECT_EINVAL(rlv_writer_stats(writer, &stats), "stats_out->size 2");
	replay_end(&fx, &writer, NULL);
}

TEST(writer_append__bad_steps)
{
	const void *columns[REPLAY_COLUMNS];
	const void *const *good;
	double td[3] = { 1, NAN, -1 };
	uint16_t flags[3] = { 0, 0, 1 };
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct replay_fixture fx;
	struct rlv_writer *writer;
	uint32_t taken = 77;

	replay_open(&fx, &plain);
	writer = replay_writer(&fx, 2);
	good = replay_columns(&fx, 0, 0, 3);
	memcpy(columns, good, sizeof(columns));
	steps.n = 3;
	EXPECT_EINVAL(rlv_writer_append(writer, 0, &steps, &taken), "steps->columns");
	steps.columns = columns;
	EXPECT_EINVAL(rlv_writer_append(writer, 2, &steps, &taken), "stream 2");
	steps.size = 1;
	EXPECT_EINVAL(rlv_writer_append(writer, 0, &steps, &taken), "steps->size 1");
	steps.size = sizeof(steps);
	columns[4] = NULL;
	EXPECT_EINVAL(rlv_writer_append(writer, 0, &steps, &taken), "columns[4] (bonus)");
	columns[4] = good[4];
	steps.flags = flags;
	EXPECT_EINVAL(rlv_writer_append(writer, 0, &steps, &taken), "flags[2]");
	steps.flags = NULL;
	steps.td_error = td;
	EXPECT_EINVAL(rlv_writer_append(writer, 0, &steps, &taken), "td_error[1]");
	td[1] = 0;
	EXPECT_EINVAL(rlv_writer_append(writer, 0, &steps, &taken), "td_error[2]");
	td[2] = INFINITY;
	EXPECT_EINVAL(rlv_writer_append(writer, 0, &steps, &taken), "td_error[2]");
	EXPECT_EINVAL(rlv_writer_append_vector(writer, &steps), "steps->n 3");
	EXPECT_EINVAL(rlv_writer_end_episode(writer, 0, &steps), "final->n 3");
	assert_int_equal(taken, 77);
	assert_int_equal(replay_writer_stats(writer).steps, 0);
	assert_int_equal(replay_writer_stats(writer).blocks_claimed, 0);
	replay_end(&fx, &writer, NULL);
}

/* -------- sampler -------- */

static void expect_no_sampler(struct replay_fixture *fx, const struct rlv_sampler_opts *opts,
			      const char *word)
{
	struct rlv_sampler *sampler = NULL;

	EXPECT_EINVAL(rlv_sampler_open(fx->table, opts, &sampler), word);
	assert_null(sampler);
}

TEST(sampler_open__bad_options)
{
	const struct rlv_view view = { .n_step = 3 };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	const struct rlv_memory memory = { 0 };
	struct rlv_sampler_opts bad[] = {
		{ .size = 9 },
		{ .view = 1 },
		{ .n_step = 4 },
		{ .gamma = -0.1 },
		{ .gamma = NAN },
		{ .gamma = 1.5 },
		{ .beta = NAN },
		{ .beta = 100 },
		{ .layout = 2 },
		{ .weights = 2 },
		{ .batch_size = 1 << 30 },
		{ .batches = 1000 },
		{ .rank = 2, .world_size = 2 },
		{ .rank = 1 },
		{ .memory = &memory },
	};
	const char *words[] = { "opts.size 9", "opts.view 1",  "opts.n_step 4",   "opts.gamma",
				"opts.gamma",  "opts.gamma",   "opts.beta",       "opts.beta",
				"opts.layout", "opts.weights", "opts.batch_size", "opts.batches",
				"opts.rank",   "opts.rank",    "opts.memory" };
	struct rlv_sampler *sampler = NULL;
	struct replay_fixture fx;

	replay_open(&fx, &opts);
	EXPECT_EINVAL(rlv_sampler_open(NULL, NULL, &sampler), "table");
	EXPECT_EINVAL(rlv_sampler_open(fx.table, NULL, NULL), "sampler_out");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		bad[i].size = bad[i].size ? bad[i].size : sizeof(bad[i]);
		expect_no_sampler(&fx, &bad[i], words[i]);
	}
	replay_close(&fx);
}

TEST(sampler__bad_arguments)
{
	struct rlv_stats stats = { .size = sizeof(stats) };
	struct rlv_sampler_opts opts = { .batch_size = 8 };
	const struct rlv_batch *batch = NULL;
	const uint64_t key = 1;
	const float td = 1;
	struct replay_fixture fx;
	struct rlv_sampler *sampler;

	replay_open(&fx, &plain);
	sampler = replay_sampler(&fx, &opts);
	EXPECT_EINVAL(rlv_sampler_sample(NULL, 1, 0, &batch), "sampler");
	EXPECT_EINVAL(rlv_sampler_sample(sampler, 1, 0, NULL), "batch_out");
	EXPECT_EINVAL(rlv_sampler_sample(sampler, 0, 0, &batch), "n 0");
	EXPECT_EINVAL(rlv_sampler_sample(sampler, 9, 0, &batch), "n 9");
	EXPECT_EINVAL(rlv_sampler_update(NULL, &key, &td, 1, NULL), "sampler");
	EXPECT_EINVAL(rlv_sampler_update(sampler, NULL, &td, 1, NULL), "keys");
	EXPECT_EINVAL(rlv_sampler_update(sampler, &key, NULL, 1, NULL), "values");
	EXPECT_EINVAL(rlv_sampler_update(sampler, &key, &td, 1, NULL), "keys[0]");
	EXPECT_EINVAL(rlv_sampler_flush(NULL), "sampler");
	EXPECT_EINVAL(rlv_sampler_stats(NULL, &stats), "sampler");
	EXPECT_EINVAL(rlv_sampler_stats(sampler, NULL), "stats_out");
	stats.size = 2;
	EXPECT_EINVAL(rlv_sampler_stats(sampler, &stats), "stats_out->size 2");
	assert_int_equal(rlv_sampler_update(sampler, NULL, NULL, 0, NULL), 0);
	assert_null(batch);
	replay_end(&fx, NULL, &sampler);
}

/* -------- a count, and no pointer -------- */

TEST(counts__without_their_pointer_give_einval)
{
	static const char *const no_name[] = { NULL };
	struct rlv_table_opts table = { .size = sizeof(table), .capacity = 64, .n_columns = 3 };
	struct rlv_sampler_opts opts = { .size = sizeof(opts), .n_columns = 3 };
	struct rlv_steps steps = RLV_STEPS_INIT;
	struct rlv_table *none = NULL;
	struct rlv_sampler *sampler;
	struct rlv_writer *writer;
	struct replay_fixture fx;
	const uint64_t key = 1;
	const float value = 1;
	size_t n = 1;

	replay_open(&fx, &plain);
	expect_no_sampler(&fx, &opts, "opts.n_columns 3");
	opts.columns = no_name;
	opts.n_columns = 1;
	expect_no_sampler(&fx, &opts, "opts.columns[0]");
	EXPECT_EINVAL(rlv_table_create(fx.store, "x", &table, &none), "opts.n_columns 3");
	table.n_columns = 0;
	table.n_views = 1;
	EXPECT_EINVAL(rlv_table_create(fx.store, "x", &table, &none), "opts.n_columns 0");
	assert_null(none);
	EXPECT_EINVAL(rlv_store_tables(fx.store, NULL, &n), "names");
	EXPECT_EINVAL(rlv_table_shards(fx.table, NULL, sizeof(struct rlv_shard_info), &n),
		      "shards");
	writer = replay_writer(&fx, 1);
	steps.n = 1;
	EXPECT_EINVAL(rlv_writer_append(writer, 0, &steps, NULL), "steps->columns");
	EXPECT_EINVAL(rlv_writer_append_vector(writer, &steps), "steps->columns");
	EXPECT_EINVAL(rlv_writer_end_episode(writer, 0, &steps), "columns");
	replay_writer_done(&writer);
	opts = (struct rlv_sampler_opts){ .batch_size = 8 };
	sampler = replay_sampler(&fx, &opts);
	EXPECT_EINVAL(rlv_sampler_update(sampler, NULL, &value, 1, NULL), "keys");
	EXPECT_EINVAL(rlv_sampler_update(sampler, &key, NULL, 1, NULL), "values");
	EXPECT_EINVAL(rlv_sampler_set_priorities(sampler, NULL, &value, 1, NULL), "keys");
	EXPECT_EINVAL(rlv_sampler_set_priorities(sampler, &key, NULL, 1, NULL), "values");
	replay_end(&fx, NULL, &sampler);
}

int main(void)
{
	return test_run(NULL, NULL);
}

/* Tables: create, open, list, info; refused creates leave nothing behind. */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"
#include "tests/support/store_nodes.h"

#include <errno.h>
#include <string.h>

static struct rlv_store *open_store(uint64_t pool_bytes)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store = NULL;

	opts.pages = RLV_PAGES_SMALL;
	opts.pool_bytes = pool_bytes;
	assert_int_equal(rlv_store_open("embed:", &opts, &store), 0);
	return store;
}

static struct rlv_table_opts usual(void)
{
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;

	opts.columns = replay_obs_columns;
	opts.n_columns = REPLAY_COLUMNS;
	opts.capacity = 4096;
	return opts;
}

/* -------- the most columns -------- */

/* Steps of 256 columns, every other one bfloat16, come back as they went in. */
TEST(table__of_the_most_columns)
{
	static struct rlv_column columns[RLV_MAX_COLUMNS];
	static char names[RLV_MAX_COLUMNS][8];
	static uint16_t values[RLV_MAX_COLUMNS];
	static const void *data[RLV_MAX_COLUMNS];
	struct rlv_table_opts opts = { .columns = columns, .n_columns = RLV_MAX_COLUMNS };
	const struct rlv_sampler_opts sampler_opts = { .size = sizeof(sampler_opts),
						       .batch_size = 1 };
	struct rlv_steps steps = RLV_STEPS_INIT;
	const struct rlv_batch *batch = NULL;
	struct rlv_sampler *sampler = NULL;
	struct rlv_writer *writer = NULL;
	struct replay_fixture fx;

	for (uint32_t c = 0; c < RLV_MAX_COLUMNS; c++) {
		(void)snprintf(names[c], sizeof(names[c]), "c%u", c);
		columns[c] = (struct rlv_column){ .name = names[c],
						  .dtype = c % 2 ? RLV_BF16 : RLV_U16 };
		values[c] = (uint16_t)(0x3f80 + c);
		data[c] = &values[c];
	}
	replay_open(&fx, &opts);
	assert_int_equal(replay_info(fx.table).n_columns, RLV_MAX_COLUMNS);
	assert_int_equal(rlv_writer_open(fx.table, NULL, &writer), 0);
	steps.n = 1;
	steps.columns = data;
	assert_int_equal(rlv_writer_append(writer, 0, &steps, NULL), 0);
	assert_int_equal(rlv_writer_end_episode(writer, 0, NULL), 0);
	assert_int_equal(rlv_sampler_open(fx.table, &sampler_opts, &sampler), 0);
	assert_int_equal(rlv_sampler_sample(sampler, 1, 0, &batch), 0);
	assert_int_equal(batch->n_arrays, RLV_MAX_COLUMNS + 2);
	for (uint32_t c = 0; c < RLV_MAX_COLUMNS; c++) {
		assert_string_equal(batch->arrays[c].name, names[c]);
		assert_int_equal(batch->arrays[c].dtype, columns[c].dtype);
		assert_memory_equal(batch->arrays[c].data, &values[c], 2);
	}
	assert_int_equal(rlv_sampler_close(&sampler), 0);
	assert_int_equal(rlv_writer_close(&writer), 0);
	replay_close(&fx);
}

/* -------- opening and listing -------- */

TEST(table_info__says_what_was_asked_for)
{
	const struct rlv_view views[] = {
		{ .stack = 4, .n_step = 3, .alpha = 0.7, .eps = 0.01, .period = 2 },
		{ .selector = RLV_UNIFORM,
		  .max_times_sampled = 3,
		  .max_staleness = 9,
		  .limiter = rlv_limiter_sample_to_insert(4, 100, 50) },
	};
	const struct rlv_table_opts opts = { .n_views = 2,
					     .views = views,
					     .shards = 3,
					     .max_writers = 5,
					     .max_clients = 17,
					     .capacity = 10000 };
	struct rlv_table_info info;
	struct replay_fixture fx;

	replay_open(&fx, &opts);
	info = replay_info(fx.table);
	assert_string_equal(info.name, "t");
	assert_int_equal(info.n_columns, REPLAY_COLUMNS);
	for (uint32_t c = 0; c < REPLAY_COLUMNS; c++) {
		const struct rlv_column *want = &replay_obs_columns[c];

		assert_string_equal(info.columns[c].name, want->name);
		assert_int_equal(info.columns[c].dtype, want->dtype);
		assert_int_equal(info.columns[c].role, want->role);
		assert_int_equal(info.columns[c].ndim, want->ndim);
		assert_memory_equal(info.columns[c].shape, want->shape, sizeof(want->shape));
	}
	assert_int_equal(info.shards, 3);
	assert_int_equal(info.capacity, 10000);
	assert_true(info.slots >= 10000);
	assert_int_equal(info.window, 7);
	assert_int_equal(info.max_writers, 5);
	assert_int_equal(info.max_clients, 17);
	assert_int_equal(info.row_header_bytes, 24);
	assert_int_equal(info.views[0].view.stack, 4);
	assert_int_equal(info.views[0].view.n_step, 3);
	assert_int_equal(info.views[0].view.period, 2);
	assert_true(info.views[0].view.alpha == 0.7 && info.views[0].view.eps == 0.01);
	assert_int_equal(info.views[1].view.selector, RLV_UNIFORM);
	assert_int_equal(info.views[1].view.max_times_sampled, 3);
	assert_int_equal(info.views[1].view.max_staleness, 9);
	assert_true(info.views[1].view.limiter.samples_per_insert == 4);
	assert_true(info.views[1].view.limiter.min_diff == 350);
	assert_true(info.views[1].view.limiter.max_diff == 450);
	replay_close(&fx);
}

TEST(table_create__defaults)
{
	const struct rlv_table_opts opts = { 0 };
	struct rlv_table_info info;
	struct replay_fixture fx;

	replay_open(&fx, &opts);
	info = replay_info(fx.table);
	assert_int_equal(info.n_views, 1);
	assert_int_equal(info.shards, 1);
	assert_int_equal(info.max_writers, 4);
	assert_int_equal(info.max_clients, 64);
	assert_int_equal(info.views[0].view.selector, RLV_PRIORITIZED);
	assert_true(info.views[0].view.alpha == 0.6 && info.views[0].view.eps == 1e-6);
	assert_int_equal(info.views[0].view.limiter.min_size, 1);
	replay_close(&fx);
}

TEST(table_create__again_with_the_same_options_opens_it)
{
	struct rlv_table_opts opts = usual();
	struct rlv_store *store = open_store(0);
	struct rlv_table *one = NULL, *two = NULL;
	struct rlv_writer *writer = NULL;

	assert_int_equal(rlv_table_create(store, "t", &opts, &one), 0);
	assert_int_equal(rlv_table_create(store, "t", &opts, &two), 0);
	assert_int_equal(rlv_writer_open(one, NULL, &writer), 0);
	assert_int_equal(rlv_table_close(&two), 0);
	assert_int_equal(rlv_table_open(store, "t", &two), 0);
	assert_int_equal(rlv_writer_close(&writer), 0);
	assert_int_equal(rlv_table_close(&one), 0);
	assert_int_equal(rlv_table_close(&two), 0);
	assert_int_equal(rlv_store_close(&store), 0);
}

TEST(table_create__other_signature_gives_eexist)
{
	struct rlv_table_opts opts = usual();
	struct rlv_store *store = open_store(0);
	struct rlv_table *one = NULL, *two = NULL;

	assert_int_equal(rlv_table_create(store, "t", &opts, &one), 0);
	opts.n_columns--;
	replay_expect(rlv_table_create(store, "t", &opts, &two), -EEXIST, "table t");
	opts = usual();
	opts.capacity++;
	replay_expect(rlv_table_create(store, "t", &opts, &two), -EEXIST, "table t");
	assert_null(two);
	replay_verify(one);
	assert_int_equal(rlv_table_close(&one), 0);
	assert_int_equal(rlv_store_close(&store), 0);
}

TEST(table_open__no_such_table)
{
	struct rlv_store *store = open_store(0);
	struct rlv_table *table = NULL;

	replay_expect(rlv_table_open(store, "nope", &table), -ENOENT, "nope");
	assert_null(table);
	assert_int_equal(rlv_store_close(&store), 0);
}

TEST(store_tables__lists_names)
{
	struct rlv_table_opts opts = usual();
	struct rlv_store *store = open_store(0);
	struct rlv_table *table = NULL;
	char names[2][RLV_NAME_BYTES];
	size_t n = 2;

	for (uint32_t i = 0; i < 3; i++) {
		const char *name[] = { "a", "B-2", "c.3" };

		assert_int_equal(rlv_table_create(store, name[i], &opts, &table), 0);
		assert_int_equal(rlv_table_close(&table), 0);
	}
	assert_int_equal(rlv_store_tables(store, names, &n), 0);
	assert_int_equal(n, 3);
	assert_string_equal(names[0], "a");
	assert_string_equal(names[1], "B-2");
	n = 0;
	assert_int_equal(rlv_store_tables(store, NULL, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(rlv_store_close(&store), 0);
}

TEST(two_tables__keys_of_one_are_refused_by_the_other)
{
	struct rlv_table_opts opts = usual();
	struct rlv_store *store = open_store(0);
	struct replay_fixture a = { 0 }, b = { 0 };
	struct rlv_writer *writer;
	struct rlv_sampler *sampler, *other;
	const struct rlv_batch *batch;
	const float td[4] = { 1, 1, 1, 1 };

	replay_oracle_init(&a.oracle, true);
	assert_int_equal(rlv_table_create(store, "a", &opts, &a.table), 0);
	assert_int_equal(rlv_table_create(store, "b", &opts, &b.table), 0);
	writer = replay_writer(&a, 1);
	replay_append_plain(&a, writer, 0, 10);
	sampler = replay_sampler(&a, NULL);
	other = replay_sampler(&b, NULL);
	batch = replay_sample(sampler, 4);
	replay_expect(rlv_sampler_update(other, batch->key, td, 4, NULL), -EINVAL, "keys[0]");
	replay_verify(b.table);
	replay_sampler_done(&other);
	replay_sampler_done(&sampler);
	replay_writer_done(&writer);
	assert_int_equal(rlv_table_close(&a.table), 0);
	assert_int_equal(rlv_table_close(&b.table), 0);
	assert_int_equal(rlv_store_close(&store), 0);
	replay_oracle_fini(&a.oracle);
}

/* -------- memory -------- */

TEST(table_info__overhead_of_a_large_table)
{
	const struct rlv_view views[] = { { 0 }, { .selector = RLV_UNIFORM } };
	const struct rlv_table_opts opts = {
		.n_views = 2, .views = views, .max_writers = 4, .capacity = 1 << 20
	};
	struct rlv_table_info info;
	struct replay_fixture fx;

	replay_open(&fx, &opts);
	info = replay_info(fx.table);
	for (uint32_t v = 0; v < 2; v++)
		assert_true((double)info.views[v].overhead_bytes / (1 << 20) <= 12);
	replay_close(&fx);
}

TEST(table_info__frames_per_step_of_atari)
{
	const struct rlv_column columns[] = {
		{ .name = "frame",
		  .dtype = RLV_U8,
		  .role = RLV_OBS,
		  .ndim = 2,
		  .shape = { 84, 84 } },
		{ .name = "action", .dtype = RLV_U8 },
		{ .name = "reward", .dtype = RLV_F32, .role = RLV_REWARD },
	};
	const struct rlv_view view = { .stack = 4 };
	struct rlv_table_opts opts = { .n_views = 1,
				       .views = &view,
				       .max_writers = 4,
				       .capacity = 1 << 20,
				       .columns = columns,
				       .n_columns = 3 };
	struct rlv_table_info info;
	struct replay_fixture fx;
	double frames, repeated;

	replay_open(&fx, &opts);
	info = replay_info(fx.table);
	frames = (double)info.rows_bytes / (84 * 84) / (1 << 20);
	repeated = (double)(info.window - 1) / info.block;
	print_message("frames per step %.4f, row header %u bytes, repeated steps %.4f\n", frames,
		      info.row_header_bytes, repeated);
	assert_true(frames <= 1.06);
	replay_close(&fx);
}

TEST(table_create__full_pool_gives_enospc_and_leaves_nothing)
{
	struct rlv_store *store = open_store(16 << 20);
	struct rlv_store_info after = { .size = sizeof(after) };
	struct rlv_table_opts opts = usual();
	uint64_t used;
	struct rlv_table *table = NULL, *small = NULL;

	assert_int_equal(rlv_table_create(store, "small", &opts, &small), 0);
	used = store_node_at(store, 0).used_bytes;
	opts.capacity = 1 << 20;
	opts.shards = 4;
	replay_expect(rlv_table_create(store, "big", &opts, &table), -ENOSPC, "big");
	assert_null(table);
	assert_int_equal(rlv_store_info(store, &after), 0);
	assert_int_equal(store_node_at(store, 0).used_bytes, used);
	assert_int_equal(after.n_tables, 1);
	replay_verify(small);
	assert_int_equal(rlv_table_close(&small), 0);
	assert_int_equal(rlv_store_close(&store), 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}

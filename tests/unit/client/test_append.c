/* Appended steps and their items, against the oracle. */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/fake/fake_clock.h"
#include "tests/support/test.h"

#include "client/sampler/sampler.h"

#include "ds/sumtree/tops.h"

#include <errno.h>
#include <string.h>

/* A uniform draw of 2 x items in strata hits every item at least once. */
static size_t sample_all(struct replay_fixture *fx, const struct rlv_view *view, uint32_t index,
			 const struct replay_look *look)
{
	static uint8_t seen[REPLAY_STREAMS][8192];
	struct rlv_sampler_opts opts = { .view = index,
					 .batch_size = 16384,
					 .n_step = look->n_step,
					 .gamma = look->gamma,
					 .batches = 1 };
	struct rlv_sampler *sampler = replay_sampler(fx, &opts);
	size_t items = (size_t)replay_info(fx->table).views[index].items;
	const struct rlv_batch *batch;
	size_t distinct = 0;

	if (items == 0) {
		replay_sampler_done(&sampler);
		return 0;
	}
	memset(seen, 0, sizeof(seen));
	batch = replay_sample(sampler, (uint32_t)(2 * items + 2));
	replay_check_batch(&fx->oracle, view, look, batch);
	for (uint32_t i = 0; i < batch->n; i++) {
		uint64_t id = replay_batch_id(batch, i);
		uint8_t *cell = &seen[id >> 32][id & 8191];

		distinct += *cell == 0;
		*cell = 1;
	}
	rlv_batch_release(sampler, batch);
	replay_sampler_done(&sampler);
	assert_int_equal(distinct, items);
	return distinct;
}

static size_t expected_items(const struct replay_fixture *fx, const struct rlv_view *view)
{
	size_t n = 0;

	for (uint32_t s = 0; s < REPLAY_STREAMS; s++)
		n += replay_count_items(&fx->oracle, s, 0, view);
	return n;
}

/* Every item of every view, for every n-step that the view allows. */
static void check_all(struct replay_fixture *fx, const struct rlv_view *views, uint32_t n_views)
{
	for (uint32_t v = 0; v < n_views; v++) {
		const struct rlv_view *view = &views[v];
		uint32_t longest = view->n_step ? view->n_step : 1;

		for (uint32_t n = 1; n <= longest; n++) {
			const struct replay_look look = { .stack = view->stack ? view->stack : 1,
							  .n_step = n,
							  .gamma = 0.9 + 0.01 * n };

			assert_int_equal(sample_all(fx, view, v, &look), expected_items(fx, view));
		}
	}
}

/* Episodes of all lengths and endings. */
static void append_endings(struct replay_fixture *fx, struct rlv_writer *writer, uint32_t stream)
{
	for (uint32_t n = 1; n <= 9; n++) {
		replay_append_episode(fx, writer, stream, n, RLV_TERMINATED, false);
		replay_append_episode(fx, writer, stream, n, RLV_TRUNCATED, true);
		replay_append_episode(fx, writer, stream, n, RLV_TRUNCATED, false);
		replay_append_episode(fx, writer, stream, n, RLV_TERMINATED, true);
		replay_append_plain(fx, writer, stream, n);
		assert_int_equal(replay_end_episode(fx, writer, stream, n % 2), 0);
	}
}

static void run_endings(const struct rlv_view *views, uint32_t n_views, bool has_obs)
{
	struct rlv_table_opts opts = { .n_views = n_views, .views = views, .capacity = 4096 };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	if (!has_obs) {
		opts.columns = replay_next_columns;
		opts.n_columns = REPLAY_NEXT_COLUMNS;
	}
	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	append_endings(&fx, writer, 0);
	check_all(&fx, views, n_views);
	replay_append_plain(&fx, writer, 0, 3);
	replay_writer_done(&writer);
	replay_oracle_end(&fx.oracle, 0);
	check_all(&fx, views, n_views);
	replay_close(&fx);
}

TEST(writer_append__every_ending_for_every_n_step)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 5 };

	run_endings(&view, 1, true);
}

TEST(writer_append__every_ending_with_stored_next_observations)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 5 };

	run_endings(&view, 1, false);
}

TEST(writer_append__frame_stack_is_padded_at_episode_starts)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 3, .stack = 4 };

	run_endings(&view, 1, true);
}

TEST(writer_append__views_of_one_table_see_the_same_rows)
{
	const struct rlv_view views[] = {
		{ .selector = RLV_UNIFORM },
		{ .selector = RLV_UNIFORM, .n_step = 5, .stack = 4 },
		{ .selector = RLV_UNIFORM, .n_step = 2, .stack = 1, .period = 3 },
		{ .selector = RLV_UNIFORM, .stack = 2, .period = 2 },
	};
	run_endings(views, 4, true);
}

TEST(writer_append__an_item_waits_for_its_window)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 3 };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	for (uint32_t i = 1; i <= 6; i++) {
		replay_append_plain(&fx, writer, 0, 1);
		assert_int_equal(replay_info(fx.table).views[0].items, i > 3 ? i - 3 : 0);
	}
	replay_end(&fx, &writer, NULL);
}

TEST(writer_close__completes_the_pending_items)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 3 };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 2);
	replay_append_plain(&fx, writer, 0, 5);
	replay_append_plain(&fx, writer, 1, 4);
	replay_writer_done(&writer);
	/* The last step of each has no next observation: no item. */
	assert_int_equal(replay_info(fx.table).views[0].items, 4 + 3);
	replay_close(&fx);
}

TEST(writer_end_episode__twice_changes_nothing)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 2 };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	assert_int_equal(replay_end_episode(&fx, writer, 0, false), 0);
	replay_append_plain(&fx, writer, 0, 5);
	assert_int_equal(replay_end_episode(&fx, writer, 0, false), 0);
	assert_int_equal(replay_end_episode(&fx, writer, 0, false), 0);
	check_all(&fx, &view, 1);
	replay_end(&fx, &writer, NULL);
}

TEST(writer_end_episode__fills_what_the_final_row_does_not)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 3 };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	const bool final[] = { false, true };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	for (uint32_t i = 0; i < 2; i++) {
		replay_append_episode(&fx, writer, 0, 7, RLV_TERMINATED, false);
		assert_int_equal(replay_end_episode(&fx, writer, 0, final[i]), 0);
		assert_int_equal(replay_info(fx.table).views[0].items, 7 * (i + 1));
	}
	check_all(&fx, &view, 1);
	replay_end(&fx, &writer, NULL);
}

static uint64_t lost(struct rlv_writer *writer)
{
	return replay_writer_stats(writer).truncated_lost;
}

TEST(writer_stats__count_truncated_steps_that_are_no_items)
{
	const struct rlv_table_opts opts = { 0 };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_episode(&fx, writer, 0, 3, RLV_TRUNCATED, false);
	assert_int_equal(lost(writer), 0); /* a final observation may follow */
	replay_append_plain(&fx, writer, 0, 3);
	assert_int_equal(lost(writer), 1);
	assert_int_equal(replay_end_episode(&fx, writer, 0, false), 0);
	replay_append_episode(&fx, writer, 0, 1, RLV_TRUNCATED, true);
	replay_append_episode(&fx, writer, 0, 1, RLV_TERMINATED | RLV_TRUNCATED, false);
	replay_append_episode(&fx, writer, 0, 1, RLV_TRUNCATED, false);
	assert_int_equal(replay_end_episode(&fx, writer, 0, true), 0);
	assert_int_equal(lost(writer), 1);
	replay_append_episode(&fx, writer, 0, 1, RLV_TRUNCATED, false);
	replay_append_episode(&fx, writer, 0, 1, RLV_TRUNCATED, false);
	assert_int_equal(lost(writer), 2);
	assert_int_equal(replay_end_episode(&fx, writer, 0, false), 0);
	assert_int_equal(lost(writer), 3);
	replay_end(&fx, &writer, NULL);
}

TEST(writer_append__windows_reach_over_block_ends)
{
	const struct rlv_view views[] = { { .selector = RLV_UNIFORM, .n_step = 5, .stack = 4 },
					  { .selector = RLV_UNIFORM } };
	const struct rlv_table_opts opts = {
		.n_views = 2, .views = views, .block = 32, .max_writers = 1, .capacity = 2048
	};
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_stats stats;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	for (uint32_t n = 1; n < 40; n++)
		replay_append_episode(&fx, writer, 0, n, n % 3 ? RLV_TERMINATED : RLV_TRUNCATED,
				      n % 2);
	stats = replay_writer_stats(writer);
	assert_true(stats.blocks_claimed > 20);
	assert_int_equal(stats.repeated_rows,
			 (stats.blocks_claimed - 1) * (replay_info(fx.table).window - 1));
	check_all(&fx, views, 2);
	replay_end(&fx, &writer, NULL);
}

TEST(writer_append__streams_do_not_mix)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 3, .stack = 3 };
	const struct rlv_table_opts opts = {
		.n_views = 1, .views = &view, .max_writers = 6, .shards = 3, .capacity = 8192
	};
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 6);
	for (uint32_t i = 0; i < 200; i++)
		replay_append_episode(&fx, writer, i * 7 % 6, 1 + i % 11,
				      i % 2 ? RLV_TERMINATED : RLV_TRUNCATED, i % 3 == 0);
	check_all(&fx, &view, 1);
	replay_end(&fx, &writer, NULL);
}

TEST(writer_append_vector__gives_the_items_of_append)
{
	const struct rlv_view views[] = { { .selector = RLV_UNIFORM, .n_step = 2, .stack = 2 },
					  { .selector = RLV_UNIFORM, .period = 2 } };
	const struct rlv_table_opts opts = { .n_views = 2,
					     .views = views,
					     .max_writers = 5,
					     .shards = 2,
					     .block = 16,
					     .capacity = 4096 };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 5);
	for (uint32_t t = 0; t < 300; t++) {
		uint16_t flags[5] = { 0 };

		for (uint32_t i = 0; i < 5; i++)
			if ((t + i) % (7 + i) == 0)
				flags[i] = t % 2 ? RLV_TERMINATED : RLV_TRUNCATED;
			else if ((t + i) % (7 + i) == 1 && t > 1 && t % 4 == 1)
				flags[i] = RLV_FINAL;
		assert_int_equal(replay_append_vector(&fx, writer, 5, flags, NULL), 0);
	}
	check_all(&fx, views, 2);
	replay_end(&fx, &writer, NULL);
}

/* Ids of the live items of stream s: the newest `steps` rows that are items are all there. */
TEST(writer_append__newest_capacity_steps_stay_drawable)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 2 };
	const struct rlv_table_opts opts = {
		.n_views = 1, .views = &view, .capacity = 700, .max_writers = 2, .block = 16
	};
	static bool seen[8192];
	struct rlv_sampler_opts how = { .batch_size = 8192, .batches = 1, .gamma = 0.5 };
	struct replay_look look = { .stack = 1, .n_step = 2, .gamma = 0.5 };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct fake_clock clock;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	sampler = replay_sampler(&fx, &how);
	fake_clock_init(&clock, clock_now_ns(clock_monotonic()));
	atomic_store(&clock.step_ns, 2 * TOPS_AGE_NS); /* no draw is by the sums of the last one */
	sampler->h.clock = sampler->h.set.clock = &clock.clock;
	for (uint32_t lap = 0; lap < 60; lap++) {
		const struct rlv_batch *batch;
		size_t n;

		for (uint32_t i = 0; i < 6; i++)
			replay_append_episode(&fx, writer, 0, 17, RLV_TERMINATED, false);
		n = fx.oracle.streams[0].n;
		memset(seen, 0, sizeof(seen));
		batch = replay_sample(sampler,
				      (uint32_t)(2 * replay_info(fx.table).views[0].items + 2));
		replay_check_batch(&fx.oracle, &view, &look, batch);
		for (uint32_t i = 0; i < batch->n; i++)
			seen[replay_batch_id(batch, i) & 8191] = true;
		rlv_batch_release(sampler, batch);
		for (size_t row = n > 700 ? n - 700 : 0; row < n; row++)
			if (replay_is_item(&fx.oracle, 0, row, &view) && !seen[row & 8191])
				fail_msg("lap %u: row %zu of %zu is gone", lap, row, n);
	}
	replay_end(&fx, &writer, &sampler);
}

TEST(writer_stats__count_steps_items_and_blocks)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM };
	const struct rlv_table_opts opts = {
		.n_views = 1, .views = &view, .block = 16, .max_writers = 1
	};
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_stats stats;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 15);
	replay_append_plain(&fx, writer, 0, 1);
	stats = replay_writer_stats(writer);
	assert_int_equal(stats.calls, 2);
	assert_int_equal(stats.steps, 16);
	assert_int_equal(stats.items, 15);
	assert_int_equal(stats.blocks_claimed, 2); /* 15 rows beside the head of each */
	assert_int_equal(stats.repeated_rows, 1);
	assert_int_equal(stats.blocks_skipped, 0);
	assert_int_equal(stats.limiter_waits, 0);
	assert_int_equal(replay_info(fx.table).views[0].inserted, 15);
	replay_end(&fx, &writer, NULL);
}

TEST(writer_append__zero_steps_is_no_work)
{
	const struct rlv_table_opts opts = { 0 };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 0);
	assert_int_equal(replay_writer_stats(writer).steps, 0);
	assert_int_equal(replay_writer_stats(writer).blocks_claimed, 0);
	replay_end(&fx, &writer, NULL);
}

TEST(writer_append__more_than_a_ring_in_one_call)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .n_step = 3 };
	const struct rlv_table_opts opts = {
		.n_views = 1, .views = &view, .capacity = 256, .max_writers = 1, .block = 16
	};
	const struct replay_look look = { .stack = 1, .n_step = 3, .gamma = 0.9 };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 4000);
	assert_true(sample_all(&fx, &view, 0, &look) >= 256 - 3);
	replay_end(&fx, &writer, NULL);
}

int main(void)
{
	return test_run(NULL, NULL);
}

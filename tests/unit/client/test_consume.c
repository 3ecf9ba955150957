/*
 * Views that count how often an item is sampled: queues, stacks, at most k times.
 */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#define MS 1000000ll
#define MOST 4096

static uint32_t seen[REPLAY_STREAMS][MOST];

static uint32_t take_some(struct replay_fixture *fx, struct rlv_sampler *sampler,
			  const struct rlv_view *view, uint32_t n)
{
	const struct replay_look look = { .stack = 1, .n_step = 1, .gamma = 0.99 };
	const struct rlv_batch *batch;
	uint32_t got;

	if (rlv_sampler_sample(sampler, n, 0, &batch))
		return 0;
	got = batch->n;
	replay_check_batch(&fx->oracle, view, &look, batch);
	for (uint32_t i = 0; i < got; i++) {
		uint64_t id = replay_batch_id(batch, i);

		seen[id >> 32][id & (MOST - 1)]++;
	}
	rlv_batch_release(sampler, batch);
	return got;
}

static void expect_each(const struct replay_fixture *fx, const struct rlv_view *view,
			uint32_t times)
{
	for (uint32_t s = 0; s < REPLAY_STREAMS; s++)
		for (size_t row = 0; row < fx->oracle.streams[s].n; row++) {
			uint32_t want = replay_is_item(&fx->oracle, s, row, view) ? times : 0;

			if (seen[s][row] != want)
				fail_msg("stream %u row %zu was sampled %u times, want %u", s, row,
					 seen[s][row], want);
		}
}

/* Writer and two samplers by turns; every item comes exactly once, though the ring goes round. */
static void run_queue(const struct rlv_view *view, uint32_t shards)
{
	const struct rlv_table_opts opts = { .n_views = 1,
					     .views = view,
					     .capacity = 512,
					     .block = 16,
					     .max_writers = 2,
					     .shards = shards };
	struct rlv_writer_opts how = RLV_WRITER_OPTS_INIT;
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *samplers[2];

	memset(seen, 0, sizeof(seen));
	replay_open(&fx, &opts);
	how.timeout_ns = 1;
	how.streams = 2;
	assert_int_equal(rlv_writer_open(fx.table, &how, &writer), 0);
	samplers[0] = replay_sampler(&fx, NULL);
	samplers[1] = replay_sampler(&fx, NULL);
	for (uint32_t round = 0; round < 100; round++) {
		struct replay_put put = { .stream = round % 2, .n = 1 + round % 37 };
		int rc = replay_append(&fx, writer, &put);

		assert_true(rc == 0 || rc == -ETIMEDOUT);
		take_some(&fx, samplers[round % 2], view, 1 + round % 23);
	}
	while (take_some(&fx, samplers[0], view, 1))
		;
	/* The last windows are completed at the end: take these, too. */
	assert_int_equal(replay_end_episode(&fx, writer, 0, false), 0);
	assert_int_equal(replay_end_episode(&fx, writer, 1, false), 0);
	while (take_some(&fx, samplers[1], view, 1))
		;
	expect_each(&fx, view, 1);
	assert_int_equal(replay_info(fx.table).views[0].items, 0);
	replay_sampler_done(&samplers[0]);
	replay_sampler_done(&samplers[1]);
	replay_end(&fx, &writer, NULL);
}

TEST(sampler_sample__queue_gives_every_item_once)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM,
				       .max_times_sampled = 1,
				       .limiter = rlv_limiter_queue(60) };

	run_queue(&view, 1);
}

TEST(sampler_sample__queue_over_shards)
{
	const struct rlv_view view = { .max_times_sampled = 1, .limiter = rlv_limiter_queue(60) };

	run_queue(&view, 2);
}

TEST(sampler_sample__fifo_queue_over_many_laps)
{
	const struct rlv_view view = { .selector = RLV_FIFO,
				       .max_times_sampled = 1,
				       .limiter = rlv_limiter_queue(60) };

	run_queue(&view, 1);
}

static void run_ordered(enum rlv_selector selector)
{
	const struct rlv_view view = { .selector = selector, .max_times_sampled = 1 };
	const struct rlv_table_opts opts = {
		.n_views = 1, .views = &view, .block = 16, .max_writers = 1
	};
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint64_t next = 0;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 101);
	sampler = replay_sampler(&fx, NULL);
	while (next < 100) {
		const struct rlv_batch *batch = replay_sample(sampler, 7);

		for (uint32_t i = 0; i < batch->n; i++, next++)
			assert_int_equal(replay_batch_id(batch, i),
					 selector == RLV_FIFO ? next : 99 - next);
		rlv_batch_release(sampler, batch);
	}
	assert_int_equal(next, 100);
	replay_end(&fx, &writer, &sampler);
}

TEST(sampler_sample__fifo_gives_the_oldest_first)
{
	run_ordered(RLV_FIFO);
}

TEST(sampler_sample__lifo_gives_the_newest_first)
{
	run_ordered(RLV_LIFO);
}

TEST(writer_append__full_queue_waits_and_says_so)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM,
				       .max_times_sampled = 1,
				       .limiter = rlv_limiter_queue(10) };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	struct rlv_writer_opts how = RLV_WRITER_OPTS_INIT;
	struct replay_put put = { .n = 30 };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	how.timeout_ns = 5 * MS;
	assert_int_equal(rlv_writer_open(fx.table, &how, &writer), 0);
	replay_expect(replay_append(&fx, writer, &put), -ETIMEDOUT, "view 0");
	assert_int_equal(fx.oracle.streams[0].n, 11); /* 10 items, and the row that completes */
	assert_int_equal(replay_info(fx.table).views[0].items, 10);
	assert_int_equal(replay_writer_stats(writer).limiter_waits, 1);
	replay_end(&fx, &writer, NULL);
}

TEST(writer_append_vector__full_queue_takes_all_or_nothing)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM,
				       .max_times_sampled = 1,
				       .limiter = rlv_limiter_queue(10) };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view, .max_writers = 4 };
	const struct rlv_view *v = &view;
	struct rlv_writer_opts how = RLV_WRITER_OPTS_INIT;
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	memset(seen, 0, sizeof(seen));
	replay_open(&fx, &opts);
	how.timeout_ns = 1;
	how.streams = 4;
	assert_int_equal(rlv_writer_open(fx.table, &how, &writer), 0);
	sampler = replay_sampler(&fx, NULL);
	for (uint32_t t = 0; t < 3; t++)
		assert_int_equal(replay_append_vector(&fx, writer, 4, NULL, NULL), 0);
	replay_expect(replay_append_vector(&fx, writer, 4, NULL, NULL), -ETIMEDOUT, "limiter");
	assert_int_equal(replay_info(fx.table).views[0].items, 8);
	assert_int_equal(take_some(&fx, sampler, v, 5), 5);
	assert_int_equal(replay_append_vector(&fx, writer, 4, NULL, NULL), 0);
	while (take_some(&fx, sampler, v, 1))
		;
	expect_each(&fx, v, 1);
	replay_end(&fx, &writer, &sampler);
}

/* Free of any law but the count: every item comes `times` times, then nothing is left. */
static void run_counted(uint32_t times, enum rlv_selector selector, uint32_t shards)
{
	const struct rlv_view view = { .selector = selector, .max_times_sampled = times };
	const struct rlv_table_opts opts = { .n_views = 1,
					     .views = &view,
					     .capacity = 512,
					     .block = 16,
					     .max_writers = 2,
					     .shards = shards };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	uint32_t taken = 0;

	memset(seen, 0, sizeof(seen));
	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 2);
	replay_append_plain(&fx, writer, 0, 101);
	replay_append_plain(&fx, writer, 1, 57);
	sampler = replay_sampler(&fx, NULL);
	for (uint32_t got = 1; got; taken += got)
		got = take_some(&fx, sampler, &view, 16);
	for (uint32_t got = 1; got; taken += got)
		got = take_some(&fx, sampler, &view, 1);
	assert_int_equal(taken, 156 * times);
	expect_each(&fx, &view, times);
	replay_expect(rlv_sampler_sample(sampler, 1, 0, &batch), -ENODATA, "no items");
	assert_int_equal(replay_info(fx.table).views[0].items, 0);
	replay_end(&fx, &writer, &sampler);
}

TEST(sampler_sample__once_loses_nothing)
{
	run_counted(1, RLV_UNIFORM, 1);
	run_counted(1, RLV_PRIORITIZED, 2);
}

TEST(sampler_sample__three_times_each)
{
	run_counted(3, RLV_UNIFORM, 1);
	run_counted(3, RLV_PRIORITIZED, 2);
}

TEST(sampler_sample__fewer_items_left_than_asked_for)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .max_times_sampled = 1 };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	memset(seen, 0, sizeof(seen));
	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 6);
	sampler = replay_sampler(&fx, NULL);
	/* Items that were taken are handed over: they would be lost otherwise. */
	assert_int_equal(take_some(&fx, sampler, &view, 8), 5);
	expect_each(&fx, &view, 1);
	assert_int_equal(replay_info(fx.table).views[0].sampled, 5);
	replay_end(&fx, &writer, &sampler);
}

TEST(sampler_update__does_not_revive_a_taken_item)
{
	const struct rlv_view view = { .max_times_sampled = 1 };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	const float td[4] = { 1, 2, 3, 4 };
	struct rlv_update_result result;
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 9);
	sampler = replay_sampler(&fx, NULL);
	batch = replay_sample(sampler, 4);
	assert_int_equal(rlv_sampler_update(sampler, batch->key, td, 4, &result), 0);
	assert_int_equal(result.updated, 0);
	assert_int_equal(result.stale, 4);
	assert_int_equal(replay_info(fx.table).views[0].items, 4);
	rlv_batch_release(sampler, batch);
	replay_end(&fx, &writer, &sampler);
}

TEST(sampler_sample__one_view_consumes_the_other_keeps)
{
	const struct rlv_view views[] = { { .selector = RLV_UNIFORM, .max_times_sampled = 1 },
					  { .selector = RLV_UNIFORM } };
	const struct rlv_table_opts opts = { .n_views = 2, .views = views };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	memset(seen, 0, sizeof(seen));
	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 9);
	sampler = replay_sampler(&fx, NULL);
	assert_int_equal(take_some(&fx, sampler, &views[0], 8), 8);
	assert_int_equal(replay_info(fx.table).views[0].items, 0);
	assert_int_equal(replay_info(fx.table).views[1].items, 8);
	replay_end(&fx, &writer, &sampler);
}

TEST(sampler_sample__stack_preset_gives_every_item_once)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM,
				       .max_times_sampled = 1,
				       .limiter = rlv_limiter_stack(40) };

	run_queue(&view, 1);
}

int main(void)
{
	return test_run(NULL, NULL);
}

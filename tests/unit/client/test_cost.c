/*
 * Prices of calls in dependent phases and bytes, as the transport counts them. Exact: they are the
 * same on every machine. No limiter, nobody else at work; final additions to inner nodes apart.
 */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include "transport/barrier.h"

#include <string.h>

/* Levels above the leaves of a tree of so many leaves: fan-out 16, then the top of at most 64. */
static uint32_t levels_below_top(uint64_t slots)
{
	uint32_t levels = 0;

	for (uint64_t nodes = slots; nodes > 64; nodes = (nodes + 15) / 16)
		levels++;
	return levels;
}

static void writer_append__costs_one_phase_and_five_for_each_block(void **state)
{
	const struct rlv_view views[] = { { .n_step = 3 }, { .selector = RLV_UNIFORM } };
	struct rlv_table_opts opts = { .views = views, .block = 64, .max_writers = 2 };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	(void)state;
	for (opts.n_views = 1; opts.n_views <= 2; opts.n_views++) {
		uint32_t plain_calls = 0;

		replay_open(&fx, &opts);
		writer = replay_writer(&fx, 1);
		for (uint32_t i = 0; i < 500; i++) {
			struct rlv_stats a = replay_writer_stats(writer), b;
			uint64_t blocks, phases;

			replay_append_plain(&fx, writer, 0, 1 + i % 30);
			b = replay_writer_stats(writer);
			blocks = b.blocks_claimed - a.blocks_claimed;
			phases = b.phases - a.phases;
			/* Each view's leaves are claimed and published in phases of their own. */
			if (phases > (1 + blocks) * opts.n_views + (2 + 2 * opts.n_views) * blocks)
				fail_msg("append %u: %llu phases, %llu blocks", i,
					 (unsigned long long)phases, (unsigned long long)blocks);
			plain_calls += blocks == 0;
			if (blocks == 0 && i > 3)
				assert_int_equal(phases, opts.n_views);
		}
		assert_true(plain_calls > 300);
		replay_writer_done(&writer);
		replay_close(&fx);
	}
}

static void writer_append__one_view_keeps_the_pin(void **state)
{
	const struct rlv_table_opts opts = { .block = 64, .max_writers = 2 };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	(void)state;
	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	for (uint32_t i = 0; i < 300; i++) {
		struct rlv_stats a = replay_writer_stats(writer), b;

		replay_append_plain(&fx, writer, 0, 1 + i % 60);
		b = replay_writer_stats(writer);
		if (b.phases - a.phases > 1 + 5 * (b.blocks_claimed - a.blocks_claimed))
			fail_msg("append %u: %llu phases for %llu blocks", i,
				 (unsigned long long)(b.phases - a.phases),
				 (unsigned long long)(b.blocks_claimed - a.blocks_claimed));
		assert_int_equal(b.write_bytes - a.write_bytes,
				 (1 + i % 60) * replay_info(fx.table).row_bytes);
	}
	replay_writer_done(&writer);
	replay_close(&fx);
}

static void sampler_sample__costs_three_phases_and_the_levels(void **state)
{
	const struct rlv_table_opts opts = { .capacity = 20000 };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	struct rlv_stats a, b;
	uint32_t levels;

	(void)state;
	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	for (uint32_t i = 0; i < 6; i++)
		replay_append_plain(&fx, writer, 0, 4000);
	sampler = replay_sampler(&fx, NULL);
	levels = levels_below_top(replay_info(fx.table).slots);
	rlv_batch_release(sampler, replay_sample(sampler, 256));
	for (uint32_t n = 1; n <= 256; n *= 4) {
		a = replay_sampler_stats(sampler);
		rlv_batch_release(sampler, replay_sample(sampler, n));
		b = replay_sampler_stats(sampler);
		if (b.phases - a.phases > 3 + levels)
			fail_msg("sample of %u: %llu phases, %u levels", n,
				 (unsigned long long)(b.phases - a.phases), levels);
		/* Windows of two rows, and each node's children once or more. */
		assert_true(b.read_bytes - a.read_bytes >=
			    (uint64_t)n * 2 * replay_info(fx.table).row_bytes);
	}
	replay_end(&fx, &writer, &sampler);
}

static void sampler_update__costs_one_phase_for_a_batch_as_sampled(void **state)
{
	const struct rlv_table_opts opts = { .capacity = 20000 };
	struct rlv_sampler_opts how = { .batches = 2 };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch, *next;
	struct rlv_stats a, b;
	float td[256];

	(void)state;
	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 4000);
	replay_writer_done(&writer);
	for (uint32_t i = 0; i < 256; i++)
		td[i] = 0.001f * (float)i; /* below the running maximum */
	sampler = replay_sampler(&fx, &how);
	batch = replay_sample(sampler, 256);
	next = replay_sample(sampler, 256);
	a = replay_sampler_stats(sampler);
	assert_int_equal(rlv_sampler_update(sampler, batch->key, td, 256, NULL), 0);
	b = replay_sampler_stats(sampler);
	assert_int_equal(b.phases - a.phases, 1);
	/* Now the words seen are old: found out by the first CAS. */
	a = replay_sampler_stats(sampler);
	assert_int_equal(rlv_sampler_update(sampler, batch->key, td, 256, NULL), 0);
	b = replay_sampler_stats(sampler);
	assert_int_equal(b.phases - a.phases, 2);
	/* Keys in another order were not seen together. */
	a = replay_sampler_stats(sampler);
	assert_int_equal(rlv_sampler_update(sampler, next->key + 1, td, 200, NULL), 0);
	b = replay_sampler_stats(sampler);
	assert_int_equal(b.phases - a.phases, 2);
	replay_sampler_done(&sampler);
	replay_close(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writer_append__one_view_keeps_the_pin),
		cmocka_unit_test(writer_append__costs_one_phase_and_five_for_each_block),
		cmocka_unit_test(sampler_sample__costs_three_phases_and_the_levels),
		cmocka_unit_test(sampler_update__costs_one_phase_for_a_batch_as_sampled),
	};
	if (BARRIER_TSAN) {
		print_message("skipped: under TSan rows are staged, which costs a phase more\n");
		return TEST_EXIT_SKIP;
	}
	return TEST_RUN(tests, NULL, NULL);
}

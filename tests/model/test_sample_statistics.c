/*
 * Items are drawn as often as their priorities say. Chi-square with fixed seeds, quiet and while
 * others write and update.
 */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include "ds/sumtree/tops.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define ITEMS 200
#define DRAWS 60000

static double priority_wanted(uint64_t row)
{
	return pow((double)(row % 23) + 0.5 + 1e-6, 0.6);
}

/* ITEMS items of known priorities in stream 0. */
static void append_known(struct replay_fixture *fx, struct rlv_writer *writer)
{
	double td[ITEMS + 1];
	const struct replay_put put = { .n = ITEMS + 1, .td = td };

	for (uint32_t i = 0; i <= ITEMS; i++)
		td[i] = (double)(i % 23) + 0.5;
	assert_int_equal(replay_append(fx, writer, &put), 0);
}

/* Counts draws of stream 0's items; others are passed over. */
static void count_draws(struct rlv_sampler *sampler, uint32_t batch_size, uint64_t *seen)
{
	for (uint32_t total = 0; total < DRAWS;) {
		const struct rlv_batch *batch = replay_sample(sampler, batch_size);

		for (uint32_t i = 0; i < batch->n; i++) {
			uint64_t id = replay_batch_id(batch, i);

			if (id < ITEMS) {
				seen[id]++;
				total++;
			}
		}
		rlv_batch_release(sampler, batch);
	}
}

static void expect_by_priority(const uint64_t *seen)
{
	double expected[ITEMS], sum = 0;
	uint64_t total = 0;
	double z;

	for (uint32_t i = 0; i < ITEMS; i++) {
		sum += priority_wanted(i);
		total += seen[i];
	}
	for (uint32_t i = 0; i < ITEMS; i++)
		expected[i] = (double)total * priority_wanted(i) / sum;
	z = test_chi_square_z(seen, expected, ITEMS);
	print_message("chi-square: z %.2f of %llu draws\n", z, (unsigned long long)total);
	assert_true(z < 4);
}

static void run_quiet(uint32_t shards, bool independent)
{
	const struct rlv_table_opts opts = { .shards = shards, .block = 32 };
	struct rlv_sampler_opts how = { .seed = 99, .independent = independent };
	uint64_t seen[ITEMS] = { 0 };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	append_known(&fx, writer);
	sampler = replay_sampler(&fx, &how);
	count_draws(sampler, independent ? 256 : 1, seen);
	expect_by_priority(seen);
	replay_end(&fx, &writer, &sampler);
}

TEST(sampler_sample__draws_by_priority)
{
	run_quiet(1, true);
	run_quiet(1, false);
}

TEST(sampler_sample__draws_by_priority_over_shards)
{
	run_quiet(4, true);
}

/* Sets all priorities through a sampler. It draws by them from its private sums; so does another one. */
TEST(sampler_sample__draws_by_priority_after_updates)
{
	const struct rlv_table_opts opts = { .shards = 2, .block = 32 };
	struct rlv_sampler_opts how = { .seed = 5, .independent = true };
	uint64_t seen[ITEMS] = { 0 }, seen_by_other[ITEMS] = { 0 };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler, *other;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, ITEMS + 1);
	sampler = replay_sampler(&fx, &how);
	how.seed = 6;
	other = replay_sampler(&fx, &how);
	rlv_batch_release(other, replay_sample(other, 256)); /* its sums are of now */
	for (uint32_t round = 0; round < 40; round++) {
		const struct rlv_batch *batch = replay_sample(sampler, 256);
		float td[256];

		for (uint32_t i = 0; i < 256; i++)
			td[i] = (float)(replay_batch_id(batch, i) % 23) + 0.5f;
		assert_int_equal(rlv_sampler_update(sampler, batch->key, td, 256, NULL), 0);
		rlv_batch_release(sampler, batch);
	}
	count_draws(sampler, 256, seen);
	expect_by_priority(seen);
	for (uint32_t i = 0; i <= TOPS_DRAWS;
	     i++) /* these may be by stale sums: a law of their own */
		rlv_batch_release(other, replay_sample(other, 256));
	count_draws(other, 256, seen_by_other);
	expect_by_priority(seen_by_other);
	replay_sampler_done(&other);
	replay_end(&fx, &writer, &sampler);
}

/* -------- with others at work -------- */

struct noise {
	struct replay_fixture *fx;
	atomic_bool stop;
	atomic_int failed;
};

/* Writes and reprioritizes items that are not of stream 0. */
static void *make_noise(void *arg)
{
	struct noise *noise = arg;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct rlv_writer *writer = NULL;
	struct rlv_sampler *sampler = NULL;
	float obs[8][REPLAY_OBS] = { { 0 } };
	uint8_t frame[8][REPLAY_FRAME] = { { 0 } };
	double zeros[8] = { 0 };
	uint64_t ids[8];
	const void *const columns[] = { obs, frame, zeros, zeros, zeros, ids };
	struct rlv_steps steps = RLV_STEPS_INIT;

	for (uint32_t i = 0; i < 8; i++)
		ids[i] = 1ull << 32;
	opts.batch_size = 16;
	opts.seed = 3;
	steps.n = 8;
	steps.columns = columns;
	if (rlv_writer_open(noise->fx->table, NULL, &writer) ||
	    rlv_sampler_open(noise->fx->table, &opts, &sampler))
		atomic_store(&noise->failed, 1);
	while (!atomic_load(&noise->stop) && !atomic_load(&noise->failed)) {
		const struct rlv_batch *batch;
		uint64_t keys[16];
		float td[16];
		uint32_t n = 0;

		/* Never so many that stream 0's are overwritten. */
		if (replay_info(noise->fx->table).views[0].inserted < 3000 &&
		    rlv_writer_append(writer, 0, &steps, NULL))
			atomic_store(&noise->failed, 1);
		if (rlv_sampler_sample(sampler, 16, 0, &batch))
			continue;
		for (uint32_t i = 0; i < batch->n; i++)
			if (replay_batch_id(batch, i) >= ITEMS + 1) {
				keys[n] = batch->key[i];
				td[n] = (float)(keys[n] % 7);
				n++;
			}
		if (rlv_sampler_update(sampler, keys, td, n, NULL))
			atomic_store(&noise->failed, 1);
		rlv_batch_release(sampler, batch);
	}
	if (rlv_writer_close(&writer) || rlv_sampler_close(&sampler))
		atomic_store(&noise->failed, 1);
	return NULL;
}

TEST(sampler_sample__draws_by_priority_while_others_work)
{
	const struct rlv_table_opts opts = { .shards = 2, .block = 32, .capacity = 8192 };
	struct rlv_sampler_opts how = { .seed = 11, .independent = true };
	uint64_t seen[ITEMS] = { 0 };
	struct replay_fixture fx;
	struct noise noise = { .fx = &fx };
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	pthread_t thread;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	append_known(&fx, writer);
	sampler = replay_sampler(&fx, &how);
	assert_int_equal(pthread_create(&thread, NULL, make_noise, &noise), 0);
	count_draws(sampler, 256, seen);
	atomic_store(&noise.stop, true);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&noise.failed), 0);
	expect_by_priority(seen);
	replay_end(&fx, &writer, &sampler);
}

int main(void)
{
	return test_run(NULL, NULL);
}

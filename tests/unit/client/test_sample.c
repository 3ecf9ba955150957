/* Samples: the values of a batch's items, and waits. */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/fake/fake_clock.h"
#include "tests/support/test.h"

#include "client/sampler/sampler.h"

#include <errno.h>
#include <string.h>

#define MS 1000000ll

/* A table of `items` items of random priorities, in several shards. */
static void open_random(struct replay_fixture *fx, uint32_t items, uint32_t shards,
			enum rlv_selector selector)
{
	const struct rlv_view view = { .selector = selector, .alpha = 0.7 };
	const struct rlv_table_opts opts = {
		.n_views = 1, .views = &view, .shards = shards, .capacity = 4096
	};
	struct rlv_writer *writer;
	double td[1024];

	replay_open(fx, &opts);
	writer = replay_writer(fx, 4);
	for (uint32_t s = 0; s < 4; s++) {
		const struct replay_put put = {
			.stream = s, .n = items / 4 + 1, .td = td, .version = 10 + s
		};

		for (uint32_t i = 0; i < put.n; i++)
			td[i] = (double)((i * 7919 + s * 31) % 997) / 100;
		assert_int_equal(replay_append(fx, writer, &put), 0);
	}
	replay_writer_done(&writer);
	assert_int_equal(replay_info(fx->table).views[0].items, items);
}

static const struct rlv_view prioritized = { .alpha = 0.7, .n_step = 1 };
static const struct replay_look one_step = { .stack = 1, .n_step = 1, .gamma = 0.99 };

TEST(sampler_sample__probability_is_priority_over_sum)
{
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	double sum;

	open_random(&fx, 1000, 4, RLV_PRIORITIZED);
	sum = replay_info(fx.table).views[0].priority_sum;
	sampler = replay_sampler(&fx, NULL);
	batch = replay_sample(sampler, 256);
	replay_check_batch(&fx.oracle, &prioritized, &one_step, batch);
	for (uint32_t i = 0; i < batch->n; i++) {
		double want = (double)batch->priority[i] / sum;

		assert_true(fabs(batch->probability[i] - want) <= 1e-6 * want);
	}
	assert_int_equal(batch->table_size, 1000);
	rlv_batch_release(sampler, batch);
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_sample__priority_is_that_of_the_step)
{
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	open_random(&fx, 1000, 1, RLV_PRIORITIZED);
	sampler = replay_sampler(&fx, NULL);
	batch = replay_sample(sampler, 256);
	for (uint32_t i = 0; i < batch->n; i++) {
		uint64_t id = replay_batch_id(batch, i);
		double td = fx.oracle.streams[id >> 32].rows[id & UINT32_MAX].td;
		double want = pow(td + 1e-6, 0.7);

		assert_true(fabs((double)batch->priority[i] - want) <= 2e-6 * (1 + want));
	}
	rlv_batch_release(sampler, batch);
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_sample__uniform_items_are_equal)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM };
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	open_random(&fx, 1000, 3, RLV_UNIFORM);
	sampler = replay_sampler(&fx, NULL);
	batch = replay_sample(sampler, 256);
	replay_check_batch(&fx.oracle, &view, &one_step, batch);
	for (uint32_t i = 0; i < batch->n; i++) {
		assert_true(fabs(batch->probability[i] - 0.001) < 1e-12);
		assert_true(fabsf(batch->weight[i] - 1) < 1e-6f);
	}
	rlv_batch_release(sampler, batch);
	replay_end(&fx, NULL, &sampler);
}

/* -------- weights -------- */

static void check_weights(uint32_t how, double beta)
{
	struct rlv_sampler_opts opts = { .weights = how, .beta = beta };
	double b = beta == 0 ? 0.4 : beta, most = 0;
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	open_random(&fx, 500, 2, RLV_PRIORITIZED);
	sampler = replay_sampler(&fx, &opts);
	batch = replay_sample(sampler, 200);
	for (uint32_t i = 0; i < batch->n; i++)
		most = fmax(most, pow(500 * batch->probability[i], -b));
	for (uint32_t i = 0; i < batch->n; i++) {
		double want = pow(500 * batch->probability[i], -b);

		want /= how == RLV_WEIGHTS_BATCH ? most : 1;
		want = beta < 0 ? 1 : want;
		assert_true(fabs((double)batch->weight[i] - want) <= 1e-6 * want);
	}
	rlv_batch_release(sampler, batch);
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_sample__weights_of_a_batch)
{
	check_weights(RLV_WEIGHTS_BATCH, 0);
	check_weights(RLV_WEIGHTS_BATCH, 1);
}

TEST(sampler_sample__raw_weights)
{
	check_weights(RLV_WEIGHTS_RAW, 0.6);
}

static int set_beta(struct rlv_sampler *sampler, double beta)
{
	struct rlv_sample_opts opts = RLV_SAMPLE_OPTS_INIT;

	opts.beta = beta;
	return rlv_sampler_set_opts(sampler, &opts);
}

TEST(sampler_set_opts__beta_counts_from_the_next_sample)
{
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	double most = 0;

	open_random(&fx, 500, 2, RLV_PRIORITIZED);
	sampler = replay_sampler(&fx, NULL);
	replay_expect(set_beta(sampler, NAN), -EINVAL, "beta");
	replay_expect(set_beta(sampler, 9), -EINVAL, "beta");
	replay_expect(set_beta(NULL, 1), -EINVAL, "sampler");
	assert_int_equal(set_beta(sampler, 1), 0);
	batch = replay_sample(sampler, 200);
	for (uint32_t i = 0; i < batch->n; i++)
		most = fmax(most, 1 / batch->probability[i]);
	for (uint32_t i = 0; i < batch->n; i++) {
		double want = 1 / batch->probability[i] / most;

		assert_true(fabs((double)batch->weight[i] - want) <= 1e-6 * want);
	}
	rlv_batch_release(sampler, batch);
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_sample__no_weights)
{
	check_weights(RLV_WEIGHTS_BATCH, -1);
	check_weights(RLV_WEIGHTS_RAW, -1);
}

/* -------- columns -------- */

/* Keys drawn by two samplers of the same seed. */
struct pair {
	struct replay_fixture fx;
	struct rlv_sampler *samplers[2];
	const struct rlv_batch *batches[2];
};

static void open_pair(struct pair *pair, const struct rlv_sampler_opts *second)
{
	const struct rlv_sampler_opts whole = { .seed = second->seed };

	open_random(&pair->fx, 1000, 2, RLV_PRIORITIZED);
	pair->samplers[0] = replay_sampler(&pair->fx, &whole);
	pair->samplers[1] = replay_sampler(&pair->fx, second);
	for (uint32_t i = 0; i < 2; i++)
		pair->batches[i] = replay_sample(pair->samplers[i], 128);
	assert_memory_equal(pair->batches[0]->key, pair->batches[1]->key, 128 * sizeof(uint64_t));
}

static void close_pair(struct pair *pair)
{
	for (uint32_t i = 0; i < 2; i++) {
		rlv_batch_release(pair->samplers[i], pair->batches[i]);
		replay_sampler_done(&pair->samplers[i]);
	}
	replay_close(&pair->fx);
}

TEST(sampler_sample__some_columns)
{
	const char *const names[] = { replay_obs_columns[2].name, replay_obs_columns[0].name };
	const struct rlv_sampler_opts some = { .seed = 7, .columns = names, .n_columns = 2 };
	const struct rlv_batch *batch;
	struct pair pair;

	open_pair(&pair, &some);
	batch = pair.batches[1];
	assert_int_equal(batch->n_arrays, 5);
	assert_string_equal(batch->arrays[0].name, replay_obs_columns[0].name);
	assert_string_equal(batch->arrays[2].name, replay_obs_columns[2].name);
	for (uint32_t a = 0; a < 5; a++) {
		const struct rlv_array *got = &batch->arrays[a];
		const struct rlv_array *want = replay_array(pair.batches[0], got->name);

		assert_memory_equal(got->data, want->data, 128 * (size_t)want->strides[0]);
	}
	assert_memory_equal(pair.batches[0]->policy_version, batch->policy_version,
			    128 * sizeof(uint32_t));
	close_pair(&pair);
}

TEST(sampler_sample__no_columns_read_no_rows)
{
	const char *const none = NULL;
	const struct rlv_sampler_opts keys = { .seed = 7, .columns = &none };
	const struct rlv_batch *whole, *batch;
	struct rlv_update_result result;
	float td[128] = { 0 };
	struct pair pair;

	open_pair(&pair, &keys);
	whole = pair.batches[0];
	batch = pair.batches[1];
	assert_int_equal(batch->n_arrays, 0);
	assert_null(batch->policy_version);
	assert_memory_equal(whole->weight, batch->weight, 128 * sizeof(float));
	assert_memory_equal(whole->priority, batch->priority, 128 * sizeof(float));
	assert_int_equal(rlv_sampler_update(pair.samplers[1], batch->key, td, 128, &result), 0);
	assert_int_equal(result.stale, 0);
	assert_in_range(result.updated, 100, 128); /* some were drawn twice */
	close_pair(&pair);
}

TEST(sampler_open__wrong_columns)
{
	static const struct rlv_view views[] = { { .n_step = 1 }, { .max_staleness = 2 } };
	const struct rlv_table_opts opts = { .n_views = 2, .views = views };
	const char *const names[] = { replay_obs_columns[0].name, "nobody", NULL };
	struct rlv_sampler_opts how = RLV_SAMPLER_OPTS_INIT;
	struct rlv_sampler *sampler = NULL;
	struct replay_fixture fx;

	replay_open(&fx, &opts);
	how.columns = names;
	how.n_columns = 2;
	replay_expect(rlv_sampler_open(fx.table, &how, &sampler), -EINVAL, "nobody");
	how.columns = names + 2;
	how.n_columns = 1;
	replay_expect(rlv_sampler_open(fx.table, &how, &sampler), -EINVAL, "columns[0]");
	how.n_columns = 0;
	how.view = 1;
	replay_expect(rlv_sampler_open(fx.table, &how, &sampler), -EINVAL, "max_staleness");
	assert_null(sampler);
	replay_close(&fx);
}

/* -------- draws -------- */

TEST(sampler_sample__same_seed_same_keys)
{
	struct rlv_sampler_opts opts = { .seed = 7 };
	struct rlv_sampler_opts other = { .seed = 8 };
	struct rlv_sampler *samplers[3];
	const struct rlv_batch *batches[3];
	struct replay_fixture fx;

	open_random(&fx, 1000, 2, RLV_PRIORITIZED);
	samplers[0] = replay_sampler(&fx, &opts);
	samplers[1] = replay_sampler(&fx, &opts);
	samplers[2] = replay_sampler(&fx, &other);
	for (uint32_t i = 0; i < 3; i++)
		batches[i] = replay_sample(samplers[i], 128);
	assert_memory_equal(batches[0]->key, batches[1]->key, 128 * sizeof(uint64_t));
	assert_memory_not_equal(batches[0]->key, batches[2]->key, 128 * sizeof(uint64_t));
	for (uint32_t i = 0; i < 3; i++)
		replay_sampler_done(&samplers[i]);
	replay_close(&fx);
}

TEST(sampler_sample__ranks_draw_disjoint_strata)
{
	static bool seen[4][512];
	struct replay_fixture fx;

	open_random(&fx, 400, 2, RLV_UNIFORM);
	memset(seen, 0, sizeof(seen));
	for (uint32_t rank = 0; rank < 4; rank++) {
		struct rlv_sampler_opts opts = { .rank = rank, .world_size = 4, .seed = 5 };
		struct rlv_sampler *sampler = replay_sampler(&fx, &opts);
		/* 400 strata of 400 items: each holds one item exactly. */
		const struct rlv_batch *batch = replay_sample(sampler, 100);

		for (uint32_t i = 0; i < batch->n; i++) {
			uint64_t id = replay_batch_id(batch, i);

			assert_false(seen[id >> 32][id & 511]);
			seen[id >> 32][id & 511] = true;
		}
		replay_sampler_done(&sampler);
	}
	replay_close(&fx);
}

TEST(sampler_sample__independent_draws_repeat_items)
{
	struct rlv_sampler_opts opts = { .independent = true };
	static uint32_t seen[4][512];
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	uint32_t twice = 0;

	open_random(&fx, 256, 1, RLV_UNIFORM);
	memset(seen, 0, sizeof(seen));
	sampler = replay_sampler(&fx, &opts);
	batch = replay_sample(sampler, 256);
	for (uint32_t i = 0; i < batch->n; i++) {
		uint64_t id = replay_batch_id(batch, i);

		twice += seen[id >> 32][id & 511]++ == 1;
	}
	assert_true(twice > 20); /* expected 68 */
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_sample__one_item_fills_a_batch)
{
	const struct rlv_table_opts opts = { 0 };
	const struct rlv_view view = { .n_step = 1 };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 2);
	sampler = replay_sampler(&fx, NULL);
	batch = replay_sample(sampler, 256);
	assert_int_equal(batch->n, 256);
	replay_check_batch(&fx.oracle, &view, &one_step, batch);
	assert_true(fabs(batch->probability[255] - 1) < 1e-12);
	rlv_batch_release(sampler, batch);
	replay_end(&fx, &writer, &sampler);
}

TEST(sampler_sample__too_old_policies_are_left_out)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM, .max_staleness = 2 };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	for (uint32_t version = 1; version <= 6; version++) {
		const struct replay_put put = { .n = 50, .version = version };

		assert_int_equal(replay_append(&fx, writer, &put), 0);
	}
	sampler = replay_sampler(&fx, NULL);
	for (uint32_t round = 0; round < 4; round++) {
		const struct rlv_batch *batch = replay_sample(sampler, 64);

		replay_check_batch(&fx.oracle, &view, &one_step, batch);
		for (uint32_t i = 0; round > 0 && i < batch->n; i++)
			assert_true(batch->policy_version[i] >= 4);
		rlv_batch_release(sampler, batch);
	}
	assert_true(replay_sampler_stats(sampler).redraws > 0);
	replay_end(&fx, &writer, &sampler);
}

TEST(sampler_sample__counts_staleness)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint64_t behind = 0, oldest;
	uint32_t newest = 0;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	sampler = replay_sampler(&fx, NULL);
	for (uint32_t round = 1; round <= 6; round++) {
		const struct replay_put put = { .n = 50, .version = round * 3 };
		const struct rlv_batch *batch;

		assert_int_equal(replay_append(&fx, writer, &put), 0);
		batch = replay_sample(sampler, 64);
		for (uint32_t i = 0; i < batch->n; i++)
			if (batch->policy_version[i] > newest)
				newest = batch->policy_version[i];
		oldest = 0;
		for (uint32_t i = 0; i < batch->n; i++) {
			uint64_t age = newest - batch->policy_version[i];

			behind += age;
			oldest = age > oldest ? age : oldest;
		}
		rlv_batch_release(sampler, batch);
		assert_int_equal(replay_sampler_stats(sampler).staleness, behind);
		assert_int_equal(replay_sampler_stats(sampler).staleness_max, oldest);
		assert_int_equal(replay_sampler_stats(sampler).policy_version, newest);
	}
	assert_true(behind > 0);
	replay_end(&fx, &writer, &sampler);
}

/* -------- waits -------- */

TEST(sampler_sample__empty_view_without_waiting_gives_enodata)
{
	const struct rlv_table_opts opts = { 0 };
	const struct rlv_batch *batch = (const void *)&opts;
	struct replay_fixture fx;
	struct rlv_sampler *sampler;

	replay_open(&fx, &opts);
	sampler = replay_sampler(&fx, NULL);
	replay_expect(rlv_sampler_sample(sampler, 4, 0, &batch), -ENODATA, "no items");
	assert_ptr_equal(batch, (const void *)&opts);
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_sample__waits_for_min_size)
{
	const struct rlv_view view = { .limiter = rlv_limiter_min_size(10) };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	struct fake_clock clock; /* moved by looks alone */

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	sampler = replay_sampler(&fx, NULL);
	fake_clock_init(&clock, clock_now_ns(clock_monotonic()));
	atomic_store(&clock.step_ns, MS);
	sampler->h.clock = sampler->h.set.clock = &clock.clock;
	replay_append_plain(&fx, writer, 0, 10); /* 9 items */
	replay_expect(rlv_sampler_sample(sampler, 4, 20 * MS, &batch), -ETIMEDOUT, "min_size 10");
	replay_append_plain(&fx, writer, 0, 1);
	batch = replay_sample(sampler, 4);
	rlv_batch_release(sampler, batch);
	assert_true(replay_sampler_stats(sampler).limiter_waits == 1);
	/* from the first refusal to behind the deadline */
	assert_in_range(replay_sampler_stats(sampler).limiter_wait_ns, 10 * MS, 25 * MS);
	replay_end(&fx, &writer, &sampler);
}

/* Samples per insert 2, 8 either way: the law of the header, step by step. */
TEST(sampler_sample__keeps_samples_per_insert)
{
	const struct rlv_view view = { .limiter = rlv_limiter_sample_to_insert(2, 4, 8) };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	struct rlv_writer_opts how = RLV_WRITER_OPTS_INIT;
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	uint64_t sampled = 0;

	replay_open(&fx, &opts);
	how.timeout_ns = 1;
	assert_int_equal(rlv_writer_open(fx.table, &how, &writer), 0);
	sampler = replay_sampler(&fx, NULL);
	for (uint32_t round = 0; round < 20; round++) {
		const struct replay_put put = { .n = 1000 };
		double inserted;

		replay_expect(replay_append(&fx, writer, &put), -ETIMEDOUT, "limiter of view 0");
		inserted = (double)replay_info(fx.table).views[0].inserted;
		assert_true(inserted * 2 - (double)sampled <= view.limiter.max_diff);
		assert_true((inserted + 1) * 2 - (double)sampled > view.limiter.max_diff);
		while (rlv_sampler_sample(sampler, 1, 0, &batch) == 0) {
			sampled++;
			rlv_batch_release(sampler, batch);
		}
		assert_true(inserted * 2 - (double)sampled >= view.limiter.min_diff);
		assert_true(inserted * 2 - (double)sampled - 1 < view.limiter.min_diff);
		assert_int_equal(replay_info(fx.table).views[0].sampled, sampled);
	}
	replay_expect(rlv_sampler_sample(sampler, 1, 1 * MS, &batch), -ETIMEDOUT, "inserted");
	replay_sampler_done(&sampler);
	assert_int_equal(rlv_writer_close(&writer), 0);
	replay_close(&fx);
}

TEST(sampler_sample__more_than_the_law_can_ever_admit)
{
	const struct rlv_view view = { .limiter = rlv_limiter_sample_to_insert(1, 4, 8) };
	const struct rlv_table_opts opts = { .n_views = 1, .views = &view };
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;

	replay_open(&fx, &opts);
	sampler = replay_sampler(&fx, NULL);
	replay_expect(rlv_sampler_sample(sampler, 200, -1, &batch), -EINVAL, "200");
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_stats__count_what_was_sampled)
{
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	struct rlv_stats stats;

	open_random(&fx, 300, 1, RLV_PRIORITIZED);
	sampler = replay_sampler(&fx, NULL);
	for (uint32_t i = 1; i <= 5; i++)
		rlv_batch_release(sampler, replay_sample(sampler, 10 * i));
	stats = replay_sampler_stats(sampler);
	assert_int_equal(stats.calls, 5);
	assert_int_equal(stats.items, 150);
	assert_int_equal(stats.redraws, 0);
	assert_int_equal(stats.limiter_waits, 0);
	assert_int_equal(replay_info(fx.table).views[0].sampled, 150);
	replay_end(&fx, NULL, &sampler);
}

int main(void)
{
	return test_run(NULL, NULL);
}

/* Priorities by key: stored, dropped and refused values. */
#include "tests/support/fixture/replay_fixture.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#define QUANTUM (1.0 / 1048576)

/* A prioritized table of `steps` - 1 items, all with |TD| 1. */
static void open_flat(struct replay_fixture *fx, const struct rlv_view *view, uint32_t steps,
		      uint32_t shards)
{
	const struct rlv_table_opts opts = { .n_views = 1,
					     .views = view,
					     .shards = shards,
					     .max_writers = 2,
					     .block = 32,
					     .capacity = 1024 };
	struct rlv_writer *writer;

	replay_open(fx, &opts);
	writer = replay_writer(fx, 1);
	replay_append_plain(fx, writer, 0, steps);
	replay_writer_done(&writer);
}

/* The priority of the item as stored now: it is drawn again until it comes. */
static double priority_of(struct rlv_sampler *sampler, uint64_t key)
{
	for (uint32_t round = 0; round < 400; round++) {
		const struct rlv_batch *batch = replay_sample(sampler, 256);
		double priority = -1;

		for (uint32_t i = 0; i < batch->n; i++)
			if (batch->key[i] == key)
				priority = (double)batch->priority[i];
		rlv_batch_release(sampler, batch);
		if (priority >= 0)
			return priority;
	}
	fail_msg("item 0x%016llx was never drawn", (unsigned long long)key);
	return 0;
}

/* n keys of different items. */
static void distinct_keys(struct rlv_sampler *sampler, uint64_t *keys, uint32_t n)
{
	const struct rlv_batch *batch = replay_sample(sampler, 256);
	uint32_t got = 0;

	for (uint32_t i = 0; i < batch->n && got < n; i++) {
		bool known = false;

		for (uint32_t k = 0; k < got; k++)
			known |= keys[k] == batch->key[i];
		if (!known)
			keys[got++] = batch->key[i];
	}
	assert_int_equal(got, n);
	rlv_batch_release(sampler, batch);
}

static const struct rlv_view alpha_half = { .alpha = 0.5, .eps = 0.01 };

TEST(sampler_update__stores_the_exact_power)
{
	static const float td[] = { 0, 1e-3f, 0.25f, 1, 3.5f, 100, 12345.678f };
	uint64_t keys[7];
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	struct rlv_update_result result;

	open_flat(&fx, &alpha_half, 40, 2);
	sampler = replay_sampler(&fx, NULL);
	distinct_keys(sampler, keys, 7);
	assert_int_equal(rlv_sampler_update(sampler, keys, td, 7, &result), 0);
	assert_int_equal(result.updated, 7);
	assert_int_equal(result.stale, 0);
	assert_int_equal(result.clamped, 0);
	for (uint32_t i = 0; i < 7; i++) {
		double want = pow((double)td[i] + 0.01, 0.5);
		double got = priority_of(sampler, keys[i]);

		assert_true(fabs(got - want) <= QUANTUM + 2e-7 * want);
	}
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_update__sum_is_exact)
{
	float td[256];
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	const struct rlv_batch *batch;
	double sum = 0, want;
	uint64_t keys[30];

	open_flat(&fx, &alpha_half, 31, 2);
	sampler = replay_sampler(&fx, NULL);
	distinct_keys(sampler, keys, 30);
	for (uint32_t i = 0; i < 30; i++) {
		td[i] = (float)i / 4;
		want = ceil(pow((double)td[i] + 0.01, 0.5) / QUANTUM);
		sum += want * QUANTUM;
	}
	assert_int_equal(rlv_sampler_update(sampler, keys, td, 30, NULL), 0);
	/* ceil of a float power may be one quantum off. */
	assert_true(fabs(replay_info(fx.table).views[0].priority_sum - sum) <= 30 * QUANTUM);
	batch = replay_sample(sampler, 256);
	for (uint32_t i = 0; i < batch->n; i++)
		assert_true(fabs(batch->probability[i] -
				 (double)batch->priority[i] /
					 replay_info(fx.table).views[0].priority_sum) < 1e-7);
	rlv_batch_release(sampler, batch);
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_update__last_of_equal_keys_wins)
{
	uint64_t keys[4];
	const float td[4] = { 5, 7, 2, 3 };
	struct rlv_update_result result;
	struct replay_fixture fx;
	struct rlv_sampler *sampler;

	open_flat(&fx, &alpha_half, 40, 1);
	sampler = replay_sampler(&fx, NULL);
	distinct_keys(sampler, keys, 2);
	keys[2] = keys[0];
	keys[3] = keys[1];
	assert_int_equal(rlv_sampler_update(sampler, keys, td, 4, &result), 0);
	assert_int_equal(result.updated, 2);
	assert_true(fabs(priority_of(sampler, keys[0]) - sqrt(2.01)) < 1e-5);
	assert_true(fabs(priority_of(sampler, keys[1]) - sqrt(3.01)) < 1e-5);
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_update__more_keys_than_a_batch)
{
	struct rlv_sampler_opts opts = { .batch_size = 16 };
	uint64_t keys[120];
	float td[120];
	struct rlv_update_result result;
	struct replay_fixture fx;
	struct rlv_sampler *sampler, *wide;

	open_flat(&fx, &alpha_half, 40, 2);
	wide = replay_sampler(&fx, NULL);
	sampler = replay_sampler(&fx, &opts);
	distinct_keys(wide, keys, 30);
	for (uint32_t i = 0; i < 120; i++) {
		keys[i] = keys[i % 30];
		td[i] = (float)i;
	}
	assert_int_equal(rlv_sampler_update(sampler, keys, td, 120, &result), 0);
	assert_int_equal(result.stale, 0);
	for (uint32_t i = 0; i < 30; i += 7)
		assert_true(fabs(priority_of(wide, keys[i]) - sqrt(90.01 + i)) < 1e-4);
	replay_sampler_done(&sampler);
	replay_end(&fx, NULL, &wide);
}

TEST(sampler_update__keys_of_overwritten_items_drop)
{
	uint64_t keys[8];
	const float td[8] = { 9, 9, 9, 9, 9, 9, 9, 9 };
	struct rlv_update_result result;
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	struct rlv_writer *writer;
	double before;

	open_flat(&fx, &alpha_half, 100, 1);
	sampler = replay_sampler(&fx, NULL);
	distinct_keys(sampler, keys, 8);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 3000);
	before = replay_info(fx.table).views[0].priority_sum;
	assert_int_equal(rlv_sampler_update(sampler, keys, td, 8, &result), 0);
	assert_int_equal(result.updated, 0);
	assert_int_equal(result.stale, 8);
	assert_true(replay_info(fx.table).views[0].priority_sum == before);
	assert_int_equal(replay_sampler_stats(sampler).stale_updates, 8);
	assert_int_equal(replay_sampler_stats(sampler).updates, 0);
	replay_end(&fx, &writer, &sampler);
}

TEST(sampler_update__out_of_range_clamps_and_counts)
{
	uint64_t keys[2];
	const float td[2] = { 3.4e38f, 1 };
	struct rlv_update_result result;
	struct replay_fixture fx;
	struct rlv_sampler *sampler;

	open_flat(&fx, &alpha_half, 40, 1);
	sampler = replay_sampler(&fx, NULL);
	distinct_keys(sampler, keys, 2);
	assert_int_equal(rlv_sampler_update(sampler, keys, td, 2, &result), 0);
	assert_int_equal(result.updated, 2);
	assert_int_equal(result.clamped, 1);
	assert_int_equal(replay_sampler_stats(sampler).clamped, 1);
	/* The largest that the leaf word holds: (2^40 - 1) / 2^20. */
	assert_true(fabs(replay_info(fx.table).views[0].max_priority - 1048576) < 1);
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_update__zero_stays_drawable)
{
	const struct rlv_view view = { .alpha = 1 };
	uint64_t keys[39];
	float td[39] = { 0 };
	struct replay_fixture fx;
	struct rlv_sampler *sampler;

	open_flat(&fx, &view, 40, 1);
	sampler = replay_sampler(&fx, NULL);
	distinct_keys(sampler, keys, 39);
	assert_int_equal(rlv_sampler_update(sampler, keys, td, 39, NULL), 0);
	assert_int_equal(replay_info(fx.table).views[0].items, 39);
	assert_int_equal(rlv_sampler_set_priorities(sampler, keys, td, 39, NULL), 0);
	assert_int_equal(replay_info(fx.table).views[0].items, 39);
	assert_true(fabs(priority_of(sampler, keys[3]) - QUANTUM) < 1e-9);
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_set_priorities__stores_them_as_they_are)
{
	uint64_t keys[3];
	const float priorities[3] = { 0.5f, 17.25f, 1000 };
	struct replay_fixture fx;
	struct rlv_sampler *sampler;

	open_flat(&fx, &alpha_half, 40, 1);
	sampler = replay_sampler(&fx, NULL);
	distinct_keys(sampler, keys, 3);
	assert_int_equal(rlv_sampler_set_priorities(sampler, keys, priorities, 3, NULL), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(priority_of(sampler, keys[i]) == (double)priorities[i]);
	replay_end(&fx, NULL, &sampler);
}

TEST(writer_append__new_items_take_the_running_maximum)
{
	uint64_t keys[1];
	const float td[1] = { 24 };
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	struct rlv_writer *writer;
	double before;

	open_flat(&fx, &alpha_half, 40, 2);
	assert_true(fabs(replay_info(fx.table).views[0].priority_sum - 39) < 1e-3);
	sampler = replay_sampler(&fx, NULL);
	distinct_keys(sampler, keys, 1);
	assert_int_equal(rlv_sampler_update(sampler, keys, td, 1, NULL), 0);
	assert_true(fabs(replay_info(fx.table).views[0].max_priority - sqrt(24.01)) < 1e-5);
	before = replay_info(fx.table).views[0].priority_sum;
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 11);
	assert_true(fabs(replay_info(fx.table).views[0].priority_sum - before - 10 * sqrt(24.01)) <
		    1e-3);
	replay_end(&fx, &writer, &sampler);
}

/* Appends one item without a TD error; its priority. */
static double append_item(struct replay_fixture *fx, struct rlv_writer *writer)
{
	double before = replay_info(fx->table).views[0].priority_sum;

	replay_append_plain(fx, writer, 0, 1);
	return replay_info(fx->table).views[0].priority_sum - before;
}

/* Of many shards an append reads the maxima of some in turn. */
TEST(writer_append__new_items_take_the_running_maximum_of_many_shards)
{
	const struct rlv_table_opts opts = {
		.n_views = 1, .views = &alpha_half, .shards = 12, .capacity = 49152
	};
	const float td[1] = { 24 };
	double td_high[2] = { 0 };
	const struct replay_put put = { .n = 2, .td = td_high };
	struct replay_fixture fx;
	struct rlv_writer *writer;
	struct rlv_sampler *sampler;
	uint64_t keys[1];
	double last = 0;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	replay_append_plain(&fx, writer, 0, 2000);
	sampler = replay_sampler(&fx, NULL);
	distinct_keys(sampler, keys, 1);
	assert_int_equal(rlv_sampler_update(sampler, keys, td, 1, NULL), 0);
	for (uint32_t i = 0; i < 6; i++) /* a turn */
		last = append_item(&fx, writer);
	assert_true(fabs(last - sqrt(24.01)) < 1e-3);
	for (uint32_t i = 0; i < 12; i++) /* and it stays */
		assert_true(fabs(append_item(&fx, writer) - sqrt(24.01)) < 1e-3);
	/* What the writer itself stored counts at once, wherever it is in the turn: of 6 calls, here 7. */
	for (uint32_t high = 10; high < 20; high++) {
		td_high[1] = high * high - 0.01;
		assert_int_equal(replay_append(&fx, writer, &put), 0);
		for (uint32_t i = 0; i < 6; i++)
			assert_true(fabs(append_item(&fx, writer) - high) < 1e-3);
	}
	replay_end(&fx, &writer, &sampler);
}

TEST(writer_append__given_td_errors_count_as_maximum_too)
{
	const struct rlv_table_opts opts = { .n_views = 1, .views = &alpha_half };
	const double td[3] = { 99.99, 0, 0 };
	const struct replay_put put = { .n = 3, .td = td };
	struct replay_fixture fx;
	struct rlv_writer *writer;

	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	assert_int_equal(replay_append(&fx, writer, &put), 0);
	assert_true(fabs(replay_info(fx.table).views[0].max_priority - 10) < 1e-5);
	replay_end(&fx, &writer, NULL);
}

TEST(sampler_update__sums_follow_each_update)
{
	struct rlv_sampler_opts opts = { .defer_updates = 16 }; /* ignored */
	uint64_t keys[39];
	float td[39];
	struct replay_fixture fx;
	struct rlv_sampler *sampler;

	open_flat(&fx, &alpha_half, 40, 1);
	sampler = replay_sampler(&fx, &opts);
	distinct_keys(sampler, keys, 39);
	for (uint32_t round = 0; round < 40; round++) {
		for (uint32_t i = 0; i < 39; i++)
			td[i] = (float)((i + round) % 9);
		assert_int_equal(rlv_sampler_update(sampler, keys, td, 39, NULL), 0);
	}
	replay_verify(fx.table);
	assert_int_equal(rlv_sampler_flush(sampler), 0);
	assert_int_equal(rlv_sampler_update(sampler, keys, td, 39, NULL), 0);
	replay_sampler_done(&sampler);
	replay_close(&fx);
}

TEST(sampler_update__of_a_uniform_view_is_refused)
{
	const struct rlv_view view = { .selector = RLV_UNIFORM };
	uint64_t keys[2];
	const float td[2] = { 3, 4 };
	struct replay_fixture fx;
	struct rlv_sampler *sampler;

	open_flat(&fx, &view, 40, 1);
	sampler = replay_sampler(&fx, NULL);
	distinct_keys(sampler, keys, 2);
	replay_expect(rlv_sampler_update(sampler, keys, td, 2, NULL), -EINVAL, "view 0");
	replay_end(&fx, NULL, &sampler);
}

TEST(sampler_update__by_another_sampler)
{
	uint64_t keys[20];
	float td[20];
	struct rlv_update_result result;
	struct replay_fixture fx;
	struct rlv_sampler *one, *two;

	open_flat(&fx, &alpha_half, 40, 2);
	one = replay_sampler(&fx, NULL);
	two = replay_sampler(&fx, NULL);
	distinct_keys(one, keys, 20);
	for (uint32_t i = 0; i < 20; i++)
		td[i] = (float)i;
	assert_int_equal(rlv_sampler_update(two, keys, td, 20, &result), 0);
	assert_int_equal(result.updated, 20);
	assert_true(fabs(priority_of(one, keys[19]) - sqrt(19.01)) < 1e-5);
	replay_sampler_done(&two);
	replay_end(&fx, NULL, &one);
}

/*
 * Of many shards a call updates all leaves in one pass, up to the first that another client has changed since
 * it was sampled: here some in the middle, by another sampler or a writer.
 */
TEST(sampler_update__of_many_shards_meets_changes_by_others)
{
	const struct rlv_table_opts opts = {
		.n_views = 1, .views = &alpha_half, .shards = 12, .capacity = 49152
	};
	float td[256], high[256];
	struct rlv_update_result result;
	struct rlv_sampler *one, *two;
	const struct rlv_batch *batch;
	struct replay_fixture fx;
	struct rlv_writer *writer;
	uint32_t left = 0;

	for (uint32_t i = 0; i < 256; i++) {
		td[i] = 4;
		high[i] = 9;
	}
	replay_open(&fx, &opts);
	writer = replay_writer(&fx, 1);
	for (uint32_t i = 0; i < 10; i++)
		replay_append_plain(&fx, writer, 0, 2000);
	one = replay_sampler(&fx, NULL);
	two = replay_sampler(&fx, NULL);
	for (uint32_t round = 0; round <= 40; round++) {
		batch = replay_sample(one, 256);
		assert_int_equal(rlv_sampler_update(two, batch->key + 97, td, 3, NULL), 0);
		if (round % 2) /* overwrites what was sampled, sooner or later */
			replay_append_plain(&fx, writer, 0, 3000);
		if (round == 40)
			high[97] = high[98] = high[99] = 1e8f;
		assert_int_equal(rlv_sampler_update(one, batch->key, high, 256, &result), 0);
		left += result.stale;
		assert_true(result.updated + result.stale > 200);
		assert_true(round % 2 || result.stale == 0);
		if (round == 40)
			assert_true(fabs(priority_of(one, batch->key[97]) - 1e4) < 1);
		rlv_batch_release(one, batch);
	}
	assert_true(left > 0);
	replay_verify(fx.table);
	replay_sampler_done(&two);
	replay_end(&fx, &writer, &one);
}

/* -------- refused -------- */

struct refusal {
	struct replay_fixture fx;
	struct rlv_sampler *sampler;
	uint64_t keys[3];
	float td[3];
	double sum;
};

static void refusal_open(struct refusal *r)
{
	open_flat(&r->fx, &alpha_half, 40, 2);
	r->sampler = replay_sampler(&r->fx, NULL);
	distinct_keys(r->sampler, r->keys, 3);
	for (uint32_t i = 0; i < 3; i++)
		r->td[i] = 50;
	r->sum = replay_info(r->fx.table).views[0].priority_sum;
}

/* Refused whole, with the word in the message, and nothing has changed. */
static void refusal_expect(struct refusal *r, const char *word)
{
	struct rlv_update_result result = { .updated = 77 };

	replay_expect(rlv_sampler_update(r->sampler, r->keys, r->td, 3, &result), -EINVAL, word);
	replay_expect(rlv_sampler_set_priorities(r->sampler, r->keys, r->td, 3, &result), -EINVAL,
		      word);
	assert_int_equal(result.updated, 77);
	assert_true(replay_info(r->fx.table).views[0].priority_sum == r->sum);
	replay_sampler_done(&r->sampler);
	replay_close(&r->fx);
}

TEST(sampler_update__nan_is_refused)
{
	struct refusal r;

	refusal_open(&r);
	r.td[2] = NAN;
	refusal_expect(&r, "[2]");
}

TEST(sampler_update__negative_is_refused)
{
	struct refusal r;

	refusal_open(&r);
	r.td[1] = -1e-6f;
	refusal_expect(&r, "[1]");
}

TEST(sampler_update__infinite_is_refused)
{
	struct refusal r;

	refusal_open(&r);
	r.td[2] = INFINITY;
	refusal_expect(&r, "[2]");
}

TEST(sampler_update__key_of_another_table_is_refused)
{
	struct refusal r;

	refusal_open(&r);
	r.keys[1] ^= 7ull << 56;
	refusal_expect(&r, "keys[1]");
}

TEST(sampler_update__key_of_no_shard_is_refused)
{
	struct refusal r;

	refusal_open(&r);
	r.keys[2] |= 2ull << 46;
	refusal_expect(&r, "keys[2]");
}

TEST(sampler_update__key_of_no_slot_is_refused)
{
	struct refusal r;

	refusal_open(&r);
	r.keys[2] |= 0xffffffull;
	refusal_expect(&r, "keys[2]");
}

TEST(sampler_update__key_of_no_generation_is_refused)
{
	struct refusal r;

	refusal_open(&r);
	r.keys[0] &= ~(0x3fffffull << 24);
	refusal_expect(&r, "keys[0]");
}

int main(void)
{
	return test_run(NULL, NULL);
}

#include "base/stats.h"

#include <pthread.h>
#include <string.h>

#include "base/bits.h"
#include "base/rng.h"
#include "tests/support/test.h"

static struct stats_hist hist, other;

static int reset(void **state)
{
	(void)state;
	stats_hist_init(&hist);
	stats_hist_init(&other);
	return 0;
}

TEST_WITH(stats_hist_quantile__empty_is_zero, reset, NULL)
{
	assert_int_equal(stats_hist_quantile(&hist, 0.5), 0);
}

TEST_WITH(stats_hist_quantile__one_value_is_every_quantile, reset, NULL)
{
	static const uint64_t values[] = { 0, 1, 31, 32, 33, 1000003, UINT64_MAX };

	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		stats_hist_init(&hist);
		stats_hist_record(&hist, values[i]);
		assert_true(stats_hist_quantile(&hist, 0) == values[i]);
		assert_true(stats_hist_quantile(&hist, 0.5) == values[i]);
		assert_true(stats_hist_quantile(&hist, 1) == values[i]);
	}
}

TEST_WITH(stats_hist_quantile__small_values_are_exact, reset, NULL)
{
	for (uint64_t value = 1; value <= 30; value++)
		stats_hist_record(&hist, value);
	assert_int_equal(stats_hist_quantile(&hist, 0.5), 15);
	assert_int_equal(stats_hist_quantile(&hist, 0.9), 27);
	assert_int_equal(stats_hist_quantile(&hist, 0.901), 28);
	assert_int_equal(stats_hist_quantile(&hist, 1), 30);
}

TEST_WITH(stats_hist_quantile__q_is_clamped, reset, NULL)
{
	stats_hist_record(&hist, 10);
	stats_hist_record(&hist, 20);
	assert_int_equal(stats_hist_quantile(&hist, -3), 10);
	assert_int_equal(stats_hist_quantile(&hist, 7), 20);
	assert_int_equal(stats_hist_quantile(&hist, (double)NAN), 10);
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Against the sorted values, over twenty powers of two. */
TEST_WITH(stats_hist_quantile__is_within_a_bucket_of_the_truth, reset, NULL)
{
	enum { VALUES = 5000 };
	static uint64_t values[VALUES];
	struct rng rng;

	rng_seed(&rng, test_seed(__func__, 31), 0);
	for (int i = 0; i < VALUES; i++) {
		values[i] = rng_uniform_u64(&rng, UINT64_C(1) << rng_uniform_u64(&rng, 40));
		stats_hist_record(&hist, values[i]);
	}
	qsort(values, VALUES, sizeof(values[0]), compare_u64);
	for (int i = 1; i <= VALUES; i++) {
		uint64_t truth = values[i - 1];
		uint64_t got = stats_hist_quantile(&hist, (i - 0.5) / VALUES);

		assert_true(got >= truth);
		assert_true(got - truth <= truth / STATS_HIST_SUB);
	}
}

TEST_WITH(stats_hist_record__powers_of_two_keep_their_order, reset, NULL)
{
	uint64_t last = 0;

	for (unsigned bit = 0; bit < 64; bit++)
		stats_hist_record(&hist, UINT64_C(1) << bit);
	for (unsigned bit = 1; bit <= 64; bit++) {
		uint64_t value = stats_hist_quantile(&hist, (bit - 0.5) / 64);

		assert_true(value > last);
		last = value;
	}
	assert_true(hist.min == 1 && hist.max == UINT64_C(1) << 63);
}

TEST_WITH(stats_hist_merge__equals_recording_into_one, reset, NULL)
{
	static struct stats_hist both;
	struct rng rng;

	stats_hist_init(&both);
	rng_seed(&rng, test_seed(__func__, 32), 0);
	for (int i = 0; i < 1000; i++) {
		uint64_t value = rng_next_u64(&rng) >> (i % 50);

		stats_hist_record(i % 3 ? &hist : &other, value);
		stats_hist_record(&both, value);
	}
	stats_hist_merge(&hist, &other);
	assert_memory_equal(&hist, &both, sizeof(both));
}

TEST_WITH(stats_hist_merge__empty_changes_nothing, reset, NULL)
{
	struct stats_hist before;

	stats_hist_record(&hist, 5);
	before = hist;
	stats_hist_merge(&hist, &other);
	assert_memory_equal(&hist, &before, sizeof(before));
	stats_hist_merge(&other, &hist);
	assert_memory_equal(&other, &before, sizeof(before));
}

TEST(stats_median__odd_and_even)
{
	double odd[] = { 9, 1, 5 }, even[] = { 4, 1, 3, 2 }, one[] = { 7 };

	assert_true(stats_median(odd, 3) == 5);
	assert_true(stats_median(even, 4) == 2.5);
	assert_true(stats_median(one, 1) == 7);
}

enum { THREADS = 4, EACH = 10000 };

static void *count_up(void *arg)
{
	struct stats_counter *mine = arg;

	for (int i = 0; i < EACH; i++)
		stats_counter_add(mine, 2);
	return NULL;
}

TEST(stats_counter__owned_ones_are_exact)
{
	static struct stats_counter owned[THREADS];
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_up, &owned[i]), 0);
	while (stats_counter_get(&owned[0]) == 0)
		; /* reading while they count is allowed */
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(stats_counter_get(&owned[i]), 2 * EACH);
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}

#include "tests/support/test.h"

#include "base/rng.h"
#include "base/trend.h"

/* Adds n steps. */
static void add(struct trend *trend, int64_t step, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		trend_add(trend, step);
}

static void expect_trend(const struct trend *trend, int64_t want)
{
	int64_t step = 0;

	assert_true(trend_find(trend, &step));
	assert_int_equal(step, want);
}

TEST(trend__is_seen_after_five_equal_steps)
{
	struct trend trend = { 0 };
	int64_t step;

	assert_false(trend_find(&trend, &step));
	add(&trend, -7, 4);
	assert_false(trend_find(&trend, &step));
	add(&trend, -7, 1);
	expect_trend(&trend, -7);
	add(&trend, -7, 1000);
	expect_trend(&trend, -7);
}

TEST(trend__outlives_other_steps_between)
{
	struct trend trend = { 0 };

	add(&trend, 1, 16);
	for (int64_t other = 100; other < 110; other++) {
		trend_add(&trend, other);
		add(&trend, 1, 2);
		expect_trend(&trend, 1);
	}
	add(&trend, 50, 1);
	add(&trend, 60, 1); /* half of the last 8, and most of the last 16 */
	expect_trend(&trend, 1);
}

TEST(trend__a_new_one_replaces_an_old_one_soon)
{
	struct trend trend = { 0 };

	add(&trend, 1, 1000);
	add(&trend, 4, 4);
	expect_trend(&trend, 1);
	add(&trend, 4, 1);
	expect_trend(&trend, 4);
}

/* More than half is needed, also of a full window. */
TEST(trend__is_none_without_a_majority)
{
	struct trend trend = { 0 };
	int64_t step;

	for (int64_t i = 0; i < 64; i++) {
		trend_add(&trend, i % 2 ? 5 : i);
		assert_false(trend_find(&trend, &step));
	}
}

TEST(trend__of_random_places_is_none)
{
	struct trend trend = { 0 };
	int64_t step, last = 0;
	struct rng rng;

	rng_seed(&rng, 1, 0);
	for (uint32_t i = 0; i < 10000; i++) {
		int64_t now = (int64_t)rng_uniform_u64(&rng, 64);

		trend_add(&trend, now - last);
		last = now;
		assert_false(trend_find(&trend, &step));
	}
}

int main(void)
{
	return test_run(NULL, NULL);
}

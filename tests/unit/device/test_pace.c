#include "device/pace.h"

#include "tests/support/test.h"

#define PERIOD (CURVE_BINS * 1000u)

static const double gains[PACE_JOBS + 1] = { 0, 1, 1.4, 1.6, 1.7, 1.75, 1.775, 1.7875, 1.79375 };
static const double unknown[PACE_JOBS + 1];

/* A curve of four levels, each for a quarter of the period. */
static struct curve levels(uint64_t period_ns, const uint64_t bytes[4])
{
	struct curve curve;

	curve_begin(&curve, period_ns);
	for (uint64_t i = 0; i < 4; i++)
		curve_add(&curve, i * period_ns / 4, (i + 1) * period_ns / 4, bytes[i]);
	return curve;
}

static uint64_t find(const uint64_t bytes[4], size_t n, uint64_t room, const double *gain)
{
	struct curve curve = levels(PERIOD, bytes);
	const struct curve *curves[PACE_JOBS];

	for (size_t i = 0; i < n; i++)
		curves[i] = &curve;
	return pace_find(curves, n, room, gain);
}

/* Two that begin together meet in the last quarter, and a third fits only after it. */
TEST(pace_find__gap_with_which_three_run_instead_of_two)
{
	const uint64_t late[] = { 10, 10, 10, 30 }, early[] = { 50, 10, 10, 20 };

	assert_int_equal(find(late, 3, 60, gains), PERIOD / 4);
	assert_int_equal(find(late, 3, 60, unknown), PERIOD / 4);
	assert_int_equal(find(early, 3, 60, gains), PERIOD / 2);
}

TEST(pace_find__no_gap_where_none_helps)
{
	const uint64_t late[] = { 10, 10, 10, 30 }, flat[] = { 30, 30, 30, 30 };
	const double none[PACE_JOBS + 1] = { 0, 1, 1, 1, 1, 1, 1, 1, 1 };

	assert_int_equal(find(late, 1, 60, gains), 0);
	assert_int_equal(find(late, 3, 90, gains), 0);
	assert_int_equal(find(late, 3, 60, none), 0);
	for (size_t n = 1; n <= PACE_JOBS; n++)
		assert_int_equal(find(flat, n, 100, gains), 0);
}

/* Periods far from each other, the smallest ones: it ends, and waits for less than the longest period. */
TEST(pace_find__bounded_for_any_periods)
{
	const uint64_t late[] = { 10, 10, 10, 30 };
	struct curve shortest = levels(CURVE_BINS, late), longest = levels(UINT64_MAX >> 12, late);
	const struct curve *curves[PACE_JOBS];

	for (size_t i = 0; i < PACE_JOBS; i++)
		curves[i] = i % 2 ? &shortest : &longest;
	for (uint64_t room = 30; room < 240; room += 10)
		assert_true(pace_find(curves, PACE_JOBS, room, gains) < longest.period_ns);
	curves[0] = &shortest;
	assert_true(pace_find(curves, 2, 40, gains) < shortest.period_ns);
}

int main(void)
{
	return test_run(NULL, NULL);
}

#include "device/curve.h"

#include "base/rng.h"
#include "tests/support/test.h"

#define PERIOD (CURVE_BINS * 1000u)

TEST(curve_at__most_of_each_bin)
{
	struct curve curve;

	curve_begin(&curve, PERIOD);
	curve_add(&curve, 500, 1500, 7);
	curve_add(&curve, 1200, 1300, 9);
	assert_int_equal(curve_at(&curve, 0), 7);
	assert_int_equal(curve_at(&curve, 1999), 9);
	assert_int_equal(curve_at(&curve, 2000), 0);
	assert_int_equal(curve.peak, 9);
	curve_add(&curve, PERIOD - 1, PERIOD + 5000, 3);
	assert_int_equal(curve_at(&curve, PERIOD - 1), 3);
	assert_int_equal(curve_at(&curve, PERIOD), 0);
}

TEST(curve_dilate__spreads_to_both_sides)
{
	struct curve curve;

	curve_begin(&curve, PERIOD);
	curve_add(&curve, 10000, 11000, 5);
	curve_dilate(&curve, 2);
	assert_int_equal(curve.bins[7], 0);
	for (int bin = 8; bin <= 12; bin++)
		assert_int_equal(curve.bins[bin], 5);
	assert_int_equal(curve.bins[13], 0);
}

TEST(curves_fit__shift_brings_two_peaks_apart)
{
	struct curve curve;
	struct curve_run runs[2];

	curve_begin(&curve, PERIOD);
	curve_add(&curve, 0, PERIOD, 10);
	curve_add(&curve, 0, PERIOD / 2, 60);
	runs[0] = (struct curve_run){ &curve, PERIOD / 2 - 1 };
	runs[1] = (struct curve_run){ &curve, 0 };
	assert_false(curves_fit(runs, 2, 100));
	runs[0].phase_ns = PERIOD / 2;
	assert_true(curves_fit(runs, 2, 70));
	assert_false(curves_fit(runs, 2, 69));
	assert_true(curves_fit(runs, 0, 0));
}

/* Against a walk over each ns, with periods that do not divide by the bins. */
TEST(curves_fit__agrees_with_each_point_in_time)
{
	struct rng rng;
	unsigned yes = 0, no = 0;

	rng_seed(&rng, test_seed("curves", 1), 0);
	for (int i = 0; i < 300; i++) {
		struct curve curves[3];
		struct curve_run runs[3];
		uint64_t most = 0, room;

		for (int k = 0; k < 3; k++) {
			uint64_t period = CURVE_BINS + rng_uniform_u64(&rng, 3000);

			curve_begin(&curves[k], period);
			for (int piece = 0; piece < 20; piece++) {
				uint64_t from = rng_uniform_u64(&rng, period);

				curve_add(&curves[k], from, from + 50, rng_uniform_u64(&rng, 1000));
			}
			runs[k] = (struct curve_run){ &curves[k], rng_uniform_u64(&rng, period) };
		}
		for (uint64_t t = 0; t < 4000; t++) {
			uint64_t sum = 0;

			for (int k = 0; k < 3; k++)
				sum += curve_at(&curves[k], runs[k].phase_ns + t);
			most = sum > most ? sum : most;
		}
		room = most + rng_uniform_u64(&rng, 3) - 1;
		assert_int_equal(curves_fit(runs, 3, room), room >= most);
		yes += room >= most;
		no += room < most;
	}
	assert_true(yes > 50 && no > 50);
}

int main(void)
{
	return test_run(NULL, NULL);
}

#include "bench/replay/chi_square.h"

#include <math.h>

#include "base/bits.h"
#include "base/rng.h"
#include "tests/support/test.h"

/* Quantiles of the usual tables. */
TEST(chi_square_p__known_quantiles)
{
	static const struct {
		double statistic, df, p;
	} known[] = {
		{ 3.841458820694124, 1, 0.05 },   { 6.634896601021213, 1, 0.01 },
		{ 5.991464547107979, 2, 0.05 },   { 21.02606981748307, 12, 0.05 },
		{ 26.21696730553585, 12, 0.01 },  { 3.570568970604388, 12, 0.99 },
		{ 124.3421134004004, 100, 0.05 }, { 0.0039321400000195, 1, 0.95 },
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		assert_true(fabs(chi_square_p(known[i].statistic, known[i].df) - known[i].p) <
			    1e-9);
}

/* With two degrees of freedom it is exp(-x/2). */
TEST(chi_square_p__two_degrees_is_exponential)
{
	for (double x = 0.125; x < 200; x *= 1.5)
		assert_true(fabs(chi_square_p(x, 2) / exp(-x / 2) - 1) < 1e-10);
}

TEST(chi_square_p__ends)
{
	assert_true(chi_square_p(0, 3) == 1);
	assert_true(chi_square_p(-1, 3) == 1);
	assert_true(chi_square_p((double)INFINITY, 3) == 0);
	assert_true(chi_square_p(5000, 3) < 1e-300);
}

TEST(chi_square_test__statistic_by_hand)
{
	const uint64_t seen[] = { 10, 20, 30 };
	const double weight[] = { 1, 1, 1 };
	struct chi_square chi = chi_square_test(seen, weight, 3);

	assert_true(fabs(chi.statistic - 10) < 1e-12);
	assert_true(chi.df == 2);
	assert_true(fabs(chi.p - exp(-5)) < 1e-12);
}

TEST(chi_square_test__class_that_cannot_be_is_impossible)
{
	const uint64_t seen[] = { 10, 1 };
	const double weight[] = { 1, 0 };
	struct chi_square chi = chi_square_test(seen, weight, 2);

	assert_true(chi.p == 0);
}

TEST(chi_square_test__nothing_seen_proves_nothing)
{
	const uint64_t seen[] = { 0, 0 };
	const double weight[] = { 1, 2 };

	assert_true(chi_square_test(seen, weight, 2).p == 1);
	assert_true(chi_square_test(seen, weight, 0).p == 1);
}

/* Draws by the weights pass, draws by others do not. */
TEST(chi_square_test__tells_right_from_wrong)
{
	const double weight[] = { 1, 2, 3, 4 };
	uint64_t right[4] = { 0 }, wrong[4] = { 0 };
	struct rng rng;

	rng_seed(&rng, test_seed(__func__, 31), 0);
	for (int i = 0; i < 100000; i++) {
		uint64_t r = rng_uniform_u64(&rng, 1000);

		right[r < 100 ? 0 : r < 300 ? 1 : r < 600 ? 2 : 3]++;
		wrong[r < 110 ? 0 : r < 300 ? 1 : r < 600 ? 2 : 3]++;
	}
	assert_true(chi_square_test(right, weight, 4).p > 1e-4);
	assert_true(chi_square_test(wrong, weight, 4).p < 1e-9);
}

int main(void)
{
	return test_run(NULL, NULL);
}

#include "device/estimate.h"

#include "tests/support/test.h"

TEST(estimate_remaining__before_the_first_iteration_is_by_the_prior)
{
	struct estimate estimate;

	estimate_begin(&estimate, 100, 7);
	assert_int_equal(estimate_remaining(&estimate), 700);
	estimate_begin(&estimate, 0, 7);
	assert_int_equal(estimate_remaining(&estimate), 0);
}

TEST(estimate_remaining__declared_iterations_at_the_measured_time)
{
	struct estimate estimate;

	estimate_begin(&estimate, 10, 123);
	estimate_iteration(&estimate, 1000);
	assert_int_equal(estimate_remaining(&estimate), 9000);
	for (int i = 0; i < 8; i++)
		estimate_iteration(&estimate, 1000);
	assert_int_equal(estimate_remaining(&estimate), 1000);
}

TEST(estimate_remaining__follows_iterations_that_grow_longer)
{
	struct estimate estimate;

	estimate_begin(&estimate, 1000, 123);
	estimate_iteration(&estimate, 1000);
	for (int i = 0; i < 30; i++)
		estimate_iteration(&estimate, 3000);
	assert_in_range(estimate_remaining(&estimate), 969 * 2990, 969 * 3000);
}

TEST(estimate_remaining__undeclared_or_overrun_is_as_long_again)
{
	struct estimate estimate;

	estimate_begin(&estimate, 0, 123);
	estimate_iteration(&estimate, 500);
	assert_int_equal(estimate_remaining(&estimate), 500);
	estimate_begin(&estimate, 2, 123);
	for (int i = 0; i < 3; i++)
		estimate_iteration(&estimate, 100);
	assert_int_equal(estimate_remaining(&estimate), 100);
}

int main(void)
{
	return test_run(NULL, NULL);
}

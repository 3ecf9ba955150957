#include "tests/support/fake/fake_clock.h"
#include "tests/support/test.h"

#include "client/store/backoff.h"

TEST(backoff_sleep__counts_its_rounds)
{
	struct backoff backoff = { .first_ns = 1, .doublings = 2 };

	for (uint32_t i = 0; i < 5; i++)
		backoff_sleep(&backoff, clock_monotonic(), DEADLINE_NEVER);
	assert_int_equal(backoff.round, 5);
}

TEST(backoff_sleep__after_the_deadline_returns_at_once)
{
	struct backoff backoff = { .first_ns = 1000 * CLOCK_NS_PER_S };
	struct fake_clock fake;

	fake_clock_init(&fake, 100);
	backoff_sleep(&backoff, &fake.clock, 100); /* or the test does not end */
	backoff_sleep(&backoff, &fake.clock, 101); /* one nanosecond is left */
	assert_int_equal(backoff.round, 2);
}

TEST(backoff_sleep__many_rounds_do_not_overflow)
{
	struct backoff backoff = { .first_ns = 1, .doublings = 4, .round = UINT32_MAX - 1 };

	backoff_sleep(&backoff, clock_monotonic(), DEADLINE_NEVER);
	assert_int_equal(backoff.round, UINT32_MAX);
}

int main(void)
{
	return test_run(NULL, NULL);
}

#include "tests/support/fake/fake_clock.h"
#include "tests/support/test.h"

#include "client/store/backoff.h"

static void backoff_sleep__counts_its_rounds(void **state)
{
	struct backoff backoff = { .first_ns = 1, .doublings = 2 };

	(void)state;
	for (uint32_t i = 0; i < 5; i++)
		backoff_sleep(&backoff, clock_monotonic(), DEADLINE_NEVER);
	assert_int_equal(backoff.round, 5);
}

static void backoff_sleep__after_the_deadline_returns_at_once(void **state)
{
	struct backoff backoff = { .first_ns = 1000 * CLOCK_NS_PER_S };
	struct fake_clock fake;

	(void)state;
	fake_clock_init(&fake, 100);
	backoff_sleep(&backoff, &fake.clock, 100); /* or the test does not end */
	backoff_sleep(&backoff, &fake.clock, 101); /* one nanosecond is left */
	assert_int_equal(backoff.round, 2);
}

static void backoff_sleep__many_rounds_do_not_overflow(void **state)
{
	struct backoff backoff = { .first_ns = 1, .doublings = 4, .round = UINT32_MAX - 1 };

	(void)state;
	backoff_sleep(&backoff, clock_monotonic(), DEADLINE_NEVER);
	assert_int_equal(backoff.round, UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(backoff_sleep__counts_its_rounds),
		cmocka_unit_test(backoff_sleep__after_the_deadline_returns_at_once),
		cmocka_unit_test(backoff_sleep__many_rounds_do_not_overflow),
	};

	return TEST_RUN(tests, NULL, NULL);
}

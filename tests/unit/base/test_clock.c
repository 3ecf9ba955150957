#include "base/os/clock.h"

#include <limits.h>

#include "tests/support/fake/fake_clock.h"
#include "tests/support/test.h"

TEST(clock_monotonic__never_goes_back)
{
	uint64_t last = clock_now_ns(clock_monotonic());

	assert_true(last > 0);
	for (int i = 0; i < 1000; i++) {
		uint64_t now = clock_now_ns(clock_monotonic());

		assert_true(now >= last);
		last = now;
	}
}

TEST(deadline_after__negative_is_never)
{
	struct fake_clock fake;

	fake_clock_init(&fake, 100);
	assert_true(deadline_after(&fake.clock, -1) == DEADLINE_NEVER);
	assert_int_equal(atomic_load(&fake.looks), 0);
	assert_false(deadline_expired(&fake.clock, DEADLINE_NEVER));
	assert_true(deadline_left_ns(&fake.clock, DEADLINE_NEVER) == INT64_MAX);
	assert_int_equal(deadline_left_ms(&fake.clock, DEADLINE_NEVER), -1);
}

TEST(deadline_after__zero_is_over_at_once)
{
	struct fake_clock fake;
	uint64_t deadline_ns;

	fake_clock_init(&fake, 100);
	deadline_ns = deadline_after(&fake.clock, 0);
	assert_true(deadline_expired(&fake.clock, deadline_ns));
	assert_int_equal(deadline_left_ns(&fake.clock, deadline_ns), 0);
	assert_int_equal(deadline_left_ms(&fake.clock, deadline_ns), 0);
}

TEST(deadline_after__sum_that_does_not_fit_is_never)
{
	struct fake_clock fake;

	fake_clock_init(&fake, UINT64_MAX - 10);
	assert_true(deadline_after(&fake.clock, 10) == DEADLINE_NEVER);
	assert_true(deadline_after(&fake.clock, INT64_MAX) == DEADLINE_NEVER);
	assert_true(deadline_after(&fake.clock, 9) == UINT64_MAX - 1);
}

TEST(deadline_expired__at_the_very_ns)
{
	struct fake_clock fake;
	uint64_t deadline_ns;

	fake_clock_init(&fake, 1000);
	deadline_ns = deadline_after(&fake.clock, 50);
	fake_clock_advance(&fake, 49);
	assert_false(deadline_expired(&fake.clock, deadline_ns));
	assert_int_equal(deadline_left_ns(&fake.clock, deadline_ns), 1);
	fake_clock_advance(&fake, 1);
	assert_true(deadline_expired(&fake.clock, deadline_ns));
	assert_int_equal(deadline_left_ns(&fake.clock, deadline_ns), 0);
	fake_clock_advance(&fake, 1000);
	assert_int_equal(deadline_left_ns(&fake.clock, deadline_ns), 0);
}

TEST(deadline_left_ns__more_than_int64_is_cut)
{
	struct fake_clock fake;

	fake_clock_init(&fake, 0);
	assert_true(deadline_left_ns(&fake.clock, UINT64_MAX - 1) == INT64_MAX);
}

TEST(deadline_left_ms__rounds_up)
{
	struct fake_clock fake;

	fake_clock_init(&fake, 0);
	assert_int_equal(deadline_left_ms(&fake.clock, 1), 1);
	assert_int_equal(deadline_left_ms(&fake.clock, 1000000), 1);
	assert_int_equal(deadline_left_ms(&fake.clock, 1000001), 2);
	assert_int_equal(deadline_left_ms(&fake.clock, UINT64_MAX - 1), INT_MAX);
}

TEST(deadline_min__never_loses)
{
	assert_true(deadline_min(5, DEADLINE_NEVER) == 5);
	assert_true(deadline_min(DEADLINE_NEVER, 5) == 5);
	assert_true(deadline_min(4, 5) == 4);
}

int main(void)
{
	return test_run(NULL, NULL);
}

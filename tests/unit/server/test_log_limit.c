/* How many lines of one kind are written, and what is said of the others. */
#include "tests/support/test.h"

#include "server/daemon/log_limit.h"

#include "base/os/clock.h"

#include <string.h>

static const char kind_a[] = "a", kind_b[] = "b";

static uint32_t pass_many(struct log_limit *limit, const char *where, uint64_t now, uint32_t n)
{
	uint32_t passed = 0;

	for (uint32_t i = 0; i < n; i++)
		passed += log_limit_pass(limit, where, now);
	return passed;
}

static void log_limit_pass__a_burst_then_one_at_a_time(void **state)
{
	static struct log_limit limit;
	uint64_t now = 7 * (uint64_t)CLOCK_NS_PER_S;

	(void)state;
	assert_int_equal(pass_many(&limit, kind_a, now, 1000), LOG_BURST);
	assert_int_equal(pass_many(&limit, kind_a, now + LOG_PAUSE_NS - 1, 1000), 0);
	assert_int_equal(pass_many(&limit, kind_a, now + LOG_PAUSE_NS, 1000), 1);
	assert_int_equal(pass_many(&limit, kind_a, now + 1000 * LOG_PAUSE_NS, 1000), LOG_BURST);
}

static void log_limit_pass__kinds_do_not_share(void **state)
{
	static struct log_limit limit;

	(void)state;
	assert_int_equal(pass_many(&limit, kind_a, 1, 1000), LOG_BURST);
	assert_int_equal(pass_many(&limit, kind_b, 1, 1), 1);
}

static void log_limit_take__counts_what_was_left_out_once(void **state)
{
	static struct log_limit limit;
	uint64_t left = 0;

	(void)state;
	assert_null(log_limit_take(&limit, &left));
	assert_int_equal(pass_many(&limit, kind_a, 1, LOG_BURST + 812), LOG_BURST);
	assert_ptr_equal(log_limit_take(&limit, &left), kind_a);
	assert_int_equal(left, 812);
	assert_null(log_limit_take(&limit, &left));
}

static void log_limit_pass__more_kinds_than_there_is_room_for(void **state)
{
	static struct log_limit limit;
	static char kinds[2 * LOG_KINDS];
	uint32_t passed = 0;

	(void)state;
	for (uint32_t i = 0; i < sizeof(kinds); i++)
		passed += pass_many(&limit, &kinds[i], 1, 1000);
	assert_int_equal(passed, LOG_KINDS * LOG_BURST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_limit_pass__a_burst_then_one_at_a_time),
		cmocka_unit_test(log_limit_pass__kinds_do_not_share),
		cmocka_unit_test(log_limit_take__counts_what_was_left_out_once),
		cmocka_unit_test(log_limit_pass__more_kinds_than_there_is_room_for),
	};

	return TEST_RUN(tests, NULL, NULL);
}

/* Number of lines of one kind that are written, and the summary of the others. */
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

TEST(log_limit_pass__a_burst_then_one_at_a_time)
{
	static struct log_limit limit;
	uint64_t now = 7 * (uint64_t)CLOCK_NS_PER_S;

	assert_int_equal(pass_many(&limit, kind_a, now, 1000), LOG_BURST);
	assert_int_equal(pass_many(&limit, kind_a, now + LOG_PAUSE_NS - 1, 1000), 0);
	assert_int_equal(pass_many(&limit, kind_a, now + LOG_PAUSE_NS, 1000), 1);
	assert_int_equal(pass_many(&limit, kind_a, now + 1000 * LOG_PAUSE_NS, 1000), LOG_BURST);
}

TEST(log_limit_pass__kinds_do_not_share)
{
	static struct log_limit limit;

	assert_int_equal(pass_many(&limit, kind_a, 1, 1000), LOG_BURST);
	assert_int_equal(pass_many(&limit, kind_b, 1, 1), 1);
}

TEST(log_limit_take__counts_what_was_left_out_once)
{
	static struct log_limit limit;
	uint64_t left = 0;

	assert_null(log_limit_take(&limit, &left));
	assert_int_equal(pass_many(&limit, kind_a, 1, LOG_BURST + 812), LOG_BURST);
	assert_ptr_equal(log_limit_take(&limit, &left), kind_a);
	assert_int_equal(left, 812);
	assert_null(log_limit_take(&limit, &left));
}

TEST(log_limit_pass__more_kinds_than_there_is_room_for)
{
	static struct log_limit limit;
	static char kinds[2 * LOG_KINDS];
	uint32_t passed = 0;

	for (uint32_t i = 0; i < sizeof(kinds); i++)
		passed += pass_many(&limit, &kinds[i], 1, 1000);
	assert_int_equal(passed, LOG_KINDS * LOG_BURST);
}

int main(void)
{
	return test_run(NULL, NULL);
}

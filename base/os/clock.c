#include "base/os/clock.h"

#include <limits.h>
#include <stddef.h>

uint64_t clock_read_ns(clockid_t id)
{
	struct timespec now = { 0 };

	(void)clock_gettime(id, &now);
	return (uint64_t)now.tv_sec * (uint64_t)CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t monotonic_now_ns(void *ctx)
{
	(void)ctx;
	return clock_read_ns(CLOCK_MONOTONIC);
}

const struct clock *clock_monotonic(void)
{
	static const struct clock monotonic = { .now_ns = monotonic_now_ns };

	return &monotonic;
}

uint64_t deadline_after(const struct clock *clk, int64_t timeout_ns)
{
	uint64_t now_ns;

	if (timeout_ns < 0)
		return DEADLINE_NEVER;
	now_ns = clock_now_ns(clk);
	if ((uint64_t)timeout_ns >= DEADLINE_NEVER - now_ns)
		return DEADLINE_NEVER;
	return now_ns + (uint64_t)timeout_ns;
}

int64_t deadline_left_ns(const struct clock *clk, uint64_t deadline_ns)
{
	uint64_t now_ns;

	if (deadline_ns == DEADLINE_NEVER)
		return INT64_MAX;
	now_ns = clock_now_ns(clk);
	if (now_ns >= deadline_ns)
		return 0;
	if (deadline_ns - now_ns > (uint64_t)INT64_MAX)
		return INT64_MAX;
	return (int64_t)(deadline_ns - now_ns);
}

int deadline_left_ms(const struct clock *clk, uint64_t deadline_ns)
{
	int64_t left_ns, left_ms;

	if (deadline_ns == DEADLINE_NEVER)
		return -1;
	left_ns = deadline_left_ns(clk, deadline_ns);
	left_ms = left_ns / CLOCK_NS_PER_MS + (left_ns % CLOCK_NS_PER_MS != 0);
	return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

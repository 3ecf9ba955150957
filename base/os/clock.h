/*
 * clock.h - injected time. Code that waits or measures takes a `const struct clock *`, so that a
 * test can give it a clock that it moves by hand.
 *
 * A deadline is a point on one clock in ns. DEADLINE_NEVER never comes.
 */
#ifndef RLV_BASE_OS_CLOCK_H
#define RLV_BASE_OS_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define DEADLINE_NEVER UINT64_MAX

#define CLOCK_NS_PER_US INT64_C(1000)
#define CLOCK_NS_PER_MS INT64_C(1000000)
#define CLOCK_NS_PER_S INT64_C(1000000000)

struct clock {
	uint64_t (*now_ns)(void *ctx); /* never goes back */
	void *ctx;
};

/* Reads a system clock, as CLOCK_PROCESS_CPUTIME_ID, in ns; 0 if it cannot be read. */
uint64_t clock_read_ns(clockid_t id);

/* CLOCK_MONOTONIC of this host: the same in all its processes, and the futex clock. Static. */
const struct clock *clock_monotonic(void);

static inline uint64_t clock_now_ns(const struct clock *clk)
{
	return clk->now_ns(clk->ctx);
}

/* The time timeout_ns from now; 0 = already over (polls once), negative = DEADLINE_NEVER. */
uint64_t deadline_after(const struct clock *clk, int64_t timeout_ns);

/* The earlier of two; a wait that must recheck uses it to cap its sleep. */
static inline uint64_t deadline_min(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

static inline bool deadline_expired(const struct clock *clk, uint64_t deadline_ns)
{
	return deadline_ns != DEADLINE_NEVER && clock_now_ns(clk) >= deadline_ns;
}

/* ns until the deadline: 0 when it is over, INT64_MAX for DEADLINE_NEVER. */
int64_t deadline_left_ns(const struct clock *clk, uint64_t deadline_ns);

/* Timeout for poll(2) and epoll_wait(2): ms rounded up, -1 for DEADLINE_NEVER. */
int deadline_left_ms(const struct clock *clk, uint64_t deadline_ns);

#endif

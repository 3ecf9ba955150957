/*
 * time.h - wall clock and CPU clock of a bench.
 */
#ifndef RLV_BENCH_HARNESS_TIME_H
#define RLV_BENCH_HARNESS_TIME_H

#include <stdint.h>
#include <time.h>

#include "base/os/clock.h"

static inline uint64_t time_wall_ns(void)
{
	return clock_now_ns(clock_monotonic());
}

/* CPU time of the calling thread, in ns. */
static inline uint64_t time_cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

#endif

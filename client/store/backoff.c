#include "client/store/backoff.h"

#include <time.h>

void backoff_sleep(struct backoff *backoff, const struct clock *clock, uint64_t deadline_ns)
{
	uint32_t doublings = backoff->round < backoff->doublings ? backoff->round
								 : backoff->doublings;
	int64_t left = deadline_left_ns(clock, deadline_ns);
	int64_t sleep = backoff->first_ns << doublings;

	if (backoff->jitter)
		sleep = sleep / 2 + (int64_t)((clock_now_ns(clock) ^ (uintptr_t)backoff) %
					      (uint64_t)(sleep / 2));
	if (left < sleep)
		sleep = left;
	backoff->round++;
	if (sleep > 0) {
		struct timespec ts = { .tv_sec = sleep / CLOCK_NS_PER_S,
				       .tv_nsec = sleep % CLOCK_NS_PER_S };
		clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
	}
}

/*
 * patience.h - whether somebody who waits looks on, or sleeps at once.
 *
 * Looking on saves a wake-up where processors are free. Where others want them it takes their time: a yield
 * that lasts tells of that, because somebody else ran. From then on waits sleep at once, but for every
 * PATIENCE_TRY-th, which finds out anew.
 */
#ifndef RLV_TRANSPORT_OFI_PATIENCE_H
#define RLV_TRANSPORT_OFI_PATIENCE_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/os/clock.h"

#define PATIENCE_TRY 64u
#define PATIENCE_TURN_NS UINT64_C(10000) /* a yield to nobody takes less */

struct patience {
	bool crowded; /* others want the processor */
	uint32_t waits;
};

/* Yields, after a look that found nothing. False: sleep now. Thread: owner. */
static inline bool patience_yield(struct patience *patience, const struct clock *clock)
{
	uint64_t before;

	if (patience->crowded && ++patience->waits % PATIENCE_TRY)
		return false;
	before = clock_now_ns(clock);
	(void)sched_yield();
	patience->crowded = clock_now_ns(clock) - before > PATIENCE_TURN_NS;
	return true;
}

#endif

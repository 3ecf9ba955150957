/*
 * fake_clock.h - a clock that moves only when the test says so.
 */
#ifndef RLV_TESTS_SUPPORT_FAKE_FAKE_CLOCK_H
#define RLV_TESTS_SUPPORT_FAKE_FAKE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/os/clock.h"

struct fake_clock {
	struct clock clock; /* hand out &fake.clock */
	_Atomic uint64_t time_ns;
	_Atomic uint64_t step_ns; /* added at each reading, so that polling loops end */
	_Atomic uint64_t looks;
};

void fake_clock_init(struct fake_clock *fake, uint64_t time_ns);
void fake_clock_advance(struct fake_clock *fake, uint64_t delta_ns);

#endif

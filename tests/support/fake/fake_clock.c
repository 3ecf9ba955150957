#include "tests/support/fake/fake_clock.h"

static uint64_t look(void *ctx)
{
	struct fake_clock *fake = ctx;

	atomic_fetch_add(&fake->looks, 1);
	return atomic_fetch_add(&fake->time_ns, atomic_load(&fake->step_ns));
}

void fake_clock_init(struct fake_clock *fake, uint64_t time_ns)
{
	fake->clock.now_ns = look;
	fake->clock.ctx = fake;
	atomic_init(&fake->time_ns, time_ns);
	atomic_init(&fake->step_ns, 0);
	atomic_init(&fake->looks, 0);
}

void fake_clock_advance(struct fake_clock *fake, uint64_t delta_ns)
{
	atomic_fetch_add(&fake->time_ns, delta_ns);
}

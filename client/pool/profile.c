#include "client/pool/profile.h"

#include "base/bits.h"

void profile_begin(struct profile *profile, uint64_t now_ns, uint64_t held)
{
	profile->begin_ns = now_ns;
	profile->base = held;
	profile->n = 0;
}

void profile_held(struct profile *profile, uint64_t now_ns, uint64_t held)
{
	uint64_t bytes = held > profile->base ? held - profile->base : 0;
	uint32_t last = profile->n - 1;

	if (profile->n ? bytes <= profile->steps[last].bytes : bytes == 0)
		return;
	if (profile->n == PROFILE_STEPS) {
		profile->steps[last].bytes = bytes;
		return;
	}
	profile->steps[profile->n].at_ns = now_ns - profile->begin_ns;
	profile->steps[profile->n++].bytes = bytes;
}

void profile_end(struct profile *profile, uint64_t now_ns)
{
	uint64_t period = max_u64(now_ns - profile->begin_ns, CURVE_BINS);
	struct curve curve;

	if (profile_is_complete(profile) || profile->iterations++ < PROFILE_WARM)
		return;
	curve_begin(&curve, period);
	for (uint32_t i = 0; i < profile->n; i++)
		curve_add(&curve, min_u64(profile->steps[i].at_ns, period - 1), period,
			  profile->steps[i].bytes);
	for (uint32_t i = 0; i < CURVE_BINS; i++)
		profile->bins[i] = max_u64(profile->bins[i], curve.bins[i]);
	profile->period_ns += period;
}

void profile_fill(const struct profile *profile, uint64_t said, uint64_t extent_bytes,
		  struct lease_profile *out)
{
	out->period_ns = profile->period_ns / (PROFILE_ITERATIONS - PROFILE_WARM);
	for (uint32_t i = 0; i < CURVE_BINS; i++) {
		uint64_t bytes = profile->bins[i];

		out->bins[i] = bytes > said && bytes - said < extent_bytes ? said : bytes;
	}
}

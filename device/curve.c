#include "device/curve.h"

#include <string.h>

#include "base/bits.h"

void curve_begin(struct curve *curve, uint64_t period_ns)
{
	memset(curve, 0, sizeof(*curve));
	curve->period_ns = period_ns;
}

static unsigned curve_bin(const struct curve *curve, uint64_t phase_ns)
{
	return (unsigned)(phase_ns * CURVE_BINS / curve->period_ns);
}

void curve_add(struct curve *curve, uint64_t from_ns, uint64_t to_ns, uint64_t bytes)
{
	to_ns = min_u64(to_ns, curve->period_ns);
	if (from_ns >= to_ns)
		return;
	for (unsigned bin = curve_bin(curve, from_ns); bin <= curve_bin(curve, to_ns - 1); bin++)
		curve->bins[bin] = max_u64(curve->bins[bin], bytes);
	curve->peak = max_u64(curve->peak, bytes);
}

void curve_dilate(struct curve *curve, unsigned by)
{
	struct curve before = *curve;

	for (unsigned bin = 0; bin < CURVE_BINS; bin++) {
		unsigned to = bin + by < CURVE_BINS ? bin + by : CURVE_BINS - 1;

		for (unsigned near = bin > by ? bin - by : 0; near <= to; near++)
			curve->bins[bin] = max_u64(curve->bins[bin], before.bins[near]);
	}
}

uint64_t curve_at(const struct curve *curve, uint64_t phase_ns)
{
	return phase_ns < curve->period_ns ? curve->bins[curve_bin(curve, phase_ns)] : 0;
}

/* The first ns of a bin. */
static uint64_t bin_begins(const struct curve *curve, unsigned bin)
{
	return (bin * curve->period_ns + CURVE_BINS - 1) / CURVE_BINS;
}

static uint64_t curves_at(const struct curve_run *runs, size_t n, uint64_t after_ns)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += curve_at(runs[i].curve, runs[i].phase_ns + after_ns);
	return sum;
}

bool curves_fit(const struct curve_run *runs, size_t n, uint64_t room)
{
	uint64_t peaks = 0;

	for (size_t i = 0; i < n; i++)
		peaks += runs[i].curve->peak;
	if (peaks <= room)
		return true;
	if (curves_at(runs, n, 0) > room)
		return false;
	for (size_t i = 0; i < n; i++) {
		const struct curve *curve = runs[i].curve;

		if (runs[i].phase_ns >= curve->period_ns)
			continue;
		for (unsigned bin = curve_bin(curve, runs[i].phase_ns) + 1; bin < CURVE_BINS;
		     bin++) {
			uint64_t after = bin_begins(curve, bin) - runs[i].phase_ns;

			if (curves_at(runs, n, after) > room)
				return false;
		}
	}
	return true;
}

/*
 * priority_kernel.h - private to ds/replay/priority*.c: powers of arrays, in loops that
 * compilers vectorise.
 *
 * Each priority_<level>.c includes PRIORITY_KERNEL once, compiled for its instructions. There is
 * one source, so all levels give the same bits (base/power.h).
 */
#ifndef RLV_DS_REPLAY_PRIORITY_KERNEL_H
#define RLV_DS_REPLAY_PRIORITY_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/power.h"

/* quanta = ceil((value + add)^power * scale), at least 1 and at most max. */
struct priority_law {
	double add;
	double power;
	double scale;
	double max;
};

struct priority_kernel {
	/*
	 * out[i] = the quanta of values[i] by the law, ceil((values[i] + add)^power * scale), 1 to
	 * max. Returns the number of values beyond max.
	 */
	uint64_t (*quanta)(const struct priority_law *bounds, const float *values, size_t n,
			   uint64_t *out);
	/* out[i] = (in[i] * factor)^power; in and factor > 0. */
	void (*powers)(const double *in, size_t n, double factor, double power, float *out);
};

extern const struct priority_kernel priority_kernel_plain;
extern const struct priority_kernel priority_kernel_avx2;
extern const struct priority_kernel priority_kernel_avx512;

static inline uint64_t priority_ceil(double x)
{
	double whole = (x + POWER_2_52) - POWER_2_52;

	whole = whole < x ? whole + 1 : whole;
	whole = whole < 1 ? 1 : whole;
	return power_bits(whole + POWER_2_52) & ((UINT64_C(1) << 52) - 1);
}

#define PRIORITY_KERNEL(name) \
	static uint64_t quanta(const struct priority_law *bounds, const float *values, size_t n, \
			       uint64_t *out) \
	{ \
		const struct priority_law l = *bounds; \
		uint64_t beyond = 0; \
\
		for (size_t i = 0; i < n; i++) { \
			double x = power_of((double)values[i] + l.add, l.power) * l.scale; \
\
			beyond += x > l.max; \
			out[i] = priority_ceil(x > l.max ? l.max : x); \
		} \
		return beyond; \
	} \
\
	static void powers(const double *in, size_t n, double factor, double power, float *out) \
	{ \
		for (size_t i = 0; i < n; i++) \
			out[i] = (float)power_of(in[i] * factor, power); \
	} \
\
	const struct priority_kernel name = { quanta, powers }

#endif

/*
 * priority_kernel.h - private to ds/replay/priority*.c: powers of arrays, in loops that
 * compilers vectorise.
 *
 * Each priority_<level>.c includes PRIORITY_KERNEL once, compiled for its instructions. There is
 * one source, nothing is fused (-ffp-contract=off) and every operation is IEEE 754, so all
 * levels give the same bits. x^y = 2^(y log2 x) with relative errors of about 1e-12:
 *
 *   log2   x = 2^e m, m in [sqrt(1/2), sqrt(2)); f = (m-1)/(m+1); 2/ln2 (f + f^3/3 + f^5/5 + ..)
 *   exp2   y = n + g, |g| <= 1/2; the series of e^(g ln2), its exponent raised by n
 */
#ifndef RLV_DS_REPLAY_PRIORITY_KERNEL_H
#define RLV_DS_REPLAY_PRIORITY_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

#define PRIORITY_SQRT_HALF UINT64_C(0x3fe6a09e667f3bcd)
#define PRIORITY_ONE UINT64_C(0x3ff0000000000000)
#define PRIORITY_2_52 0x1p52
#define PRIORITY_EXP_MAX 1000.0 /* beyond the range of float */

static inline uint64_t priority_bits(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static inline double priority_double(uint64_t bits)
{
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* Returns the base-2 logarithm of x > 0, not subnormal. */
static inline double priority_log2(double x)
{
	uint64_t bits = priority_bits(x);
	uint64_t biased = (bits + (PRIORITY_ONE - PRIORITY_SQRT_HALF)) >> 52;
	double m = priority_double(bits - (biased << 52) + PRIORITY_ONE);
	double e = priority_double(biased | priority_bits(PRIORITY_2_52)) - (PRIORITY_2_52 + 1023);
	double f = (m - 1) / (m + 1), s = f * f, sum;

	sum = 2.8853900817779268 / 15;
	sum = sum * s + 2.8853900817779268 / 13;
	sum = sum * s + 2.8853900817779268 / 11;
	sum = sum * s + 2.8853900817779268 / 9;
	sum = sum * s + 2.8853900817779268 / 7;
	sum = sum * s + 2.8853900817779268 / 5;
	sum = sum * s + 2.8853900817779268 / 3;
	sum = sum * s + 2.8853900817779268;
	return e + sum * f;
}

static inline double priority_exp2(double y)
{
	double shifted, z, sum;

	y = y > PRIORITY_EXP_MAX ? PRIORITY_EXP_MAX : y;
	y = y < -PRIORITY_EXP_MAX ? -PRIORITY_EXP_MAX : y;
	shifted = y + 1.5 * PRIORITY_2_52; /* low bits = the nearest integer */
	z = (y - (shifted - 1.5 * PRIORITY_2_52)) * 0.6931471805599453;
	sum = 1.0 / 3628800;
	sum = sum * z + 1.0 / 362880;
	sum = sum * z + 1.0 / 40320;
	sum = sum * z + 1.0 / 5040;
	sum = sum * z + 1.0 / 720;
	sum = sum * z + 1.0 / 120;
	sum = sum * z + 1.0 / 24;
	sum = sum * z + 1.0 / 6;
	sum = sum * z + 0.5;
	sum = sum * z + 1;
	sum = sum * z + 1;
	return sum * priority_double((priority_bits(shifted) + 1023) << 52);
}

/* Returns x^power for x >= 0. 0^0 is 1. */
static inline double priority_pow(double x, double power)
{
	double tiny = x < 0x1p-1000 ? 0x1p-1000 : x;
	double value = priority_exp2(power * priority_log2(tiny));

	value = power == 1 ? x : value;
	return x == 0 ? (power == 0 ? 1.0 : 0.0) : value;
}

static inline uint64_t priority_ceil(double x)
{
	double whole = (x + PRIORITY_2_52) - PRIORITY_2_52;

	whole = whole < x ? whole + 1 : whole;
	whole = whole < 1 ? 1 : whole;
	return priority_bits(whole + PRIORITY_2_52) & ((UINT64_C(1) << 52) - 1);
}

#define PRIORITY_KERNEL(name) \
	static uint64_t quanta(const struct priority_law *bounds, const float *values, size_t n, \
			       uint64_t *out) \
	{ \
		const struct priority_law l = *bounds; \
		uint64_t beyond = 0; \
\
		for (size_t i = 0; i < n; i++) { \
			double x = priority_pow((double)values[i] + l.add, l.power) * l.scale; \
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
			out[i] = (float)priority_pow(in[i] * factor, power); \
	} \
\
	const struct priority_kernel name = { quanta, powers }

#endif

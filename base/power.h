/*
 * power.h - x^y with the same bits on every CPU, in loops that compilers vectorise, and on a GPU.
 *
 * Nothing may be fused (-ffp-contract=off, nvcc -fmad=false), and every operation is IEEE 754.
 * x^y = 2^(y log2 x) with relative errors of about 1e-12:
 *
 *   log2   x = 2^e m, m in [sqrt(1/2), sqrt(2)); f = (m-1)/(m+1); 2/ln2 (f + f^3/3 + f^5/5 + ..)
 *   exp2   y = n + g, |g| <= 1/2; the series of e^(g ln2), its exponent raised by n
 */
#ifndef RLV_BASE_POWER_H
#define RLV_BASE_POWER_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define POWER_FN static __device__ __forceinline__
#else
#define POWER_FN static inline
#endif

#define POWER_SQRT_HALF UINT64_C(0x3fe6a09e667f3bcd)
#define POWER_ONE UINT64_C(0x3ff0000000000000)
#define POWER_2_52 0x1p52
#define POWER_EXP_MAX 1000.0 /* beyond the range of float */

POWER_FN uint64_t power_bits(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

POWER_FN double power_double(uint64_t bits)
{
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* Returns the base-2 logarithm of x > 0, not subnormal. */
POWER_FN double power_log2(double x)
{
	uint64_t bits = power_bits(x);
	uint64_t biased = (bits + (POWER_ONE - POWER_SQRT_HALF)) >> 52;
	double m = power_double(bits - (biased << 52) + POWER_ONE);
	double e = power_double(biased | power_bits(POWER_2_52)) - (POWER_2_52 + 1023);
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

POWER_FN double power_exp2(double y)
{
	double shifted, z, sum;

	y = y > POWER_EXP_MAX ? POWER_EXP_MAX : y;
	y = y < -POWER_EXP_MAX ? -POWER_EXP_MAX : y;
	shifted = y + 1.5 * POWER_2_52; /* low bits = the nearest integer */
	z = (y - (shifted - 1.5 * POWER_2_52)) * 0.6931471805599453;
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
	return sum * power_double((power_bits(shifted) + 1023) << 52);
}

/* Returns x^power for x >= 0. 0^0 is 1. */
POWER_FN double power_of(double x, double power)
{
	double tiny = x < 0x1p-1000 ? 0x1p-1000 : x;
	double value = power_exp2(power * power_log2(tiny));

	value = power == 1 ? x : value;
	return x == 0 ? (power == 0 ? 1.0 : 0.0) : value;
}

#endif

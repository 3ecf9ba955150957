/*
 * bits.h - integer helpers: powers of two, rounding, arithmetic that reports overflow.
 */
#ifndef RLV_BASE_BITS_H
#define RLV_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ARRAY_LEN(array) (sizeof(array) / sizeof((array)[0]))

#define CACHE_LINE 64

static inline bool bits_is_pow2(uint64_t x)
{
	return x != 0 && (x & (x - 1)) == 0;
}

/* Number of trailing zero bits of x; 64 for x = 0. */
static inline unsigned bits_ctz(uint64_t x)
{
	return x ? (unsigned)__builtin_ctzll(x) : 64;
}

static inline unsigned bits_popcount(uint64_t x)
{
	return (unsigned)__builtin_popcountll(x);
}

/* x > 0. */
static inline unsigned bits_log2_floor(uint64_t x)
{
	return 63 - (unsigned)__builtin_clzll(x);
}

static inline bool bits_all_zero(const void *ptr, size_t n)
{
	const uint8_t *bytes = ptr;

	return n == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0);
}

/* The low n bits set, n in 0..64. */
static inline uint64_t bits_mask(unsigned n)
{
	return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/*
 * x rounded to a multiple of align, a power of two. align_up wraps when x > UINT64_MAX - align + 1.
 */
static inline uint64_t align_down(uint64_t x, uint64_t align)
{
	return x & ~(align - 1);
}

static inline uint64_t align_up(uint64_t x, uint64_t align)
{
	return (x + (align - 1)) & ~(align - 1);
}

static inline bool is_aligned(uint64_t x, uint64_t align)
{
	return (x & (align - 1)) == 0;
}

/* x / by, rounded up, without overflow for any x; by > 0. */
static inline uint64_t div_up(uint64_t x, uint64_t by)
{
	return x / by + (x % by != 0);
}

/* x rounded up to a multiple of by > 0, which need not be a power of two; wraps on overflow. */
static inline uint64_t round_up(uint64_t x, uint64_t by)
{
	return div_up(x, by) * by;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* True: *out is the result. False: the result does not fit, and *out is untouched. */
static inline bool checked_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	uint64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return false;
	*out = sum;
	return true;
}

static inline bool checked_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	uint64_t product;

	if (__builtin_mul_overflow(a, b, &product))
		return false;
	*out = product;
	return true;
}

static inline bool checked_align_up_u64(uint64_t x, uint64_t align, uint64_t *out)
{
	if (x > UINT64_MAX - (align - 1))
		return false;
	*out = align_up(x, align);
	return true;
}

#endif

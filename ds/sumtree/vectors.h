/*
 * vectors.h - private to ds/sumtree/kernel_vector.h: vectors of LANES words of 64 bits, as wide as
 * the flags of the file allow. `some` is a set of lanes: what comparisons give and stores take.
 */
#ifndef RLV_DS_SUMTREE_VECTORS_H
#define RLV_DS_SUMTREE_VECTORS_H

#if defined(__AVX2__)

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)

#define LANES 8u
#define SIGNED_ONLY false /* comparisons are of unsigned words */

typedef uint64_t vec __attribute__((vector_size(64)));
typedef __mmask8 some; /* a bit for each lane meant */

ALWAYS_INLINE vec load(const uint64_t *from)
{
	return (vec)_mm512_loadu_si512((const void *)from);
}

ALWAYS_INLINE void store(uint64_t *to, vec words)
{
	_mm512_storeu_si512((void *)to, (__m512i)words);
}

ALWAYS_INLINE void store_some(uint64_t *to, some which, vec words)
{
	_mm512_mask_storeu_epi64((void *)to, which, (__m512i)words);
}

ALWAYS_INLINE vec splat(uint64_t word)
{
	return (vec)_mm512_set1_epi64((long long)word);
}

/* The products of the lower halves of the words. */
ALWAYS_INLINE vec mul_low(vec a, vec b)
{
	return (vec)_mm512_mul_epu32((__m512i)a, (__m512i)b);
}

ALWAYS_INLINE some more_than(vec a, vec b)
{
	return _mm512_cmpgt_epu64_mask((__m512i)a, (__m512i)b);
}

ALWAYS_INLINE some equal(vec a, vec b)
{
	return _mm512_cmpeq_epi64_mask((__m512i)a, (__m512i)b);
}

ALWAYS_INLINE some differ(vec a, vec b)
{
	return _mm512_cmpneq_epi64_mask((__m512i)a, (__m512i)b);
}

ALWAYS_INLINE some not_negative(vec a)
{
	return (some)~_mm512_movepi64_mask((__m512i)a);
}

ALWAYS_INLINE uint32_t some_bits(some which)
{
	return which;
}

ALWAYS_INLINE some some_of(uint32_t bits)
{
	return (some)bits;
}

ALWAYS_INLINE vec choose(some which, vec yes, vec no)
{
	return (vec)_mm512_mask_mov_epi64((__m512i)no, which, (__m512i)yes);
}

ALWAYS_INLINE vec add_one(vec to, some which)
{
	return (vec)_mm512_mask_add_epi64((__m512i)to, which, (__m512i)to, _mm512_set1_epi64(1));
}

/* Returns the words, with 0 for negative ones. */
ALWAYS_INLINE vec clamp(vec words)
{
	return (vec)_mm512_max_epi64((__m512i)words, _mm512_setzero_si512());
}

/* Returns the sum of all lanes modulo 2^64: damaged words may overflow. */
ALWAYS_INLINE uint64_t sum_lanes(vec words)
{
	__m256i four = _mm256_add_epi64(_mm512_castsi512_si256((__m512i)words),
					_mm512_extracti64x4_epi64((__m512i)words, 1));
	__m128i two =
		_mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));

	return (uint64_t)_mm_cvtsi128_si64(two) + (uint64_t)_mm_extract_epi64(two, 1);
}

/* ratio[k] *= a[k] / b[k] for the lanes k in `which`, of words below 2^63. */
ALWAYS_INLINE void scale_ratio(double *ratio, some which, vec a, vec b)
{
	__m512d old = _mm512_loadu_pd(ratio);
	__m512d by = _mm512_div_pd(_mm512_cvtepi64_pd((__m512i)a), _mm512_cvtepi64_pd((__m512i)b));

	_mm512_storeu_pd(ratio, _mm512_mask_mul_pd(old, which, old, by));
}

/* Without optimization the intrinsic is a macro, which converts a mask to char. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

/* Returns words[at[k]] for each lane k. */
ALWAYS_INLINE vec gather(const uint64_t *words, vec at)
{
	return (vec)_mm512_i64gather_epi64((__m512i)at, (const void *)words, 8);
}

#pragma GCC diagnostic pop

/* Stores the lower halves of the words, side by side. */
ALWAYS_INLINE void store_low(uint32_t *to, vec words)
{
	_mm256_storeu_si256((void *)to, _mm512_cvtepi64_epi32((__m512i)words));
}

/* c[k] = word at + k of each of the eight rows: one vector for each column. */
ALWAYS_INLINE void load_columns(const uint64_t *const *rows, uint32_t at, vec c[LANES])
{
	__m512i pair[LANES], quad[LANES];

	for (uint32_t i = 0; i < LANES; i += 2) {
		__m512i a = (__m512i)load(rows[i] + at), b = (__m512i)load(rows[i + 1] + at);

		pair[i] = _mm512_unpacklo_epi64(a, b);     /* columns 0 2 4 6 */
		pair[i + 1] = _mm512_unpackhi_epi64(a, b); /* columns 1 3 5 7 */
	}
	for (uint32_t i = 0; i < LANES; i += 4) {
		quad[i] = _mm512_shuffle_i64x2(pair[i], pair[i + 2], 0x88);         /* 0 4 */
		quad[i + 1] = _mm512_shuffle_i64x2(pair[i + 1], pair[i + 3], 0x88); /* 1 5 */
		quad[i + 2] = _mm512_shuffle_i64x2(pair[i], pair[i + 2], 0xdd);     /* 2 6 */
		quad[i + 3] = _mm512_shuffle_i64x2(pair[i + 1], pair[i + 3], 0xdd); /* 3 7 */
	}
	for (uint32_t i = 0; i < 4; i++) {
		c[i] = (vec)_mm512_shuffle_i64x2(quad[i], quad[i + 4], 0x88);
		c[i + 4] = (vec)_mm512_shuffle_i64x2(quad[i], quad[i + 4], 0xdd);
	}
}

#else

#define LANES 4u
#define SIGNED_ONLY true /* sums are below 2^63, and larger ones are sent back: it suffices */

typedef uint64_t vec __attribute__((vector_size(32)));
typedef vec some; /* all bits of each lane meant */

ALWAYS_INLINE vec load(const uint64_t *from)
{
	return (vec)_mm256_loadu_si256((const void *)from);
}

ALWAYS_INLINE void store(uint64_t *to, vec words)
{
	_mm256_storeu_si256((void *)to, (__m256i)words);
}

ALWAYS_INLINE void store_some(uint64_t *to, some which, vec words)
{
	_mm256_maskstore_epi64((void *)to, (__m256i)which, (__m256i)words);
}

ALWAYS_INLINE vec splat(uint64_t word)
{
	return (vec)_mm256_set1_epi64x((long long)word);
}

ALWAYS_INLINE vec mul_low(vec a, vec b)
{
	return (vec)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}

ALWAYS_INLINE some more_than(vec a, vec b)
{
	return (some)_mm256_cmpgt_epi64((__m256i)a, (__m256i)b);
}

ALWAYS_INLINE some equal(vec a, vec b)
{
	return (some)_mm256_cmpeq_epi64((__m256i)a, (__m256i)b);
}

ALWAYS_INLINE some differ(vec a, vec b)
{
	return ~equal(a, b);
}

ALWAYS_INLINE some not_negative(vec a)
{
	return ~more_than(splat(0), a);
}

ALWAYS_INLINE uint32_t some_bits(some which)
{
	return (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd((__m256i)which));
}

ALWAYS_INLINE some some_of(uint32_t bits)
{
	const vec lanes = { 1, 2, 4, 8 };

	return equal(splat(bits) & lanes, lanes);
}

ALWAYS_INLINE vec choose(some which, vec yes, vec no)
{
	return (vec)_mm256_blendv_epi8((__m256i)no, (__m256i)yes, (__m256i)which);
}

ALWAYS_INLINE vec add_one(vec to, some which)
{
	return to - which;
}

ALWAYS_INLINE vec clamp(vec words)
{
	return words & not_negative(words);
}

ALWAYS_INLINE uint64_t sum_lanes(vec words)
{
	return words[0] + words[1] + words[2] + words[3];
}

ALWAYS_INLINE void scale_ratio(double *ratio, some which, vec a, vec b)
{
	for (uint32_t k = 0; k < LANES; k++)
		if (which[k])
			ratio[k] *= (double)(int64_t)a[k] / (double)(int64_t)b[k];
}

ALWAYS_INLINE vec gather(const uint64_t *words, vec at)
{
	return (vec)_mm256_i64gather_epi64((const void *)words, (__m256i)at, 8);
}

ALWAYS_INLINE void store_low(uint32_t *to, vec words)
{
	const __m256i even = _mm256_set_epi32(0, 0, 0, 0, 6, 4, 2, 0);

	_mm_storeu_si128((void *)to,
			 _mm256_castsi256_si128(_mm256_permutevar8x32_epi32((__m256i)words, even)));
}

ALWAYS_INLINE void load_columns(const uint64_t *const *rows, uint32_t at, vec c[LANES])
{
	__m256i a0 = (__m256i)load(rows[0] + at), a1 = (__m256i)load(rows[1] + at);
	__m256i a2 = (__m256i)load(rows[2] + at), a3 = (__m256i)load(rows[3] + at);
	__m256i even01 = _mm256_unpacklo_epi64(a0, a1), odd01 = _mm256_unpackhi_epi64(a0, a1);
	__m256i even23 = _mm256_unpacklo_epi64(a2, a3), odd23 = _mm256_unpackhi_epi64(a2, a3);

	c[0] = (vec)_mm256_permute2x128_si256(even01, even23, 0x20);
	c[1] = (vec)_mm256_permute2x128_si256(odd01, odd23, 0x20);
	c[2] = (vec)_mm256_permute2x128_si256(even01, even23, 0x31);
	c[3] = (vec)_mm256_permute2x128_si256(odd01, odd23, 0x31);
}

#endif
#endif
#endif

/* Kernel with vectors of half a line; see ds/weights/kernel.h. */
#include "ds/weights/kernel.h"

#if defined(__AVX2__)

#include <immintrin.h>

#define AHEAD 2048 /* bytes that are prefetched */

static inline __m256i half(const uint8_t *at)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

static inline uint64_t equal_bytes(const uint8_t *a, const uint8_t *b)
{
	return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(half(a), half(b)));
}

/* The line that is due soon; it may be behind the array. */
static inline void prefetch(const uint8_t *line)
{
	_mm_prefetch((const char *)((uintptr_t)line + AHEAD), _MM_HINT_T0);
}

static uint64_t compare(const uint8_t *old, const uint8_t *now, uint64_t differ[DELTA_LINES])
{
	uint64_t lines = 0;

	for (uint32_t i = 0; i < DELTA_LINES; i++, old += CACHE_LINE, now += CACHE_LINE) {
		prefetch(old);
		prefetch(now);
		differ[i] = ~(equal_bytes(old, now) | equal_bytes(old + 32, now + 32) << 32);
		lines |= (uint64_t)(differ[i] != 0) << i;
	}
	return lines;
}

/* The sum of 8 words times their keys, in four parts. */
static inline __m256i half_sum(__m256i words, const uint64_t *keys)
{
	__m256i sum = _mm256_setzero_si256(), high = sum;

	for (uint32_t i = 0; i < 2; i++) {
		__m128i four = i ? _mm256_extracti128_si256(words, 1)
				 : _mm256_castsi256_si128(words);
		__m256i word = _mm256_cvtepu32_epi64(four);
		__m256i key = _mm256_loadu_si256((const __m256i *)(const void *)(keys + 4 * i));

		sum = _mm256_add_epi64(sum, _mm256_mul_epu32(word, key));
		high = _mm256_add_epi64(high, _mm256_mul_epu32(word, _mm256_srli_epi64(key, 32)));
	}
	return _mm256_add_epi64(sum, _mm256_slli_epi64(high, 32));
}

static inline uint64_t lanes_sum(__m256i lanes)
{
	uint64_t lane[4];

	_mm256_storeu_si256((__m256i *)(void *)lane, lanes);
	return lane[0] + lane[1] + lane[2] + lane[3];
}

static uint64_t copy(uint8_t *to, const uint8_t *from, uint64_t lines)
{
	__m256i sum = _mm256_setzero_si256();

	for (; lines; lines &= lines - 1) {
		uint32_t line = bits_ctz(lines);
		const uint64_t *keys = delta_keys + line * DELTA_LINE_WORDS;

		for (uint32_t at = line * CACHE_LINE, i = 0; i < 2; i++, at += 32, keys += 8) {
			__m256i old = half(to + at), now = half(from + at);

			_mm256_storeu_si256((__m256i *)(void *)(to + at), now);
			sum = _mm256_add_epi64(
				sum, _mm256_sub_epi64(half_sum(now, keys), half_sum(old, keys)));
		}
	}
	return lanes_sum(sum);
}

static uint64_t sum(const uint8_t *run)
{
	__m256i sum = _mm256_setzero_si256();

	for (uint32_t i = 0; i < DELTA_RUN; i += 32) {
		if (i % CACHE_LINE == 0)
			prefetch(run + i);
		sum = _mm256_add_epi64(sum, half_sum(half(run + i), delta_keys + i / 4));
	}
	return lanes_sum(sum);
}

const struct delta_kernel delta_kernel_avx2 = { compare, copy, sum };

#endif

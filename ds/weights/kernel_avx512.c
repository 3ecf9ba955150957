/* Kernel with vectors of a line; see ds/weights/kernel.h. */
#include "ds/weights/kernel.h"

#if defined(__AVX512BW__)

#include <immintrin.h>

#define AHEAD 2048 /* bytes that are prefetched */

/* The line that is due soon; it may be behind the array. */
static inline void prefetch(const uint8_t *line)
{
	_mm_prefetch((const char *)((uintptr_t)line + AHEAD), _MM_HINT_T0);
}

static uint64_t compare(const uint8_t *old, const uint8_t *now, uint64_t differ[DELTA_LINES])
{
	uint64_t lines = 0;

	for (uint32_t i = 0; i < DELTA_LINES; i++) {
		__m512i a = _mm512_loadu_si512(old + i * CACHE_LINE);
		__m512i b = _mm512_loadu_si512(now + i * CACHE_LINE);

		prefetch(old + i * CACHE_LINE);
		prefetch(now + i * CACHE_LINE);
		differ[i] = _mm512_cmpneq_epi8_mask(a, b);
	}
	for (uint32_t i = 0; i < DELTA_LINES; i += 8) {
		__m512i masks = _mm512_loadu_si512(differ + i);

		lines |= (uint64_t)_mm512_test_epi64_mask(masks, masks) << i;
	}
	return lines;
}

/* The products of two even words of each 8 bytes with 64-bit keys. */
static inline __m512i times(__m512i words, __m512i keys)
{
	__m512i high = _mm512_mul_epu32(words, _mm512_srli_epi64(keys, 32));

	return _mm512_add_epi64(_mm512_mul_epu32(words, keys), _mm512_slli_epi64(high, 32));
}

/* The products of the 16 words of a line with their keys, in pairs. */
static inline __m512i line_sum(__m512i line, const uint64_t *keys)
{
	__m512i first = _mm512_loadu_si512(keys), second = _mm512_loadu_si512(keys + 8);
	__m512i low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(line));
	__m512i high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(line, 1));

	return _mm512_add_epi64(times(low, first), times(high, second));
}

static inline uint64_t lanes_sum(__m512i lanes)
{
	uint64_t lane[8], sum = 0;

	_mm512_storeu_si512(lane, lanes);
	for (uint32_t i = 0; i < 8; i++)
		sum += lane[i];
	return sum;
}

static uint64_t copy(uint8_t *to, const uint8_t *from, uint64_t lines)
{
	__m512i sum = _mm512_setzero_si512();

	for (; lines; lines &= lines - 1) {
		uint32_t line = bits_ctz(lines);
		const uint64_t *keys = delta_keys + line * DELTA_LINE_WORDS;
		__m512i old = _mm512_loadu_si512(to + line * CACHE_LINE);
		__m512i now = _mm512_loadu_si512(from + line * CACHE_LINE);

		_mm512_storeu_si512(to + line * CACHE_LINE, now);
		sum = _mm512_add_epi64(sum,
				       _mm512_sub_epi64(line_sum(now, keys), line_sum(old, keys)));
	}
	return lanes_sum(sum);
}

static uint64_t sum(const uint8_t *run)
{
	__m512i sum = _mm512_setzero_si512();

	for (uint32_t i = 0; i < DELTA_LINES; i++) {
		prefetch(run + i * CACHE_LINE);
		sum = _mm512_add_epi64(sum, line_sum(_mm512_loadu_si512(run + i * CACHE_LINE),
						     delta_keys + i * DELTA_LINE_WORDS));
	}
	return lanes_sum(sum);
}

const struct delta_kernel delta_kernel_avx512 = { compare, copy, sum };

#endif

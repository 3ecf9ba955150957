/*
 * crc32c_avx512.c - copies and checksums by carry-less multiplication: four accumulators of 64 bytes
 * are folded over the bytes, then into one of 16 bytes, whose checksum the crc32 instruction gives.
 *
 *   fold(acc, d) = low(acc) * x^(d+32) ^ high(acc) * x^(d-32)      d: distance in bits
 *
 * Gopal and others: "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009.
 */
#include "base/crc32c_tables.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <pthread.h>
#include <stdbool.h>

#define BLOCK 64
#define AHEAD 2048 /* bytes of src that are fetched ahead of streamed copies */
#define FOLDED __attribute__((target("sse4.2,pclmul,vpclmulqdq,avx512f,avx512vl,avx512dq")))

static __m512i by_block, by_four; /* constants of a fold over 1 and over 4 blocks */
static __m512i by_lane;           /* of each 16 bytes of a block over those behind it */
static pthread_once_t constants_once = PTHREAD_ONCE_INIT;

/* x^bits modulo the polynomial, in the order of bits that carry-less products of reflected numbers
   have. */
static uint64_t power_of_x(unsigned bits)
{
	uint32_t power = UINT32_C(1) << 31;

	for (; bits > 0; bits--)
		power = power >> 1 ^ (power & 1 ? CRC32C_POLY : 0);
	return (uint64_t)power << 1;
}

FOLDED static __m512i constants_of(const unsigned bits[4])
{
	uint64_t words[8];

	for (int lane = 0; lane < 4; lane++) {
		words[2 * lane] = bits[lane] ? power_of_x(bits[lane] + 32) : 0;
		words[2 * lane + 1] = bits[lane] ? power_of_x(bits[lane] - 32) : 0;
	}
	return _mm512_loadu_si512(words);
}

FOLDED static void make_constants(void)
{
	const unsigned lane[4] = { 384, 256, 128, 0 }, block[4] = { 512, 512, 512, 512 };
	const unsigned four[4] = { 2048, 2048, 2048, 2048 };

	by_lane = constants_of(lane);
	by_block = constants_of(block);
	by_four = constants_of(four);
}

FOLDED static inline __m512i fold(__m512i acc, __m512i by, __m512i next)
{
	const __m512i low = _mm512_clmulepi64_epi128(acc, by, 0x00);
	const __m512i high = _mm512_clmulepi64_epi128(acc, by, 0x11);

	return _mm512_ternarylogic_epi64(low, high, next, 0x96);
}

FOLDED static inline __m512i copy_block(unsigned char *dst, const unsigned char *src, bool streams)
{
	const __m512i block = _mm512_loadu_si512(src);

	if (streams) {
		/* The caches keep what others work with, not what is read once. */
		_mm_prefetch((const char *)src + AHEAD, _MM_HINT_NTA);
		_mm512_stream_si512((__m512i *)(void *)dst, block);
	} else {
		_mm512_storeu_si512(dst, block);
	}
	return block;
}

FOLDED static inline uint32_t copy_blocks(uint32_t crc, unsigned char *dst,
					  const unsigned char *src, size_t blocks, bool streams)
{
	__m512i acc[4], one;
	__m128i last;
	size_t at = 0;

	pthread_once(&constants_once, make_constants);
	for (int i = 0; i < 4; i++)
		acc[i] = copy_block(dst + (size_t)i * BLOCK, src + (size_t)i * BLOCK, streams);
	acc[0] = _mm512_xor_si512(acc[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
	for (at = 4; at + 4 <= blocks; at += 4)
		for (size_t i = 0; i < 4; i++)
			acc[i] = fold(acc[i], by_four,
				      copy_block(dst + (at + i) * BLOCK, src + (at + i) * BLOCK,
						 streams));
	one = fold(fold(fold(acc[0], by_block, acc[1]), by_block, acc[2]), by_block, acc[3]);
	for (; at < blocks; at++)
		one = fold(one, by_block, copy_block(dst + at * BLOCK, src + at * BLOCK, streams));
	/* The last lane has no constants: it is added as it is. */
	last = _mm512_extracti32x4_epi32(one, 3);
	one = fold(one, by_lane, _mm512_setzero_si512());
	last = _mm_xor_si128(last, _mm_xor_si128(_mm512_extracti32x4_epi32(one, 0),
						 _mm_xor_si128(_mm512_extracti32x4_epi32(one, 1),
							       _mm512_extracti32x4_epi32(one, 2))));
	return (uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(last)),
				       (uint64_t)_mm_extract_epi64(last, 1));
}

/* Past the cache, memory is not read before it is written. */
FOLDED uint32_t crc32c_raw_copy_avx512(uint32_t crc, unsigned char *dst, const unsigned char *src,
				       size_t blocks, bool past)
{
	if (!past)
		return copy_blocks(crc, dst, src, blocks, false);
	crc = copy_blocks(crc, dst, src, blocks, true);
	_mm_sfence();
	return crc;
}

#endif

/*
 * rng_avx2.c - eight Philox blocks at a time, as two groups of four.
 *
 * Each 64-bit lane holds one 32-bit word of one block in its low half; the multiply ignores the
 * high half, so what is left there by the xor is never cleared before the end.
 */
#include "base/rng_blocks.h"

#if defined(__AVX2__)

#include <immintrin.h>

struct lanes {
	__m256i x0, x1, x2, x3;
};

static inline void philox_round(struct lanes *v, __m256i k0, __m256i k1)
{
	__m256i product0 = _mm256_mul_epu32(v->x0, _mm256_set1_epi64x(RNG_MUL0));
	__m256i product1 = _mm256_mul_epu32(v->x2, _mm256_set1_epi64x(RNG_MUL1));

	v->x0 = _mm256_xor_si256(_mm256_srli_epi64(product1, 32), _mm256_xor_si256(v->x1, k0));
	v->x1 = product1;
	v->x2 = _mm256_xor_si256(_mm256_srli_epi64(product0, 32), _mm256_xor_si256(v->x3, k1));
	v->x3 = product0;
}

static inline struct lanes load_counters(const struct rng_state *state, uint64_t block)
{
	__m256i index = _mm256_add_epi64(_mm256_set1_epi64x((long long)block),
					 _mm256_set_epi64x(3, 2, 1, 0));

	return (struct lanes){
		.x0 = index,
		.x1 = _mm256_srli_epi64(index, 32),
		.x2 = _mm256_set1_epi64x((long long)state->stream),
		.x3 = _mm256_set1_epi64x((long long)(state->stream >> 32)),
	};
}

/*
 * Stores four blocks, 8 words: the low halves of x0, x1 make the first word of a block, of x2, x3
 * the second.
 */
static inline void store_words(const struct lanes *v, uint64_t *out)
{
	__m256i a = _mm256_blend_epi32(v->x0, _mm256_slli_epi64(v->x1, 32), 0xAA);
	__m256i b = _mm256_blend_epi32(v->x2, _mm256_slli_epi64(v->x3, 32), 0xAA);
	__m256i even = _mm256_unpacklo_epi64(a, b); /* blocks 0 and 2 */
	__m256i odd = _mm256_unpackhi_epi64(a, b);  /* blocks 1 and 3 */

	_mm256_storeu_si256((__m256i *)out, _mm256_permute2x128_si256(even, odd, 0x20));
	_mm256_storeu_si256((__m256i *)(out + 4), _mm256_permute2x128_si256(even, odd, 0x31));
}

void rng_blocks_avx2(const struct rng_state *state, uint64_t block, uint64_t *out, size_t n)
{
	for (size_t i = 0; i < n; i += RNG_AVX2_GROUP) {
		struct lanes a = load_counters(state, block + i);
		struct lanes b = load_counters(state, block + i + 4);
		uint32_t k0 = (uint32_t)state->seed;
		uint32_t k1 = (uint32_t)(state->seed >> 32);

		for (int round = 0; round < RNG_ROUNDS; round++) {
			__m256i key0 = _mm256_set1_epi64x(k0);
			__m256i key1 = _mm256_set1_epi64x(k1);

			philox_round(&a, key0, key1);
			philox_round(&b, key0, key1);
			k0 += RNG_KEY_ADD0;
			k1 += RNG_KEY_ADD1;
		}
		store_words(&a, out + 2 * i);
		store_words(&b, out + 2 * i + 8);
	}
}

#endif

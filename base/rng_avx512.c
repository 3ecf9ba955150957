/*
 * rng_avx512.c - sixteen Philox blocks at a time, as two groups of eight. The lanes are laid out
 * as in rng_avx2.c.
 */
#include "base/rng_blocks.h"

#if defined(__AVX512F__)

#include <immintrin.h>

#define XOR3 0x96 /* the truth table of a ^ b ^ c */

struct lanes {
	__m512i x0, x1, x2, x3;
};

struct keys {
	__m512i k0[RNG_ROUNDS], k1[RNG_ROUNDS];
};

static inline void philox_round(struct lanes *v, __m512i k0, __m512i k1)
{
	__m512i product0 = _mm512_mul_epu32(v->x0, _mm512_set1_epi64(RNG_MUL0));
	__m512i product1 = _mm512_mul_epu32(v->x2, _mm512_set1_epi64(RNG_MUL1));

	v->x0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), v->x1, k0, XOR3);
	v->x1 = product1;
	v->x2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), v->x3, k1, XOR3);
	v->x3 = product0;
}

static inline struct lanes load_counters(const struct rng_state *state, uint64_t block)
{
	__m512i index = _mm512_add_epi64(_mm512_set1_epi64((long long)block),
					 _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));

	return (struct lanes){
		.x0 = index,
		.x1 = _mm512_srli_epi64(index, 32),
		.x2 = _mm512_set1_epi64((long long)state->stream),
		.x3 = _mm512_set1_epi64((long long)(state->stream >> 32)),
	};
}

static inline void store_words(const struct lanes *v, uint64_t *out)
{
	const __m512i low = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
	const __m512i high = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
	__m512i a = _mm512_mask_blend_epi32(0xAAAA, v->x0, _mm512_slli_epi64(v->x1, 32));
	__m512i b = _mm512_mask_blend_epi32(0xAAAA, v->x2, _mm512_slli_epi64(v->x3, 32));

	_mm512_storeu_si512(out, _mm512_permutex2var_epi64(a, low, b));
	_mm512_storeu_si512(out + 8, _mm512_permutex2var_epi64(a, high, b));
}

static inline void load_keys(uint64_t seed, struct keys *keys)
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

	for (int round = 0; round < RNG_ROUNDS; round++) {
		keys->k0[round] = _mm512_set1_epi64(k0);
		keys->k1[round] = _mm512_set1_epi64(k1);
		k0 += RNG_KEY_ADD0;
		k1 += RNG_KEY_ADD1;
	}
}

void rng_blocks_avx512(const struct rng_state *state, uint64_t block, uint64_t *out, size_t n)
{
	struct keys keys;

	load_keys(state->seed, &keys);
	for (size_t i = 0; i < n; i += RNG_AVX512_GROUP) {
		struct lanes a = load_counters(state, block + i);
		struct lanes b = load_counters(state, block + i + 8);

		for (int round = 0; round < RNG_ROUNDS; round++) {
			philox_round(&a, keys.k0[round], keys.k1[round]);
			philox_round(&b, keys.k0[round], keys.k1[round]);
		}
		store_words(&a, out + 2 * i);
		store_words(&b, out + 2 * i + 16);
	}
}

#endif

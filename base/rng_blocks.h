/*
 * rng_blocks.h - private to base/rng*.c: the vector variants of the block function.
 *
 * Each writes words 2 * block .. 2 * (block + n) - 1 of the stream to out. n is a multiple of
 * the variant's group; rng.c makes the rest in plain code.
 */
#ifndef RLV_BASE_RNG_BLOCKS_H
#define RLV_BASE_RNG_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

#define RNG_MUL0 UINT32_C(0xD2511F53)
#define RNG_MUL1 UINT32_C(0xCD9E8D57)
#define RNG_KEY_ADD0 UINT32_C(0x9E3779B9)
#define RNG_KEY_ADD1 UINT32_C(0xBB67AE85)
#define RNG_ROUNDS 10

#define RNG_AVX2_GROUP 8
#define RNG_AVX512_GROUP 16

void rng_blocks_avx2(const struct rng_state *state, uint64_t block, uint64_t *out, size_t n);
void rng_blocks_avx512(const struct rng_state *state, uint64_t block, uint64_t *out, size_t n);

#endif

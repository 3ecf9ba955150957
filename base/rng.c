#include "base/rng.h"

#include <string.h>

#include "base/os/cpu.h"
#include "base/rng_blocks.h"

static uint32_t mul_hi_lo(uint32_t a, uint32_t b, uint32_t *lo_out)
{
	uint64_t product = (uint64_t)a * b;

	*lo_out = (uint32_t)product;
	return (uint32_t)(product >> 32);
}

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
	uint32_t k0 = key[0], k1 = key[1];

	for (int round = 0; round < RNG_ROUNDS; round++) {
		uint32_t lo0, lo1;
		uint32_t hi0 = mul_hi_lo(RNG_MUL0, x0, &lo0);
		uint32_t hi1 = mul_hi_lo(RNG_MUL1, x2, &lo1);

		x0 = hi1 ^ x1 ^ k0;
		x1 = lo1;
		x2 = hi0 ^ x3 ^ k1;
		x3 = lo0;
		k0 += RNG_KEY_ADD0;
		k1 += RNG_KEY_ADD1;
	}
	out[0] = x0;
	out[1] = x1;
	out[2] = x2;
	out[3] = x3;
}

static void make_block(const struct rng_state *state, uint64_t block, uint64_t out[2])
{
	uint32_t counter[4] = {
		(uint32_t)block,
		(uint32_t)(block >> 32),
		(uint32_t)state->stream,
		(uint32_t)(state->stream >> 32),
	};
	uint32_t key[2] = { (uint32_t)state->seed, (uint32_t)(state->seed >> 32) };
	uint32_t words[4];

	rng_philox(counter, key, words);
	out[0] = words[0] | (uint64_t)words[1] << 32;
	out[1] = words[2] | (uint64_t)words[3] << 32;
}

void rng_seed(struct rng *rng, uint64_t seed, uint64_t stream)
{
	memset(rng, 0, sizeof(*rng));
	rng->state.seed = seed;
	rng->state.stream = stream;
}

uint64_t rng_next_u64(struct rng *rng)
{
	uint64_t pos = rng->state.pos++;
	uint64_t words[2];

	if (pos & 1)
		return rng->spare;
	make_block(&rng->state, pos / 2, words);
	rng->spare = words[1];
	return words[0];
}

uint64_t rng_uniform_u64(struct rng *rng, uint64_t bound)
{
	return (uint64_t)(((unsigned __int128)rng_next_u64(rng) * bound) >> 64);
}

double rng_uniform_double(struct rng *rng)
{
	return (double)(rng_next_u64(rng) >> 11) * 0x1p-53;
}

/*
 * Writes words of up to n whole blocks, from number block on, by vector code; returns how many
 * blocks.
 */
static size_t fill_vector(const struct rng_state *state, uint64_t block, uint64_t *out, size_t n)
{
#if defined(__x86_64__)
	size_t done = 0;

	if (n < RNG_AVX2_GROUP)
		return 0;
	switch (cpu_level()) {
	case CPU_AVX512:
		done = n - n % RNG_AVX512_GROUP;
		if (done)
			rng_blocks_avx512(state, block, out, done);
		if (n - done < RNG_AVX2_GROUP)
			return done;
		rng_blocks_avx2(state, block + done, out + 2 * done, RNG_AVX2_GROUP);
		return done + RNG_AVX2_GROUP;
	case CPU_AVX2:
		done = n - n % RNG_AVX2_GROUP;
		rng_blocks_avx2(state, block, out, done);
		return done;
	case CPU_PLAIN:
		break;
	}
#else
	(void)state;
	(void)block;
	(void)out;
	(void)n;
#endif
	return 0;
}

void rng_fill_u64(struct rng *rng, uint64_t *out, size_t n)
{
	uint64_t block;
	size_t blocks, done;

	if (n && (rng->state.pos & 1)) {
		*out++ = rng_next_u64(rng);
		n--;
	}
	block = rng->state.pos / 2;
	blocks = n / 2;
	done = fill_vector(&rng->state, block, out, blocks);
	for (; done < blocks; done++)
		make_block(&rng->state, block + done, out + 2 * done);
	rng->state.pos += 2 * blocks;
	if (n & 1)
		out[n - 1] = rng_next_u64(rng);
}

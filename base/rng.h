/*
 * rng.h - seeded random numbers: Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror,
 * Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 *
 *   block i of a stream = philox(counter {i, stream}, key seed) = 4 x 32 bits = words 2i, 2i+1
 *
 * A stream is a pure function of (seed, stream, position): any part of it can be made by any
 * thread and any vector width. Streams of one seed never overlap. Not for secrets.
 */
#ifndef RLV_BASE_RNG_H
#define RLV_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng_state {
	uint64_t seed;
	uint64_t stream;
	uint64_t pos; /* words drawn so far */
};

struct rng {
	struct rng_state state;
	uint64_t spare; /* the block's second word, valid while pos is odd */
};

/*
 * Starts that stream of seed at its first word. Thread: owner, for every function on a struct rng.
 */
void rng_seed(struct rng *rng, uint64_t seed, uint64_t stream);

uint64_t rng_next_u64(struct rng *rng);

/*
 * Uniform in [0, bound) by a 64 x 64 -> 128 bit multiply, one word per call and no rejection:
 * values differ in probability by at most 2^-64, a relative bias of at most bound / 2^64.
 * bound 0 gives 0.
 */
uint64_t rng_uniform_u64(struct rng *rng, uint64_t bound);

/* Uniform in [0, 1), a multiple of 2^-53. */
double rng_uniform_double(struct rng *rng);

/*
 * The next n words, the same as n calls of rng_next_u64 give. Vector code by cpu_level().
 * Cost: about 1.3 ns a word with AVX-512, 2.5 with AVX2, 7 without, for n of 64 and more.
 */
void rng_fill_u64(struct rng *rng, uint64_t *out, size_t n);

/* One block of Philox4x32-10 from counter and key; for the known-answer tests. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif

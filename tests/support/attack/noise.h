/*
 * noise.h - invalid values of words that a client can write: random ones, flipped bits, and
 * plausible but wrong ones. Both noise tests use them (model/test_noise, integration/test_noise).
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_NOISE_H
#define RLV_TESTS_SUPPORT_ATTACK_NOISE_H

#include "ds/replay/shard.h"

#include "base/rng.h"

enum noise_class {
	NOISE_LEAVES,
	NOISE_INNER,
	NOISE_SHARD_WORDS, /* head, dirty, epoch, clean */
	NOISE_VIEW_WORDS,  /* counts of the limiter, maximum */
	NOISE_SLOTS,       /* pin and counts, in pages of clients that are attached */
	NOISE_HEADERS,
	NOISE_COUNTS, /* times sampled */
	NOISE_ROWS,
	NOISE_TAILS, /* of rows */
	NOISE_CLASSES,
};

extern const char *const noise_names[NOISE_CLASSES];

/* A word of the class, in one of the shard's regions. */
struct noise_place {
	struct region *region;
	uint64_t off;
};

/* Picks a random word of the class; false: the table has none. */
bool noise_pick(struct rng *rng, const struct shard *shard, enum noise_class class,
		struct noise_place *place_out);

/* A random word to replace `now`. */
uint64_t noise_word(struct rng *rng, const struct table_desc *desc, uint64_t now);

#endif

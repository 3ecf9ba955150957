/*
 * shard_shares.h - do the draws of a sampler fall on the shards in proportion to their mass, while
 * others insert and update and shards come and go?
 *
 *   look | sample, count | look | sample, count | look ..
 *
 * Each batch is compared with the mean of the two looks around it, at the roots of the shards that
 * the sampler draws from; a batch between which that set has changed is left out.
 */
#ifndef RLV_TESTS_SUPPORT_SHARD_SHARES_H
#define RLV_TESTS_SUPPORT_SHARD_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "relive/relive.h"

#define SHARD_SHARES_MAX 64u /* batches that reach a shard beyond are left out */

struct shard_look {
	bool whole;       /* the mass of every shard of the set is known */
	uint64_t version; /* of the set */
	double share[SHARD_SHARES_MAX];
};

struct shard_shares {
	struct shard_look last;
	bool pending; /* batch holds one, drawn since the last look */
	uint64_t batch[SHARD_SHARES_MAX];
	uint64_t seen[SHARD_SHARES_MAX];
	double expected[SHARD_SHARES_MAX];
};

/* View 0 is sampled. Cost: 2 RT for each shard. Thread: the sampler's. */
void shard_shares_look(struct shard_shares *shares, struct rlv_sampler *sampler);

void shard_shares_count(struct shard_shares *shares, const struct rlv_batch *batch);

/* p-value of a chi-square test over all batches. */
double shard_shares_p(const struct shard_shares *shares);

#endif

#include "tests/support/shard_shares.h"

#include "bench/replay/chi_square.h"

#include "client/sampler/sampler.h"

#include "wire/table_layout.h"

#include <string.h>

#define CELL_MIN 10.0 /* shards of which less is expected count with the largest */

static bool read_mass(const struct shard *shard, double *mass_out)
{
	struct epoch ep;
	uint64_t total;

	epoch_init(&ep, &shard->part, 0);
	if (sumtree_total(&shard->trees[0], &ep, &total))
		return false;
	*mass_out = (double)total;
	return true;
}

static void look_at(const struct part_set *set, struct shard_look *look)
{
	double sum = 0;

	look->version = set->version;
	look->whole = set->n_parts <= SHARD_SHARES_MAX;
	for (uint32_t s = 0; look->whole && s < set->n_parts; s++) {
		if (!set->parts[s])
			continue;
		look->whole = read_mass(shard_of(set->parts[s]), &look->share[s]);
		sum += look->share[s];
	}
	look->whole &= sum > 0;
	for (uint32_t s = 0; look->whole && s < SHARD_SHARES_MAX; s++)
		look->share[s] /= sum;
}

static void add_batch(struct shard_shares *shares, const struct shard_look *now)
{
	uint64_t n = 0;

	for (uint32_t s = 0; s < SHARD_SHARES_MAX; s++)
		n += shares->batch[s];
	for (uint32_t s = 0; s < SHARD_SHARES_MAX; s++) {
		shares->seen[s] += shares->batch[s];
		shares->expected[s] += (double)n * (shares->last.share[s] + now->share[s]) / 2;
	}
}

void shard_shares_look(struct shard_shares *shares, struct rlv_sampler *sampler)
{
	struct shard_look now = { .whole = false };

	look_at(&sampler->h.set, &now);
	if (shares->pending && shares->last.whole && now.whole &&
	    shares->last.version == now.version)
		add_batch(shares, &now);
	shares->pending = false;
	shares->last = now;
}

void shard_shares_count(struct shard_shares *shares, const struct rlv_batch *batch)
{
	memset(shares->batch, 0, sizeof(shares->batch));
	for (uint32_t i = 0; i < batch->n; i++) {
		uint32_t shard = key_shard(batch->key[i]);

		if (shard >= SHARD_SHARES_MAX)
			return;
		shares->batch[shard]++;
	}
	shares->pending = true;
}

static uint32_t largest(const double *values)
{
	uint32_t at = 0;

	for (uint32_t s = 1; s < SHARD_SHARES_MAX; s++)
		at = values[s] > values[at] ? s : at;
	return at;
}

double shard_shares_p(const struct shard_shares *shares)
{
	struct shard_shares pooled = *shares;
	uint32_t pool = largest(shares->expected);

	for (uint32_t s = 0; s < SHARD_SHARES_MAX; s++) {
		if (s == pool || shares->expected[s] >= CELL_MIN)
			continue;
		pooled.seen[pool] += shares->seen[s];
		pooled.expected[pool] += shares->expected[s];
		pooled.seen[s] = 0;
		pooled.expected[s] = 0;
	}
	return chi_square_test(pooled.seen, pooled.expected, SHARD_SHARES_MAX).p;
}

#include "bench/kv/keys.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"

#define THETA 0.99 /* of the Zipf distribution */
#define DRAWN 65536u

/* As YCSB draws it (Gray and others, SIGMOD 1994). */
void kv_zipf_init(struct kv_zipf *zipf, uint64_t n)
{
	zipf->zeta = 0;
	for (uint64_t i = 1; i <= n; i++)
		zipf->zeta += 1 / pow((double)i, THETA);
	zipf->alpha = 1 / (1 - THETA);
	zipf->eta =
		(1 - pow(2.0 / (double)n, 1 - THETA)) / (1 - (1 + pow(0.5, THETA)) / zipf->zeta);
}

static uint64_t zipf_rank(const struct kv_zipf *zipf, uint64_t n, struct rng *rng)
{
	double u = rng_uniform_double(rng), uz = u * zipf->zeta;

	if (uz < 1)
		return 0;
	if (uz < 1 + 0.5035) /* 0.5 to the power of THETA */
		return 1;
	return min_u64(n - 1,
		       (uint64_t)((double)n * pow(zipf->eta * u - zipf->eta + 1, zipf->alpha)));
}

int kv_keys_init(struct kv_keys *keys, const struct kv_case *c, uint64_t client)
{
	uint64_t n = c->config.keys;

	keys->of = c;
	rng_seed(&keys->rng, c->config.seed, client);
	keys->drawn = mem_array(DRAWN, sizeof(keys->drawn[0]));
	for (uint32_t i = 0; keys->drawn && i < DRAWN; i++)
		keys->drawn[i] = (uint32_t)(c->config.dist == KV_UNIFORM
						    ? rng_uniform_u64(&keys->rng, n)
						    : zipf_rank(&c->zipf, n, &keys->rng));
	return keys->drawn ? 0 : -ENOMEM;
}

void kv_keys_fini(struct kv_keys *keys)
{
	mem_free(keys->drawn);
}

uint64_t kv_keys_draw(struct kv_keys *keys)
{
	const struct kv_config *config = &keys->of->config;
	uint64_t newest, rank = keys->drawn[keys->next++ % DRAWN];

	if (config->dist == KV_UNIFORM)
		return rank;
	if (config->workload != 'd') /* the popular keys are spread */
		return rank * UINT64_C(0x9e3779b97f4a7c15) % config->keys;
	/* Another client may still be putting the very newest ones. */
	newest = atomic_load_explicit(&keys->of->shared->newest, memory_order_relaxed);
	rank += config->clients;
	return (newest > rank ? newest - 1 - rank : 0) % (KV_KEY_SPACE * config->keys);
}

uint64_t kv_keys_new(struct kv_keys *keys)
{
	return atomic_fetch_add_explicit(&keys->of->shared->newest, 1, memory_order_relaxed) %
	       (KV_KEY_SPACE * keys->of->config.keys);
}

struct rlv_bytes kv_key_bytes(struct kv_key_text *key, uint64_t number)
{
	/* "user" and the number in hexadecimal: snprintf would take as long as a get. */
	memcpy(key->text, "user", 4);
	for (int i = 0; i < 8; i++)
		key->text[4 + i] = "0123456789abcdef"[number >> (28 - 4 * i) & 15];
	return (struct rlv_bytes){ key->text, 12 };
}

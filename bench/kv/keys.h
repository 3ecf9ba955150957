/*
 * keys.h - which key an operation of a client takes, and its bytes. The keys are drawn before the windows: a
 * draw takes as long as a get.
 */
#ifndef RLV_BENCH_KV_KEYS_H
#define RLV_BENCH_KV_KEYS_H

#include "bench/kv/kv.h"

#include "base/rng.h"

#define KV_KEY_SPACE 4u /* times the first keys: workload D puts new ones */

void kv_zipf_init(struct kv_zipf *zipf, uint64_t n);

struct kv_keys {
	const struct kv_case *of;
	struct rng rng;
	uint32_t *drawn, next; /* ranks of keys, in turn */
};

/* Draws the keys of that client, of 1 and more. -ENOMEM. */
RLV_MUST_CHECK int kv_keys_init(struct kv_keys *keys, const struct kv_case *c, uint64_t client);
void kv_keys_fini(struct kv_keys *keys);

/* The next key of a get or put; of one that no client has put yet. */
uint64_t kv_keys_draw(struct kv_keys *keys);
uint64_t kv_keys_new(struct kv_keys *keys);

static inline uint64_t kv_keys_percent(struct kv_keys *keys)
{
	return rng_uniform_u64(&keys->rng, 100);
}

struct kv_key_text {
	char text[24];
};

struct rlv_bytes kv_key_bytes(struct kv_key_text *key, uint64_t number);

#endif

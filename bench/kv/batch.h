/*
 * batch.h - gets or puts of KV_BATCH keys in a call, as redis.h does with commands in a pipeline.
 */
#ifndef RLV_BENCH_KV_BATCH_H
#define RLV_BENCH_KV_BATCH_H

#include <stdint.h>

#include "relive/kv.h"

#include "base/error.h"

#define KV_BATCH 64u

struct kv_batch {
	struct rlv_kv_item items[KV_BATCH];
	char keys[KV_BATCH][16];
	uint8_t *memory; /* of the values */
	uint64_t room;   /* of one */
	uint32_t n;
};

/* room: bytes of the longest value. */
RLV_MUST_CHECK int kv_batch_init(struct kv_batch *batch, uint64_t room);
void kv_batch_fini(struct kv_batch *batch);

/* Adds a get (value.ptr NULL) or a put; all of a batch are of one kind. When it is full, as
   kv_batch_flush. The key has 16 bytes at most. */
RLV_MUST_CHECK int kv_batch_add(struct kv_batch *batch, struct rlv_kv *kv, struct rlv_bytes key,
				struct rlv_bytes value);
/* Makes the call. Also what came of one key is an error. */
RLV_MUST_CHECK int kv_batch_flush(struct kv_batch *batch, struct rlv_kv *kv);

#endif

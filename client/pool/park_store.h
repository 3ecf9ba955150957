/*
 * park_store.h - tensors of a parked job in a heap of a store, on its memory nodes.
 *
 *   send    device ─copy─> buffer ─put─> value of a piece; extents go back when all are there
 *   fetch   in the order of use: value ─get─> one buffer, while the other one's copy to the device is under way
 *
 * A piece is at most PARK_PIECE_BYTES, under the key pool/BOOT.FOLDER/POOL/JOB/NUMBER: FOLDER is the broker's, so
 * no other job has the key. Numbers are 0 .. n: puts go up and deletes go down, so whatever a killed job left
 * begins with 0. The heap's handle is open until all are there, or back: it lives through no time in which the job
 * is stopped for long, and fenced.
 */
#ifndef RLV_CLIENT_POOL_PARK_STORE_H
#define RLV_CLIENT_POOL_PARK_STORE_H

#include "relive/pool.h"

#include "device/marks.h"

#define PARK_PIECE_BYTES ((uint64_t)16 << 20)
#define PARK_KEY_BYTES 256

struct park_buffer {
	void *bytes;
	struct marks marks; /* of the last copy */
};

struct park_store {
	struct rlv_store *store; /* NULL: tensors go to memory of this process */
	char heap[RLV_NAME_BYTES];
	char prefix[PARK_KEY_BYTES]; /* of keys */
	uint64_t n;                  /* keys that may have values */
	struct rlv_kv *kv; /* while a call goes on, or waits to be made again; as the buffers */
	struct park_buffer buffers[2];
};

/* -EINVAL: opts.store and opts.heap do not fit together. */
RLV_MUST_CHECK int park_store_check(const struct rlv_pool_opts *opts);

/* Names the place of a job that has joined, and removes what an earlier job of the name left. The store cannot be
   closed until park_store_close. Errors: of rlv_kv_open and rlv_kv_get. */
RLV_MUST_CHECK int park_store_open(struct park_store *park, const struct rlv_pool_opts *opts,
				   const char *pool, const char *job);
/* Deletes what is left. */
void park_store_close(struct park_store *park);

/* Takes all tensors there. After an error pool_unpark brings back what has not been there before. */
RLV_MUST_CHECK int park_store_send(struct rlv_pool *pool, uint64_t deadline_ns);
/* Brings all back, and deletes them there. After an error, -ETIMEDOUT too, the next call goes on. */
RLV_MUST_CHECK int park_store_fetch(struct rlv_pool *pool, uint64_t deadline_ns);

#endif

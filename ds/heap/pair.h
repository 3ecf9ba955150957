/*
 * Pair: the two copies of a bucket, in heaps of the modes direct and central (wire/heap_layout.h). A copy
 * is an entry with its checksum; which of the two counts is the mode's business.
 */
#ifndef RLV_DS_HEAP_PAIR_H
#define RLV_DS_HEAP_PAIR_H

#include "ds/chain/chain.h"
#include "ds/heap/heap.h"

#define PAIR_LEAST 128u /* bytes of a copy */
#define PAIR_MOST ((uint64_t)64 << 20)
#define PAIR_CENTRAL_MOST ((uint64_t)512 << 10) /* a coordinator's answer is one frame */

/* As heap_plan and heap_desc_check, of what is particular to copies. */
RLV_MUST_CHECK int pair_plan(const struct heap_wish *wish, struct heap_desc *desc);
bool pair_sizes_fit(const struct heap_desc *desc);

/* Of all pairs. */
static inline uint64_t pair_bytes(const struct heap_desc *desc)
{
	return ((uint64_t)desc->buckets + HEAP_PROBES) * 2 * desc->extent_bytes;
}

/* A copy: which = 0 or 1, bucket < buckets + HEAP_PROBES. */
struct pair_at {
	uint32_t bucket, which;
};

static inline uint64_t pair_off(const struct heap *heap, struct pair_at at)
{
	return HEAP_ROWS_OFF + (2 * (uint64_t)at.bucket + at.which) * heap->desc.extent_bytes;
}

/* Hash of a key as buckets have it; 0 = never used. */
static inline uint64_t pair_hash(uint64_t hash)
{
	return hash && hash != HEAD_MOVED ? hash : 1;
}

enum pair_found {
	PAIR_OK,
	PAIR_NONE, /* no entry was ever written there */
	PAIR_TORN, /* being written, or damaged */
};

/*
 * Reads a copy into buf, which has room for extent_bytes, and checks it: PAIR_OK has its key and value
 * within buf. Returns enum pair_found, or an error of the transport. Cost: 1 RT, if the entry is not
 * longer than guess; else 2.
 */
RLV_MUST_CHECK int pair_read(struct heap *heap, struct pair_at at, uint64_t guess, uint8_t *buf,
			     struct heap_entry *entry_out);

static inline const uint8_t *pair_key(const uint8_t *buf)
{
	return buf + sizeof(struct heap_entry);
}

#endif

/*
 * region.h - addresses for tensors of one job, one class and one stream.
 *
 * A region has chunks: ranges of whole extents. Blocks tile a chunk in the order of addresses; the
 * smallest free block that is large enough is taken and cut, and free neighbours are one block.
 * Regions keep tensors apart that live differently long, so that no weight pins the extent of a
 * feature map. A block that other streams used too is in limbo when it is freed, until they are
 * done; a block of the region's own stream is free at once, as the stream runs in order.
 *
 * No clock, device or input. Thread: owner, for all calls.
 */
#ifndef RLV_DEVICE_REGION_H
#define RLV_DEVICE_REGION_H

#include "device/marks.h"

#define REGION_ALIGN 512u /* of blocks, in bytes */
#define REGION_BINS 256u

enum tensor_class { TENSOR_PERSISTENT, TENSOR_ITERATION, TENSOR_EPHEMERAL, TENSOR_STAGING };
#define TENSOR_CLASSES 4u

enum block_state { BLOCK_FREE, BLOCK_USED, BLOCK_LIMBO };

struct region;
struct chunk;

struct block {
	enum block_state state;
	uint64_t va, bytes;
	struct chunk *chunk;
	struct block *before, *after;  /* in the chunk */
	struct block *previous, *next; /* free: in its bin */
	struct block *found;           /* used: for the owner's table of addresses */
	uint64_t streams;              /* others than the region's, a bit for each */
	struct marks marks;            /* limbo: until they are reached */
	bool marked;                   /* limbo: marks are queued, for the owner */
};

struct chunk {
	struct region *region;
	uint64_t va, bytes;
	struct block *first;
	uint32_t live, limbo;         /* blocks in use and in limbo */
	struct chunk *before, *after; /* in the region */
};

struct region {
	enum tensor_class class;
	uint32_t job, stream;
	struct chunk *chunks;
	uint64_t used_bytes;
	struct block *bins[REGION_BINS];
	uint64_t filled[REGION_BINS / 64]; /* bins that are not empty */
	struct region *next;               /* for the owner */
};

/* Adds a chunk as one free block. -ENOMEM. */
RLV_MUST_CHECK int region_add(struct region *region, struct chunk *chunk, uint64_t va,
			      uint64_t bytes);
/* Takes a chunk without used blocks away, and all its blocks. */
void region_remove(struct chunk *chunk);

/* A used block of at least that many bytes. -EINVAL bytes 0 or too many, -EAGAIN no free block is
   large enough: add a chunk. -ENOMEM. */
RLV_MUST_CHECK int region_alloc(struct region *region, uint64_t bytes, struct block **block_out);

/* USED -> LIMBO, if other streams used it, else FREE; a free block is merged with its neighbours,
   so that `block` may be gone. */
void region_free(struct block *block);
/* LIMBO -> FREE. */
void region_end_limbo(struct block *block);

/* Walks a region. -EPROTO: blocks do not tile it, neighbours are not merged, or counts differ. */
RLV_MUST_CHECK int region_check(const struct region *region);

/* "persistent", "iteration", "ephemeral", "staging". Static. */
const char *tensor_class_name(enum tensor_class class);

#endif

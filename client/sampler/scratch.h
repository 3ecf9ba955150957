/*
 * scratch.h - arrays of one draw, by item.
 */
#ifndef RLV_CLIENT_SAMPLER_SCRATCH_H
#define RLV_CLIENT_SAMPLER_SCRATCH_H

#include <stdint.h>

#include "ds/sumtree/sumtree.h"

#include "base/mem/mem.h"
#include "base/error.h"

/* A draw in progress; every array is batch_size long. */
struct draw_scratch {
	uint32_t *shard; /* number of the tree while drawn, then of the shard */
	uint32_t *slot;
	uint64_t *word;
	double *probability;
	uint32_t *at;           /* position in the batch; it has one entry more */
	const uint8_t **window; /* first row */
	uint64_t *again;        /* leaf as read the second time */
	struct leaf_op *ops;
	uint64_t *order; /* update: (shard, slot, index) packed for sorting */
	uint64_t *spare;
	uint64_t *quanta;
	struct mem mem; /* of all of them */
};

/* Allocates all arrays, of n items each. -ENOMEM; fini may be called after an error. */
RLV_MUST_CHECK int scratch_init(struct draw_scratch *s, size_t n);
void scratch_fini(struct draw_scratch *s);

#endif

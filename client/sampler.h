/*
 * Sampler: what sampler.c (open, close), sample.c (draw, gather, verify), batch.c (buffers) and
 * update.c (priorities) share.
 */
#ifndef RLV_CLIENT_SAMPLER_H
#define RLV_CLIENT_SAMPLER_H

#include "client/admission.h"
#include "client/grove.h"

#include "ds/change.h"
#include "ds/window.h"

#include "base/alloc.h"
#include "base/rng.h"

#define BATCH_OUTPUTS (RLV_MAX_ARRAYS + 1) /* and the policy versions */

/* A batch buffer: what the user sees, and how window_gather fills it. */
struct batch {
	struct rlv_batch pub; /* first: rlv_batch_release gets a pointer to it */
	bool held;
	struct rlv_array arrays[RLV_MAX_ARRAYS];
	char names[RLV_MAX_ARRAYS][RLV_NAME_BYTES + 8];
	struct window_output outputs[BATCH_OUTPUTS];
	uint32_t n_outputs;
	uint64_t *key;
	uint64_t *word; /* leaves as last seen: the first CAS of an update usually succeeds */
	double *probability;
	float *weight;
	float *priority;
	uint32_t *policy_version;
	void *memory; /* of all of its arrays */
	size_t bytes;
};

/* A draw in progress; every array is batch_size long. */
struct draw_scratch {
	uint32_t *shard; /* number of the tree while drawn, then of the shard */
	uint32_t *slot;
	uint64_t *word;
	double *probability;
	uint32_t *at;           /* position in the batch */
	const uint8_t **window; /* first row */
	uint64_t *again;        /* second look at the leaf */
	struct leaf_op *ops;
	uint64_t *order; /* update: (shard, slot, index) packed for sorting */
	uint64_t *spare;
	uint64_t *quanta;
};

struct rlv_sampler {
	struct handle h;
	const struct view_desc *view;
	uint32_t view_index;
	struct rlv_sampler_opts opts;
	struct alloc_hooks hooks; /* of batch buffers */
	struct rng rng;
	struct grove grove;
	bool ordered; /* fifo or lifo */
	struct admission admission;
	struct window_plan plan;
	struct batch *batches;
	struct batch *last; /* whose words an update may use */
	struct draw_scratch scratch;
	struct shard_change *changes; /* of an update or a take, one for each shard */
	uint32_t room;                /* of them */
	uint32_t newest_version;      /* policy version seen */
	uint64_t expired;             /* taken in this call, and too old to hand over */
	int64_t timeout_ns;           /* of the call */
	struct rlv_stats stats;
};

/* Makes the buffers of one batch. -ENOMEM. */
RLV_MUST_CHECK int batch_init(const struct rlv_sampler *sp, struct batch *batch);
void batch_fini(const struct rlv_sampler *sp, struct batch *batch);

/* A free buffer. -EBUSY: all are held. */
RLV_MUST_CHECK int batch_get(struct rlv_sampler *sp, struct batch **batch_out);

/*
 * Views that count their samples: takes the n drawn and verified items of the scratch; of an item
 * that somebody else had first `again` becomes 0. Cost: 1 phase, 2 with counts.
 */
RLV_MUST_CHECK int sampler_take(struct rlv_sampler *sp, uint32_t n);

/*
 * Sorts n (shard, slot) pairs given as keys into order[]: ascending, and of equal ones the one
 * given last comes last. order[i] = index of the i-th. Cost: one pass if they are sorted already.
 */
void sampler_order(struct rlv_sampler *sp, const uint64_t *keys, uint32_t n);

#endif

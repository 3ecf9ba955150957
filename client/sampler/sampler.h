/*
 * Sampler: state shared by sampler.c (open, close), sample.c (the call), round.c (draw, gather and
 * verify in place), async_sample.c (the same over a wire), prefetch.c (prefetched batches), batch.c
 * (buffers), consume.c (consuming views) and update.c (priorities).
 */
#ifndef RLV_CLIENT_SAMPLER_SAMPLER_H
#define RLV_CLIENT_SAMPLER_SAMPLER_H

#include "client/table/admission.h"
#include "client/sampler/async_sample.h"
#include "client/sampler/shard_trees.h"
#include "client/sampler/scratch.h"

#include "ds/replay/change.h"
#include "ds/window/window.h"

#include "base/mem/alloc.h"
#include "base/rng.h"

#define BATCH_OUTPUTS (RLV_MAX_ARRAYS + 1) /* and the policy versions */

/* A batch buffer: the batch as the user sees it, and the arrays that window_gather fills. */
struct batch {
	struct rlv_batch pub; /* first: rlv_batch_release gets a pointer to it */
	bool held;            /* by the user */
	bool prefetched;      /* by a prefetch in progress */
	uint32_t n_step;      /* n_step of its array descriptions */
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

/*
 * Head slots of a block: their window would begin before the block, so they hold no item. slot /
 * block has a fraction below (window - 1) / block; as in Lemire et al., Faster remainder by direct
 * computation, it is the low word of slot recip, exact for slots and blocks below 2^32.
 */
struct block_head {
	uint64_t recip; /* 2^64 / block, rounded up */
	uint64_t limit; /* lower fractions belong to the head */
};

struct rlv_sampler {
	struct handle h;
	const struct view_desc *view;
	uint32_t view_index;
	struct rlv_sampler_opts opts; /* as opened */
	double beta;                  /* for later samples; n_step and gamma are the plan's */
	struct alloc_hooks hooks;     /* of batch buffers */
	struct rng rng;
	struct shard_trees trees;
	bool ordered;                    /* fifo or lifo */
	bool reads_rows;                 /* else only leaves: batches have columns ... */
	bool columns[TABLE_MAX_COLUMNS]; /* ... these */
	struct admission admission;
	struct window_plan plan;
	struct block_head head;
	struct batch **batches;
	struct batch *last; /* its leaf words may serve an update */
	uint32_t n_batches;
	struct draw_scratch scratch;
	struct async_sample now;               /* of the call in progress, into scratch */
	struct async_sample *prefetched;       /* opts.prefetch of them, a ring */
	uint32_t first_prefetch, n_prefetched; /* under way, or done and not handed over */
	struct shard_change *changes;          /* of an update or consumption, one for each shard */
	uint32_t room;                         /* of them */
	uint32_t newest_version;               /* policy version seen */
	uint64_t expired;                      /* consumed in this call, but too old to return */
	struct rlv_stats stats;
};

/* -------- one round: draw, gather and verify n items -------- */

/* Request of a round; the positions of its items are in scratch.at. */
struct round {
	struct batch *batch;
	uint32_t n;
	bool stratified;
	uint32_t found;    /* out: items found, at most n */
	uint64_t began_ns; /* out */
};

/*
 * Fills rows of the batch, and the scratch: of item i again[i] is its leaf after its rows were copied,
 * 0 if they were torn. Errors: -ENODATA, those of the transport.
 */
RLV_MUST_CHECK int sampler_round(struct rlv_sampler *sp, struct round *round);

/* Options of a prioritized draw; it writes each tree's item count to sizes_out. */
struct draw_opts sampler_draw_opts(const struct rlv_sampler *sp, bool stratified,
				   int64_t *sizes_out);

/* Draws the next n items of an ordered view, or all that exist, and their probabilities. */
RLV_MUST_CHECK int sampler_draw_in_order(struct rlv_sampler *sp, struct draw_scratch *s,
					 struct round *round);

/*
 * Maps the tree numbers of a draw to shard numbers and stores its sizes. A drawn head slot of a
 * block is not an item, whatever its leaf says: it becomes leaf 0 of a readable slot.
 */
void sampler_name_draws(struct rlv_sampler *sp, struct draw_scratch *s, uint32_t n);

static inline uint32_t sampler_window_bytes(const struct rlv_sampler *sp)
{
	return (sp->plan.stack + sp->plan.future) * sp->plan.row_bytes;
}

/* Offset of item i's window in its rows region. */
uint64_t sampler_window_off(const struct rlv_sampler *sp, const struct draw_scratch *s, uint32_t i);
uint64_t sampler_leaf_off(const struct rlv_sampler *sp, const struct draw_scratch *s, uint32_t i);

/* Copies the rows that s->window points to into the batch. */
void sampler_copy_rows(struct rlv_sampler *sp, const struct draw_scratch *s, struct batch *batch,
		       uint32_t first, uint32_t n);

/* Accepts leaves without a second read; valid if no row was read in between. */
void sampler_trust_leaves(struct draw_scratch *s, uint32_t n);

/* Reads the leaves of addressable shards again. */
void sampler_look_in_place(struct rlv_sampler *sp, struct draw_scratch *s, uint32_t first,
			   uint32_t n);

/* -------- batches drawn ahead -------- */

/*
 * Uses the oldest prefetched batch of n for this call: waits until it is done and makes its scratch
 * the sampler's. False: none exists, or it failed; the call then draws itself.
 */
bool prefetch_hand_over(struct rlv_sampler *sp, struct round *round);

/* The buffer that prefetch_hand_over will fill; NULL = none. Discards batches of another size. */
struct batch *prefetch_buffer(struct rlv_sampler *sp, uint32_t n);

/* Starts prefetches of n items up to opts.prefetch. Errors are dropped: the next call meets
   them. */
void prefetch_refill(struct rlv_sampler *sp, uint32_t n);

/* Starts the next phase of batches whose reads completed; how many batches are done. Cost: local. */
uint32_t prefetch_advance(struct rlv_sampler *sp);

/* Drops all prefetched batches: waits for reads in flight. */
void prefetch_cancel(struct rlv_sampler *sp);

RLV_MUST_CHECK int prefetch_init(struct rlv_sampler *sp);
void prefetch_fini(struct rlv_sampler *sp);

/* Makes one more batch. -ENOMEM. */
RLV_MUST_CHECK int batch_add(struct rlv_sampler *sp);
void batch_free_all(struct rlv_sampler *sp);

/*
 * Finds a buffer that is neither held nor prefetched, described for the plan's n_step; allocates
 * one if none is free and opts.batches is RLV_BATCHES_ANY. NULL: none.
 */
struct batch *batch_find(struct rlv_sampler *sp);

/* A buffer for a sample of n: of a batch that is drawn ahead, or a free one. -EBUSY: all are held. */
RLV_MUST_CHECK int batch_get(struct rlv_sampler *sp, uint32_t n, struct batch **batch_out);

/* The shortest time in which a generation can repeat (rule 1h). */
uint64_t sampler_wrap_ns(const struct table_desc *desc);

/*
 * Consumes the n drawn and verified items of the scratch, for views that count samples. If another
 * client consumed an item first, its `again` becomes 0. Cost: 1 phase, 2 with counts.
 */
RLV_MUST_CHECK int sampler_consume_found(struct rlv_sampler *sp, uint32_t n);

/*
 * Sorts n (shard, slot) pairs given as keys into order[]: ascending, and of equal ones the one
 * given last comes last. order[i] = index of the i-th. Cost: one pass if they are sorted already.
 */
void sampler_order(struct rlv_sampler *sp, const uint64_t *keys, uint32_t n);

#endif

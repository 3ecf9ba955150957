/*
 * Sampler: state shared by sampler.c (open, close), sample.c (the call), round.c (draw, gather and
 * verify in place), async_sample.c (the same over a wire), prefetch.c (prefetched batches), batch.c
 * (buffers), consume.c (consuming views), update.c (priorities), readback.c (those that a device has),
 * apart.c (large columns that come to a device by themselves), scan.c and gather.c (items that are read, not drawn).
 */
#ifndef RLV_CLIENT_SAMPLER_SAMPLER_H
#define RLV_CLIENT_SAMPLER_SAMPLER_H

#include "relive/ahead.h"

#include "client/table/admission.h"
#include "client/landing/landing.h"
#include "client/sampler/apart.h"
#include "client/sampler/async_sample.h"
#include "client/sampler/shard_trees.h"
#include "client/sampler/readback.h"
#include "client/sampler/scan.h"
#include "client/sampler/scratch.h"

#include "ds/replay/change.h"
#include "ds/window/window.h"

#include "base/mem/alloc.h"
#include "base/rng.h"

enum { BATCH_OUTPUTS = RLV_MAX_ARRAYS + 1 }; /* and the policy versions */

/* A batch buffer: the batch as the user sees it, and the arrays that window_gather fills. */
struct batch {
	struct rlv_batch pub; /* first: rlv_batch_release gets a pointer to it */
	bool held;            /* by the user */
	bool prefetched;      /* by a prefetch in progress */
	bool touched;         /* used before */
	uint32_t n_step;      /* n_step of its array descriptions */
	struct rlv_array arrays[RLV_MAX_ARRAYS];
	char names[RLV_MAX_ARRAYS][RLV_NAME_BYTES + 8];
	struct window_output outputs[BATCH_OUTPUTS];
	uint32_t n_outputs;
	uint32_t n_near; /* of them, first; those behind are large, and the device's to gather */
	struct window_value *values; /* room for lists of those */
	bool is_apart; /* this batch comes so: the host has nothing of the large ones */
	struct landing_weights weights; /* if the device computes them */
	struct landing_side side;       /* if by READs */
	uint32_t path;                  /* enum rlv_landing_path that it came last; 0 = none */
	size_t near_bytes;              /* of the memory: all but large arrays and lists */
	uint64_t *key;
	uint64_t *word; /* leaves as last seen: the first CAS of an update usually succeeds */
	double *probability;
	float *weight;
	float *priority;
	uint32_t *policy_version;
	uint32_t *times_sampled; /* NULL: the view does not count them */
	bool counted;            /* times_sampled is filled */
	void *memory;            /* of all of its arrays */
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
	uint32_t ahead;               /* enum rlv_ahead: for later samples */
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
	uint32_t n_batches, n_touched;
	struct draw_scratch scratch;
	struct async_sample now;               /* of the call in progress, into scratch */
	struct async_sample *prefetched;       /* opts.prefetch of them, a ring */
	uint32_t first_prefetch, n_prefetched; /* under way, or done and not handed over */
	struct shard_change *changes;          /* of an update or consumption, one for each shard */
	uint32_t room;                         /* of them */
	uint32_t newest_version;               /* policy version seen */
	uint64_t expired;                      /* consumed in this call, but too old to return */
	struct readbacks readbacks;            /* updates from the device */
	struct apart apart;
	struct scan scan;
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
 * Draws round->n items and waits for them: copies their rows into the batch and fills the scratch;
 * again[i] is the leaf of item i after its rows were copied, 0 if they were torn. Errors: -ENODATA
 * (the view has no items), those of the transport.
 */
RLV_MUST_CHECK int sampler_round(struct rlv_sampler *sp, struct round *round);

/* Gathers and verifies the round->found items whose shard, slot, word and `at` are in the scratch, as
   sampler_round does after its draw. */
RLV_MUST_CHECK int sampler_gather_round(struct rlv_sampler *sp, struct round *round);

/*
 * True if both reads of each leaf show the same generation and the second still shows an item:
 * neither its generation nor its priority is 0.
 */
bool sampler_items_hold(const uint64_t *word, const uint64_t *again, uint32_t n);

/* Options of a draw from the trees, which writes the item count of each tree to sizes_out. */
struct draw_opts sampler_draw_opts(const struct rlv_sampler *sp, bool stratified,
				   int64_t *sizes_out);

/* Finds the first round->n items of a FIFO or LIFO view, or all that exist: round->found. Each
   has probability 1. -ENODATA: the view has no items. */
RLV_MUST_CHECK int sampler_draw_in_order(struct rlv_sampler *sp, struct draw_scratch *s,
					 struct round *round);

/*
 * Maps the tree numbers of a draw, s->shard[0, n), to shard numbers, and copies the draw's sizes to
 * sp->trees.items, by shard. A drawn head slot of a block is not an item, whatever its leaf says:
 * it becomes a readable slot, its word 0.
 */
void sampler_name_draws(struct rlv_sampler *sp, struct draw_scratch *s, uint32_t n);

/* Bytes of an item's window of rows. */
uint32_t sampler_window_bytes(const struct rlv_sampler *sp);

/* Byte offset of the first row of item i's window in the rows region of its shard. */
uint64_t sampler_window_off(const struct rlv_sampler *sp, const struct draw_scratch *s, uint32_t i);
uint64_t sampler_leaf_off(const struct rlv_sampler *sp, const struct draw_scratch *s, uint32_t i);

/* Sets window[i] of items [first, first + n), in addressable shards. */
void sampler_find_windows(struct rlv_sampler *sp, uint32_t first, uint32_t n);

/* Copies the columns of the windows s->window[first, first + n) to positions s->at[..] of the
   batch. */
void sampler_copy_rows(struct rlv_sampler *sp, const struct draw_scratch *s, struct batch *batch,
		       uint32_t first, uint32_t n);

/* Sets again[i] to word[i], as if the leaves were read twice; for samples that read no rows. */
void sampler_trust_leaves(struct draw_scratch *s, uint32_t n);

/* Reads the leaves of items [first, first + n), in addressable shards, a second time: into
   s->again. */
void sampler_look_in_place(struct rlv_sampler *sp, struct draw_scratch *s, uint32_t first,
			   uint32_t n);

/* -------- batches drawn ahead -------- */

/*
 * Uses the oldest prefetched batch for this call, if it is round->batch with round->n items: waits
 * until it is done and makes its scratch the sampler's. False: it is another one or none, or it
 * failed; the call then draws itself.
 */
bool prefetch_hand_over(struct rlv_sampler *sp, struct round *round);

/* The buffer of the oldest prefetched batch; NULL = none. If that batch does not have n items,
   all prefetched batches are dropped. */
struct batch *prefetch_buffer(struct rlv_sampler *sp, uint32_t n);

/*
 * Starts prefetches of n items each, until there are opts.prefetch or no buffer is free; none for
 * addressable shards, or FIFO and LIFO views. Errors are only logged: the next call meets them.
 */
void prefetch_refill(struct rlv_sampler *sp, uint32_t n);

/* Starts the next phase of prefetched batches whose reads completed; returns how many batches
   are done. After an error all are dropped: 0. Cost: local. */
uint32_t prefetch_advance(struct rlv_sampler *sp);

/* Drops all prefetched batches, after waiting for their reads in flight. */
void prefetch_cancel(struct rlv_sampler *sp);

/* Allocates what prefetches need, where there can be some and it has not been done. -ENOMEM. */
RLV_MUST_CHECK int prefetch_prepare(struct rlv_sampler *sp);
void prefetch_fini(struct rlv_sampler *sp);

/* Allocates one more batch buffer, in sp->batches. -ENOMEM. */
RLV_MUST_CHECK int batch_add(struct rlv_sampler *sp);
void batch_free_all(struct rlv_sampler *sp);

/*
 * Finds a buffer that is neither held nor prefetched, described for the plan's n_step; allocates
 * one if none is free and opts.batches is RLV_BATCHES_ANY. NULL: none.
 */
struct batch *batch_find(struct rlv_sampler *sp);

/* Brings the batch, of which pub.n items are filled, to the device of opts.dest, if there is one. */
RLV_MUST_CHECK int batch_land(const struct rlv_sampler *sp, struct batch *batch);

/* True: the device of opts.dest computes the weights. */
static inline bool sampler_weighs_apart(const struct rlv_sampler *sp)
{
	return sp->opts.dest && landing_weighs(sp->opts.dest);
}

/* Closes the gaps at the positions in scratch.at[0, left) in every array of the batch, which has n. */
void batch_close_gaps(struct rlv_sampler *sp, struct batch *batch, uint32_t n, uint32_t left);

/* Sets priorities and weights of the first n items, from their words and probabilities, and the shapes; weights that
   the device computes when it lands. */
void batch_complete(struct rlv_sampler *sp, struct batch *batch, uint32_t n);

/* Gives a buffer for a sample of n: that of the oldest prefetched batch (not with RLV_AHEAD_LEAVE), or a free one. -EBUSY:
   the user holds opts.batches of them, or none is free; -ENOMEM with RLV_BATCHES_ANY; -EAGAIN: the
   device of opts.dest still uses all that were released. n 0: a free one; prefetched batches are dropped. */
RLV_MUST_CHECK int batch_get(struct rlv_sampler *sp, uint32_t n, struct batch **batch_out);

/* The shortest time in which the generation of a leaf can repeat: all slots rewritten at 10 ns a
   row until generations wrap (rule 1h). */
uint64_t sampler_wrap_ns(const struct table_desc *desc);

/*
 * Consumes the n drawn and verified items of the scratch, for views with max_times_sampled. An item
 * that another client took first, that was drawn twice, or whose shard is lost gets `again` 0.
 * Cost: 1 phase, 2 with counts.
 */
RLV_MUST_CHECK int sampler_consume_found(struct rlv_sampler *sp, uint32_t n);

/* -EINVAL, which names the index: a key that is invalid or of another table. */
RLV_MUST_CHECK int sampler_check_keys(const struct rlv_sampler *sp, const uint64_t *keys,
				      uint32_t n);

/* Sorts n keys by (shard, slot), ascending; of equal ones the one given last comes last. Result:
   sp->scratch.order[i] = index of the i-th in keys. Cost: one pass if they are sorted already. */
void sampler_order(struct rlv_sampler *sp, const uint64_t *keys, uint32_t n);

#endif

/*
 * Async sample: one round of a sample over a wire as a sequence of phases, one in progress at a
 * time. The caller waits for a phase, or polls it.
 *
 *   start --> draw: tops, levels --> rows --> leaves again --> done
 *             (ds/sumtree/steps.h)   32 MiB a phase    (not with RLV_VERIFY_CRC)
 *
 * Rows of a phase are posted in lots of about a MiB. Each is copied when it has come, while those behind it do.
 *
 * A few small rows and their leaves are posted together, the leaves behind a fence: two phases that
 * are waited for once.
 *
 * Large values that come to a device apart (client/sampler/apart.h) are a phase more, between rows and leaves.
 *
 * It has epochs, sizes and random numbers of its own, so that async samples do not depend on each
 * other. It reads into its own memory: no request is in progress once it is idle or done. It
 * borrows trees and shards of its sampler, so it is cancelled before these change.
 *
 * Thread: the sampler's.
 */
#ifndef RLV_CLIENT_SAMPLER_ASYNC_SAMPLE_H
#define RLV_CLIENT_SAMPLER_ASYNC_SAMPLE_H

#include <stdint.h>

#include "client/sampler/scratch.h"

#include "ds/sumtree/steps.h"

#include "transport/transport.h"
#include "transport/wait_set.h"

#include "base/error.h"
#include "base/rng.h"

struct rlv_sampler;
struct round;
struct batch;

#define ASYNC_LOTS 33 /* of the rows of a phase, at most */

enum async_stage {
	ASYNC_IDLE,
	ASYNC_DRAW,
	ASYNC_ROWS,
	ASYNC_NEAR, /* rows without large values */
	ASYNC_FAR,  /* these, to a device */
	ASYNC_LOOK,
	ASYNC_BOTH, /* rows, then leaves again */
	ASYNC_DONE,
};

struct async_sample {
	enum async_stage stage;
	struct draw_scratch *s;  /* scratch that it fills */
	struct draw_scratch own; /* scratch of a prefetched round */
	struct batch *batch;
	uint32_t n, found;
	bool in_order; /* items are of neighbouring slots, often */
	uint64_t began_ns;
	struct rng rng;
	struct rng *draws; /* its own generator, or the sampler's */
	struct forest forest;
	uint32_t room_trees;
	int64_t *sizes;
	struct sumtree_steps *steps;
	struct wait_set reads;
	struct transport_io *io;
	size_t room_io;
	struct mem rows;             /* read, to be copied into the batch */
	uint32_t rows_first, rows_n; /* items whose rows are being read */
	uint32_t lot_items;          /* of rows_n: in lots of so many */
	uint32_t lots, lots_copied;
	uint32_t lot_reads[ASYNC_LOTS]; /* for wait_set_wait_first: a lot and those before it */
};

/* Initializes a zeroed struct. -ENOMEM; fini may be called after an error. */
RLV_MUST_CHECK int async_sample_init(struct async_sample *async);
/* Frees the memory of an async sample, which must be idle or done, and zeroes it. */
void async_sample_fini(struct async_sample *async);

/*
 * Starts one round of draw, gather and verify; async->s->at[i], set by the caller, is the position
 * of item i in the batch. After an error the async sample is idle. -ENOMEM: memory is allocated
 * only for a sample that is larger than all earlier ones. Cost: none that is waited for; for FIFO
 * and LIFO views that of fifo_scan_find.
 */
RLV_MUST_CHECK int async_sample_start(struct rlv_sampler *sp, struct async_sample *async,
				      const struct round *round);

/* Starts the gather and verification of the round->found items in async->s, as async_sample_start does after
   its draw. */
RLV_MUST_CHECK int async_sample_gather(struct rlv_sampler *sp, struct async_sample *async,
				       const struct round *round);

/* Makes room in async->io for n requests of the caller, while it is idle or done. -ENOMEM. */
RLV_MUST_CHECK int async_sample_room(struct async_sample *async, size_t n);

/* Starts the next phases, as long as their reads have completed; does not wait. 0: the sample is
   done. -EAGAIN: not yet. After an error it is idle. */
RLV_MUST_CHECK int async_sample_look(struct rlv_sampler *sp, struct async_sample *async);

/* Waits for the phase in progress and starts the next one. Returns as async_sample_look. */
RLV_MUST_CHECK int async_sample_wait(struct rlv_sampler *sp, struct async_sample *async);

/* Waits for the phase in progress, then makes the sample idle; its items are dropped. */
void async_sample_cancel(struct async_sample *async);

#endif

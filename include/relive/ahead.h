/*
 * Prefetched batches (rlv_sampler_opts.prefetch) beside batches that are drawn in the call: which of them a
 * sample returns, and how many there are.
 *
 * Conventions and errors are as in relive/relive.h. Thread: the sampler's owner.
 */
#ifndef RELIVE_AHEAD_H
#define RELIVE_AHEAD_H

#include "relive/relive.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a sample does with prefetched batches. */
enum rlv_ahead {
	RLV_AHEAD_REFILL, /* returns the oldest, then starts others, up to opts.prefetch; at first */
	RLV_AHEAD_DRAIN,  /* returns the oldest, and starts none */
	RLV_AHEAD_LEAVE, /* draws in the call, n of any size, and leaves them for later samples; drops them if no
			     other buffer is free */
};

/* Sets what later samples do with prefetched batches. -EINVAL: sampler is NULL, or ahead not an rlv_ahead; nothing
   changes. Cost: local. */
RLV_CHECKED int rlv_sampler_set_ahead(struct rlv_sampler *sampler, uint32_t ahead);

/* Number of prefetched batches, in progress or done: 0 for local memory, FIFO and LIFO views, and after an error
   of one of them. NULL: 0. Cost: local. */
RLV_API uint32_t rlv_sampler_ahead(const struct rlv_sampler *sampler);

#ifdef __cplusplus
}
#endif

#endif

/*
 * Priority: TD errors to stored priorities, and importance weights.
 *
 *   stored   quanta of 1/scale: ceil((|td| + eps)^alpha * scale), 1..max_prio; never 0, which
 *            means "no item here"
 *   weight   (N P)^-beta, divided by the batch's maximum or not (Schaul et al., "Prioritized
 *            experience replay", ICLR 2016, section 3.4)
 *
 * Vector code by cpu_level(), the same source for each, so that results are bit-identical.
 * Thread: any.
 */
#ifndef RLV_DS_REPLAY_PRIORITY_H
#define RLV_DS_REPLAY_PRIORITY_H

#include "ds/replay/shard.h"

/*
 * Checks n values before anything else: -EINVAL names the first that is NaN, infinite or negative.
 */
RLV_MUST_CHECK int priority_check(const float *values, size_t n);

/* Quanta of n checked TD errors; *clamped += those beyond max_prio. */
void priority_from_td(const struct view_desc *view, const float *td, size_t n, uint64_t *quanta_out,
		      uint64_t *clamped);

/* Quanta of n checked priorities that are p^alpha already. */
void priority_from_value(const struct view_desc *view, const float *priorities, size_t n,
			 uint64_t *quanta_out, uint64_t *clamped);

/* As stored, back to p^alpha. */
void priority_to_value(const struct view_desc *view, const uint64_t *leaf_words, size_t n,
		       float *priorities_out);

/* One TD error >= 0, for the actor's path. */
uint64_t priority_quanta_one(const struct view_desc *view, double td, uint64_t *clamped);

/*
 * weights_out[i] = (items * probability[i])^-beta; items 0: divided by the largest of the batch,
 * where their number cancels. Every probability is > 0.
 */
void priority_weights(const double *probability, size_t n, double items, double beta,
		      float *weights_out);

/* Where the running maximum of a view is in the tree region. */
uint64_t priority_max_off(const struct shard *shard, uint32_t view);

/* The view's running maximum in one shard, in quanta; 0 = no item yet. In place if addressable. */
RLV_MUST_CHECK int priority_max_read(const struct shard *shard, uint32_t view,
				     uint64_t *quanta_out);

/*
 * Raises it to at least quanta. Cost: 0 RT when it is high enough already as read in place, else 2.
 */
RLV_MUST_CHECK int priority_max_raise(const struct shard *shard, uint32_t view, uint64_t quanta);

#endif

/*
 * Priority: converts TD errors to stored priorities, and computes importance weights.
 *
 *   stored   quanta of 1/scale: ceil((|td| + eps)^alpha * scale), 1..max_prio; never 0, which
 *            means "no item here"
 *   weight   (N P)^-beta, optionally divided by the maximum of the batch (Schaul et al.,
 *            "Prioritized experience replay", ICLR 2016, section 3.4)
 *
 * Vector code is chosen by cpu_level() and compiled from one source, so results are
 * bit-identical.
 * Thread: any.
 */
#ifndef RLV_DS_REPLAY_PRIORITY_H
#define RLV_DS_REPLAY_PRIORITY_H

#include "ds/replay/shard.h"

/* Checks n values. -EINVAL names the first that is NaN, infinite or negative. */
RLV_MUST_CHECK int priority_check(const float *values, size_t n);

/*
 * Converts n checked TD errors to quanta: ceil((td + eps)^alpha * scale), 1 to max_prio; *clamped
 * += the number beyond max_prio.
 */
void priority_from_td(const struct view_desc *view, const float *td, size_t n, uint64_t *quanta_out,
		      uint64_t *clamped);

/*
 * Converts n checked priorities that are p^alpha already to quanta, 1 to max_prio; *clamped += the
 * number beyond max_prio.
 */
void priority_from_value(const struct view_desc *view, const float *priorities, size_t n,
			 uint64_t *quanta_out, uint64_t *clamped);

/* Converts the priorities in n leaf words, in quanta, back to p^alpha. */
void priority_to_value(const struct view_desc *view, const uint64_t *leaf_words, size_t n,
		       float *priorities_out);

/*
 * Returns the quanta of one TD error >= 0, as priority_from_td; *clamped += 1 if beyond max_prio.
 * For the actor.
 */
uint64_t priority_quanta_one(const struct view_desc *view, double td, uint64_t *clamped);

/*
 * weights_out[i] = (items * probability[i])^-beta. items 0: divided by the largest of the batch,
 * where the number of items cancels. Every probability is > 0.
 */
void priority_weights(const double *probability, size_t n, double items, double beta,
		      float *weights_out);

/* What priority_weights multiplies probabilities by. */
double priority_weights_factor(const double *probability, size_t n, double items);

/* Offset of the running maximum of a view, in the tree region. */
uint64_t priority_max_off(const struct shard *shard, uint32_t view);

/*
 * Reads the running maximum of a view in one shard, in quanta; a new shard has that of priority 1.
 */
RLV_MUST_CHECK int priority_max_read(const struct shard *shard, uint32_t view,
				     uint64_t *quanta_out);

/*
 * Raises the running maximum of a view in one shard to at least quanta. Cost: 0 RT if high enough
 * as read in place, else 2.
 */
RLV_MUST_CHECK int priority_max_raise(const struct shard *shard, uint32_t view, uint64_t quanta);

#endif

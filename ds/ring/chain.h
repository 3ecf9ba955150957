/*
 * chain.h - private to ds/ring*.c: the steps of a claim as chains.
 */
#ifndef RLV_DS_RING_CHAIN_H
#define RLV_DS_RING_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/ring/ring.h"

/* A queue never overwrites what nobody has taken. */
static inline bool ring_view_is_queue(const struct view_desc *view)
{
	return view->max_times_sampled == 1 && view->limit.max_diff != INT64_MAX;
}

/*
 * CAS of the block's header from the word seen, and in the same phase the leaves and counts of all
 * views as they are. With a queue the leaves come first: -EAGAIN if one holds an item. *old_out:
 * the header found. -EIO: the answer was lost.
 */
RLV_MUST_CHECK int ring_open_chained(struct block *blk, uint64_t seen, uint64_t *old_out);

/* CAS of all leaves of all views from what was read, and of the counts. 1 phase. */
RLV_MUST_CHECK int ring_claim_chained(struct block *blk);

/* Posts the close: with the chain of the call in progress, or alone. */
RLV_MUST_CHECK int ring_close_chained(struct block *blk);

#endif

/*
 * chain.h - private to ds/ring/: the steps of a claim as chains.
 */
#ifndef RLV_DS_RING_CHAIN_H
#define RLV_DS_RING_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/ring/ring.h"

/* True if the view is a queue: its items are never overwritten before they are consumed. */
static inline bool ring_view_is_queue(const struct view_desc *view)
{
	return view->max_times_sampled == 1 && view->limit.max_diff != INT64_MAX;
}

/*
 * CAS of the block's header from the word seen; the same phase reads the leaves and counts of
 * all views. With a queue the leaves are read in a phase before: -EAGAIN if one holds an item.
 * *old_out: the header found. -EIO: the answer was lost.
 */
RLV_MUST_CHECK int ring_open_chained(struct block *blk, uint64_t seen, uint64_t *old_out);

/* CAS of all leaves of all views from the words read, and of the counts. Cost: 1 phase. */
RLV_MUST_CHECK int ring_claim_chained(struct block *blk);

/* Posts the close: in the chain of the call in progress, or in a chain of its own. */
RLV_MUST_CHECK int ring_close_chained(struct block *blk);

#endif

/*
 * Handle: what a writer and a sampler have in common: a client slot, connections and shards of
 * their own, and an access to each shard.
 */
#ifndef RLV_CLIENT_HANDLE_H
#define RLV_CLIENT_HANDLE_H

#include "client/store.h"

struct handle {
	struct rlv_table *table;
	const struct table_desc *desc; /* shard 0's */
	struct node_set nodes;
	struct access *access; /* one for each shard */
	uint32_t n_shards;
	uint32_t owner; /* 0 = none */
	const struct clock *clock;
};

/* view_mask: views whose leaves this handle changes. -ENOSPC: every client slot is taken. */
RLV_MUST_CHECK int handle_open(struct handle *h, struct rlv_table *table, uint32_t view_mask,
			       const struct tree_deltas_opts *defer);

/* Gives the slot back. The caller has flushed. The first error, but always closes. */
RLV_MUST_CHECK int handle_close(struct handle *h);

/*
 * First line of every call on a handle: -ECHILD in a forked child, -ESTALE dropped, -EHOSTDOWN.
 * Cost: one load for each shard.
 */
RLV_MUST_CHECK int handle_check(const struct handle *h);

/*
 * Passes the result of a change on. A lost answer (-EIO) may be a change that the sums never hear
 * of: the shard is marked, and the next rebuild repairs it.
 */
RLV_MUST_CHECK int handle_failed(struct access *acc, int error);

/* Sleeps before another look at a condition that others change: 20 us at first, 1 ms at last. */
void handle_backoff(const struct handle *h, uint32_t *round, uint64_t deadline_ns);

/* Fills the transport's part of the counters. */
void handle_stats(const struct handle *h, struct rlv_stats *stats);

#endif

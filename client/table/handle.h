/*
 * Handle: what a writer and a sampler have in common: a client slot, connections and shards of
 * their own, and an access to each shard that is open.
 *
 * A call begins with handle_begin, which sets its one deadline: nothing that the call does after
 * waits longer. Where one of its steps fails, handle_recover says whether a node
 * is to blame: then its shards are closed, and the step is made again over the rest. A shard that
 * comes back is joined with the slot that we have there; if that is not ours any more, the handle
 * takes another slot in all of them (a fenced client is a new one).
 */
#ifndef RLV_CLIENT_TABLE_HANDLE_H
#define RLV_CLIENT_TABLE_HANDLE_H

#include "client/store/store.h"

struct handle;

/* What a writer or sampler does when shards come and go. */
struct handle_user {
	/* The shard's access ends here: let go of blocks in it. Addressable rows can be read.
	   NULL = there are none. */
	void (*leave)(struct handle *h, uint32_t shard);
	/* Open shards, the control shard or the slot changed: what was derived is made anew. */
	int (*moved)(struct handle *h);
};

struct handle {
	struct rlv_table *table;
	const struct table_desc *desc; /* shard 0's */
	struct node_set nodes;
	struct access **access; /* by shard; NULL where it is not open */
	uint32_t n_access;
	struct meta_slot slot; /* owner 0 = none: fenced, or a reader */
	uint32_t streams;      /* blocks that it may hold at once */
	bool reader;           /* has no slot, and changes nothing */
	bool fenced;           /* the slot is not ours any more */
	enum shard_access access_kind;
	uint32_t view_mask;
	struct tree_deltas_opts defer;
	const struct handle_user *user;
	uint64_t version;   /* of nodes, that `moved` was told of */
	uint64_t lost;      /* shards that became unreachable */
	uint64_t warned_ns; /* of a long wait, last */
	uint64_t wait_ns;   /* until then the call in progress waits for what others do */
	struct meta_watch watch;
	const struct clock *clock;
};

struct handle_opts {
	uint32_t view_mask; /* views whose leaves this handle changes */
	uint32_t streams;   /* blocks that it may hold at once: of a writer */
	bool reader;        /* takes no slot */
	struct tree_deltas_opts defer;
	const struct handle_user *user;
};

/* h is where it will stay. -ENOSPC: every client slot is taken, or streams (max_writers). */
RLV_MUST_CHECK int handle_open(struct handle *h, struct rlv_table *table,
			       const struct handle_opts *opts);

/*
 * Gives the slot back. error: what the caller, who has flushed, has come to so far; it is returned with
 * its words, else the first error of closing. Always closes.
 */
RLV_MUST_CHECK int handle_close(struct handle *h, int error);

/*
 * First line of every call on a handle, which may take timeout_ns; with 0 it waits for nobody, and for
 * nodes at most as long as control calls do. Answers as handle_enter.
 */
RLV_MUST_CHECK int handle_begin(struct handle *h, int64_t timeout_ns);

/*
 * Goes on within a call: -ECHILD in a forked child, -ESTALE dropped, -EHOSTDOWN: no shard can be
 * reached now, -EOWNERDEAD: fenced, and there is no new slot yet. Cost: one load for each addressable
 * shard; while something is away, now and then a question to the server, of a small part of the
 * call's time.
 */
RLV_MUST_CHECK int handle_enter(struct handle *h);

/*
 * A step failed. 0: because of a node that is gone, and the rest goes on. Else an error: this one,
 * that of handle_enter, or -EHOSTDOWN: the call has no time left to go on.
 */
RLV_MUST_CHECK int handle_recover(struct handle *h, int error);

/* May an error of the two be another in a moment? */
bool handle_may_heal(const struct handle *h, int error);

/* Adds what the accesses hold of updates to the trees. Shards that break meanwhile are left out. */
RLV_MUST_CHECK int handle_flush(struct handle *h);

/*
 * Passes the result of a change on. A lost answer (-EIO) may be a change that the sums never hear
 * of: the shard is marked, and the next rebuild repairs it.
 */
RLV_MUST_CHECK int handle_failed(struct access *acc, int error);

/* Has the call no more time to wait for others? */
static inline bool handle_is_late(const struct handle *h)
{
	return deadline_expired(h->clock, h->wait_ns);
}

/* Sleeps before another look at a condition that others change: 20 us at first, 1 ms at last. */
struct backoff handle_backoff_init(void);
void handle_backoff(const struct handle *h, struct backoff *backoff);

/* Fills the transport's part of the counters. */
void handle_stats(const struct handle *h, struct rlv_stats *stats);

#endif

/*
 * Handle: what a writer and a sampler have in common: a client slot, connections and shards of
 * their own, and an access to each shard that is open. It owns every call's deadline, its waits, and
 * what is done when shards go and come; a verb of the API is one step that does its work or returns a
 * code.
 *
 *   handle_start   the call's one deadline: nothing that the call does later waits longer
 *   handle_run     enter -> step -> done
 *                    ^       | a node was lost: its shards are closed, those that are back are joined
 *                    |       | -EAGAIN, -ENODATA, or nothing can be reached now: waits, with a
 *                    +-------+ back-off, until the deadline
 *
 * A shard that comes back is joined with the slot that the handle has there; if that slot is another
 * client's now, the handle takes another slot in all shards (a fenced client is a new one).
 */
#ifndef RLV_CLIENT_TABLE_HANDLE_H
#define RLV_CLIENT_TABLE_HANDLE_H

#include "client/store/store.h"
#include "client/table/watch.h"

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
	enum part_access access_kind;
	uint32_t view_mask;
	struct tree_deltas_opts defer;
	const struct handle_user *user;
	uint64_t version;   /* of nodes, that `moved` was told of */
	uint64_t lost;      /* shards that became unreachable */
	uint64_t warned_ns; /* of a long wait, last */
	uint64_t wait_ns;   /* until then the call in progress waits for what others do */
	bool stalls;        /* that call gives up where nothing moves */
	uint64_t waits;     /* calls that waited, and for how long */
	uint64_t waited_ns;
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

/* A call begins, which may take timeout_ns; with 0 it waits for nobody, and for nodes at most as long as
   control calls do. */
void handle_start(struct handle *h, int64_t timeout_ns);

/*
 * Starts a call and enters, waiting for nobody. -ECHILD in a forked child, -ESTALE dropped,
 * -EHOSTDOWN: no shard can be reached now, -EOWNERDEAD: fenced, and there is no new slot yet. Cost: one
 * load for each addressable shard; while shards are away, now and then a question to the server, of a
 * small part of the call's time.
 */
RLV_MUST_CHECK int handle_begin(struct handle *h, int64_t timeout_ns);

/* A call as a step, which is made again after a node was lost or after a wait. */
struct handle_call {
	/* 0, or a code: -EAGAIN and -ENODATA are waited out. What must not be done twice it keeps in ctx. */
	int (*step)(void *ctx);
	watch_explain_fn explain; /* what it waits for; NULL = it does not wait */
	/* There is no time left to wait: the error to return for -EAGAIN or -ENODATA. */
	int (*late)(void *ctx, int error);
};

/*
 * Enters, as handle_begin, and makes the step, until it is done, it fails for good, or the call has no
 * time left. Errors: those of entering, of the step, and of call->late. -ETIMEDOUT: the call was
 * started with RLV_TIMEOUT_STALL, and nothing moves.
 */
RLV_MUST_CHECK int handle_run(struct handle *h, const struct handle_call *call, void *ctx);

/* True if retrying may succeed: -EOWNERDEAD while re-attaching, -EHOSTDOWN while shards are away. */
bool handle_may_heal(const struct handle *h, int error);

/* Adds what the accesses hold of updates to the trees. Shards that break meanwhile are left out. */
RLV_MUST_CHECK int handle_flush(struct handle *h);

/*
 * Passes the result of a change on. A lost answer (-EIO) may be a change that the sums never hear
 * of: the shard is marked, and the next rebuild repairs it.
 */
RLV_MUST_CHECK int handle_failed(struct access *acc, int error);

/* Fills the counters of waits and of the transport. */
void handle_stats(const struct handle *h, struct rlv_stats *stats);

#endif

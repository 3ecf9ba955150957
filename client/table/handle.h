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

#include "client/table/table.h"
#include "client/table/watch.h"

struct handle;

/* Hooks of a writer or sampler for shards that come and go. */
struct handle_user {
	/* Called before the access to a shard ends: forget blocks in the shard. Its rows can
	   still be read if they are addressable. */
	void (*leave)(struct handle *h, uint32_t shard);
	/* Called after the open shards, the control shard or the slot changed: rebuild derived
	   state. */
	int (*moved)(struct handle *h);
};

struct handle_opts {
	uint32_t view_mask; /* views whose leaves this handle changes */
	uint32_t streams;   /* blocks that it may hold at once: of a writer */
	bool reader;        /* takes no slot, and writes nothing */
	const struct handle_user *user;
};

struct handle {
	struct rlv_table *table;
	const struct table_desc *desc; /* shard 0's */
	struct part_set set;           /* shards; their states are accesses */
	struct meta_slot slot;         /* owner 0 = none: fenced, or a reader */
	struct handle_opts opts;
	bool fenced; /* the slot was taken from this handle */
	enum part_access access_kind;
	uint64_t warned_ns; /* of a long wait, last */
	uint64_t wait_ns;   /* deadline of the current call's waits for other clients */
	bool stalls;        /* that call fails when there is no progress */
	uint64_t waits;     /* calls that waited, and for how long */
	uint64_t waited_ns;
	struct meta_watch watch;
	const struct clock *clock;
};

/* Shard s of the table; NULL where it is not open. */
static inline struct shard *handle_shard(const struct handle *h, uint32_t s)
{
	return shard_of(h->set.parts[s]);
}

/* The access to shard s; NULL where the shard is not open, or the handle is fenced. */
static inline struct access *handle_access(const struct handle *h, uint32_t s)
{
	return h->set.states[s];
}

/* True if the connection to the shard's node has ended. */
static inline bool access_is_broken(const struct access *acc)
{
	return acc->shard->tree->tr->broken != 0;
}

/*
 * Takes a client slot (a reader: none), opens the shards and an access to each; waits for nodes
 * within the store's timeout. h must not move afterwards. -ENOSPC: every client slot is taken, or
 * all streams (max_writers). -EHOSTDOWN: no shard can be reached.
 */
RLV_MUST_CHECK int handle_open(struct handle *h, struct rlv_table *table,
			       const struct handle_opts *opts);

/*
 * Closes the handle in any case and returns the slot, unless blocks of ours are in a shard out of
 * our reach. error: the caller's result of flushing; it is returned with its message, else the
 * first error of closing.
 */
RLV_MUST_CHECK int handle_close(struct handle *h, int error);

/* Starts a call that ends timeout_ns from now. With 0 it waits for no client, and for nodes at
   most as long as control calls do. */
void handle_start(struct handle *h, int64_t timeout_ns);

/*
 * Starts a call and enters without waiting for other clients. -ECHILD in a forked child, -ESTALE
 * dropped, -EHOSTDOWN: no shard is reachable now, -EOWNERDEAD: fenced, and no new slot yet. Cost:
 * that of part_set_enter; while shards are unreachable, an occasional request to the server that
 * takes a small part of the call's time.
 */
RLV_MUST_CHECK int handle_begin(struct handle *h, int64_t timeout_ns);

/* A call as a step that is repeated after a lost node or a wait. */
struct handle_call {
	/* Does the work of the call. It runs again after a lost node, and after a wait if it
	   returns -EAGAIN or -ENODATA: state that must not be repeated is kept in ctx. NULL =
	   the call only enters. */
	int (*step)(void *ctx);
	watch_explain_fn explain; /* explains its wait; NULL = it does not wait */
	/* Called when no time is left to wait: gives the error that the call returns in place of
	   `error`, which is -EAGAIN or -ENODATA. */
	int (*late)(void *ctx, int error);
};

/*
 * Enters as handle_begin and runs the step until it is done, fails for good, or the call has no
 * time left. Errors: those of entering, of the step, and of call->late. -ETIMEDOUT: the call was
 * started with RLV_TIMEOUT_STALL, and there is no progress.
 */
RLV_MUST_CHECK int handle_run(struct handle *h, const struct handle_call *call, void *ctx);

/* True if the call may succeed later: -EOWNERDEAD while the handle is fenced, -EHOSTDOWN while
   shards are open or may come back. */
bool handle_may_heal(const struct handle *h, int error);

/* Adds the updates that the accesses hold back to the trees of their shards. Shards whose
   connection breaks meanwhile are skipped. */
RLV_MUST_CHECK int handle_flush(struct handle *h);

/*
 * Returns error, the result of a change of the shard. After a lost answer (-EIO) the sums may miss
 * the change: the shard is marked, and the next rebuild repairs it; if that fails, returns its
 * error.
 */
RLV_MUST_CHECK int handle_failed(struct access *acc, int error);

/* Fills in the counters of waits, of the transport and of lost shards; leaves the others. */
void handle_stats(const struct handle *h, struct rlv_stats *stats);

#endif

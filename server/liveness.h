/*
 * Liveness: who holds a lease, and the proof that somebody is dead.
 *
 *   connected, renewing ---- connection lost, or lease over ----> suspect
 *        ^                                                           |  asked again and again:
 *        +------------- reconnects with its client id ---------------+  a fence by every node
 *                                                                    |
 *                    slots settled in every shard, forgotten <-- dead (proved)
 *
 * Time is only a hint: nothing of a suspect is touched before the fence proved it dead. Proof is
 * that its process is gone, or that every memory node says that it has nothing attached, provided
 * that no node has been replaced since the client came (the new one knows nothing of what the
 * client has from the old).
 *
 * A suspect that lives (stopped, or cut off) keeps all it has. After stall_ns it is killed if
 * so told, if it holds slots.
 */
#ifndef RLV_SERVER_LIVENESS_H
#define RLV_SERVER_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/nodes.h"
#include "server/slots.h"
#include "server/store.h"

#include "base/clock.h"
#include "base/error.h"

struct conn;

struct client {
	struct client *next;
	struct slot_holder holder;
	bool has_process;
	bool proved_dead;       /* some of its slots are not settled yet */
	uint64_t generation;    /* of the nodes, when it came */
	struct conn *conn;      /* NULL = not connected */
	uint64_t lease_until;   /* all times of liveness->clock */
	uint64_t suspect_since; /* 0 = not suspect */
	uint64_t next_look;
	uint32_t looks;
};

struct liveness_ops {
	/* Has it slots? */
	bool (*holds)(void *ctx, uint64_t client_id);
	/* It is dead: settle it. 0, or -EAGAIN: not everywhere yet. */
	int (*on_dead)(void *ctx, uint64_t client_id);
	/* Its connection is to be closed. */
	void (*on_cut)(void *ctx, struct conn *conn);
};

struct liveness {
	const struct clock *clock;
	struct store *store;
	struct nodes *nodes;
	const struct liveness_ops *ops;
	void *ctx;
	uint64_t lease_ns;
	uint64_t stall_ns;
	bool kill_stalled;
	uint64_t last_tick;
	struct client *first;
};

/* What somebody who connects says about itself. */
struct liveness_guest {
	uint64_t wanted_id; /* 0 = new */
	bool has_process;
	struct process_id process;
	struct conn *conn;
};

/* All that had a lease before we started; they have one lease time to come back. */
RLV_MUST_CHECK int liveness_load(struct liveness *live);
void liveness_fini(struct liveness *live);

/* A lease: the wanted one if it is that process's, else a new one. */
RLV_MUST_CHECK int liveness_join(struct liveness *live, const struct liveness_guest *guest,
				 struct client **client_out);
void liveness_renew(struct liveness *live, struct client *client);
/* Its connection is gone. */
void liveness_part(struct liveness *live, struct client *client);

/* A slot in a region names this holder: watch it, if we do not yet. */
void liveness_watch(struct liveness *live, const struct slot_holder *holder);

struct client *liveness_find(const struct liveness *live, uint64_t client_id);
uint32_t liveness_count(const struct liveness *live);

/*
 * Looks at the suspects. Returns when to call again, at the latest. If we were away ourselves (stopped,
 * or held up by a node), nobody's silence meanwhile counts.
 */
uint64_t liveness_tick(struct liveness *live);

#endif

/*
 * Liveness: who holds a lease, and the proof that somebody is dead, node by node.
 *
 *   connected, renewing ---- connection lost, or lease over ----> suspect
 *        ^                                                           |  nodes are asked whether it
 *        +------------- reconnects with its client id ---------------+  can touch anything there
 *                                                                    |
 *   new client <-- -EOWNERDEAD to all that it asks <------------- fenced (no way back)
 *                                                                    |  cut off by each node
 *                     forgotten <-- settled in every shard <---------+
 *
 * Time is only a hint: nothing of a suspect is touched before there is proof. A process of this
 * host that has ended is proof for all nodes. Else each node proves for its own memory: that the
 * client has nothing attached there and no grants any more, provided that the node has known all
 * that the client may have attached (nodes_is_witness). What was proved by one node is settled in
 * its shards, whoever else is away.
 *
 * A suspect is fenced when its process is gone; when all nodes say that it has nothing; or, if it
 * is on another host, when its lease is over: its connections to the nodes are then destroyed,
 * which is the proof. A suspect of this host that lives (stopped) keeps all it has. After stall_ns
 * it is killed if so told, if it holds slots.
 *
 * Nothing here waits: a node's answer comes by liveness_answer().
 */
#ifndef RLV_SERVER_NODE_LIVENESS_H
#define RLV_SERVER_NODE_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/node/nodes.h"
#include "server/catalog/slots.h"
#include "server/statedb/statedb.h"

#include "wire/auth.h"

#include "base/os/clock.h"
#include "base/error.h"

struct conn;
struct waits_said;

struct client {
	struct client *next;
	struct slot_holder holder;
	uint8_t secret[AUTH_HASH_BYTES]; /* hash of what resumes the lease; zero: nothing does */
	bool has_process;                /* of this host: holder.process names it */
	bool fenced;                     /* nothing of it is believed any more */
	bool gone;                       /* fenced, and proved for all nodes */
	uint64_t proved;                 /* nodes that proved it, by number */
	uint64_t waiting;                /* nodes that owe an answer */
	uint64_t generation;             /* of the nodes, when it came */
	uint64_t layout;                 /* the newest that it has taken up */
	struct conn *conn;               /* NULL = not connected */
	struct waits_said *waits;        /* what its calls wait for; NULL = nothing */
	uint64_t since;                  /* it joined, or was found */
	uint64_t lease_until;            /* all times of liveness->clock */
	uint64_t suspect_since;          /* 0 = not suspect */
	uint64_t next_look;
	uint32_t looks;
};

struct liveness_ops {
	/* Has it slots? */
	bool (*holds)(void *ctx, uint64_t client_id);
	/* Asks a node, whose answer comes later. An error: it does not. */
	int (*fence)(void *ctx, struct node *node, uint64_t client_id, enum fence_how how);
	/* It is fenced: settle it where it is proved. 0, or -EAGAIN: not everywhere yet. */
	int (*on_dead)(void *ctx, const struct client *client);
	/* Its connection is to be closed: it has another one. */
	void (*on_cut)(void *ctx, struct conn *conn);
	/* It is forgotten, and is connected still. */
	void (*on_buried)(void *ctx, struct conn *conn);
};

struct liveness {
	const struct clock *clock;
	struct statedb *store;
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
	struct process_id process; /* zeros if it is not of this host */
	struct conn *conn;
	uint8_t secret[AUTH_SECRET_BYTES]; /* that it shows; of its lease when it has joined */
};

/*
 * All that had a lease before we started; they have one lease time to come back. Whose process, of
 * this host, has ended is dead at once.
 */
RLV_MUST_CHECK int liveness_load(struct liveness *live);
void liveness_fini(struct liveness *live);

/*
 * A lease: the wanted one if the guest shows its secret, is that process, and was not fenced; else a
 * new one with a new secret.
 */
RLV_MUST_CHECK int liveness_join(struct liveness *live, struct liveness_guest *guest,
				 struct client **client_out);
void liveness_renew(struct liveness *live, struct client *client);
/* Its connection is gone. */
void liveness_part(struct liveness *live, struct client *client);

/* A slot in a region names this holder: watch it, if we do not yet. */
void liveness_watch(struct liveness *live, const struct slot_holder *holder);

/* What the node said; code: it did not. */
void liveness_answer(struct liveness *live, uint64_t client_id, const struct node *node, int code,
		     enum fence_result result);

/* The node is about to be forgotten: its number may be another's. */
void liveness_forget_node(struct liveness *live, const struct node *node);

/* Is it proved that the client can touch nothing of that node's memory? */
bool liveness_is_proved(const struct client *client, const struct node *node);

/* Has every client that is heard of taken up the layout? */
bool liveness_all_know(const struct liveness *live, uint64_t layout);

/* Is it not connected, looked at for a while, and neither back nor proved dead? */
bool liveness_is_missing(const struct client *client);

struct client *liveness_find(const struct liveness *live, uint64_t client_id);
uint32_t liveness_count(const struct liveness *live);

/*
 * Looks at the suspects. Returns when to call again, at the latest. If we were away ourselves
 * (stopped, or held up by a node), nobody's silence meanwhile counts.
 */
uint64_t liveness_tick(struct liveness *live);

#endif

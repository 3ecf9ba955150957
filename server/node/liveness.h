/*
 * Liveness: the leases of clients, and proof of death, node by node.
 *
 *   connected, renewing ---- connection lost, or lease over ----> suspect
 *        ^                                                           |  nodes are asked whether it
 *        +------------- reconnects with its client id ---------------+  can access anything there
 *                                                                    |
 *   new client <-- -EOWNERDEAD to each of its requests <--------- fenced (final)
 *                                                                    |  cut off by each node
 *                     forgotten <-- settled in every shard <---------+
 *
 * A timeout is only a hint: a suspect's state is not touched before there is proof. The end of a
 * process on this host is proof for all nodes. Otherwise each node proves for its own memory that
 * the client has no attachment and no grant there, provided that the node has known everything that
 * the client may have attached (nodes_is_witness). A node's proof allows settling its shards, even
 * while other nodes are away.
 *
 * A suspect is fenced when its process has ended; when all nodes prove that it has nothing; or, on
 * another host, when its lease is over: its connections to the nodes are then destroyed, which is
 * the proof. A live (stopped) suspect on this host keeps all it has. After stall_ns it is killed if
 * so configured and if it holds slots.
 *
 * Nothing here blocks: a node's answer arrives in liveness_answer().
 */
#ifndef RLV_SERVER_NODE_LIVENESS_H
#define RLV_SERVER_NODE_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/node/nodes.h"
#include "catalog/slots.h"
#include "catalog/store.h"

#include "wire/control/auth.h"

#include "base/os/clock.h"
#include "base/error.h"

struct conn;
struct lags_said;
struct waits_said;

struct client {
	struct client *next;
	struct slot_holder holder;
	uint8_t secret[AUTH_HASH_BYTES]; /* hash of the resume secret; zero: not resumable */
	bool has_process;                /* on this host: holder.process is valid */
	bool fenced;                     /* none of its requests is accepted any more */
	bool gone;                       /* fenced, and proved for all nodes */
	uint64_t proved;                 /* bit set of node numbers that proved it */
	uint64_t waiting;                /* bit set of node numbers that owe an answer */
	uint64_t generation;             /* nodes->generation when it joined */
	uint64_t layout;                 /* newest layout that it has adopted */
	struct conn *conn;               /* NULL = not connected */
	struct waits_said *waits;        /* its waiting calls, one block; NULL = none */
	struct lags_said *lags;          /* how far its handles are, as waits */
	uint64_t since;                  /* time when it joined or was found */
	uint64_t lease_until;            /* all times are of liveness->clock */
	uint64_t suspect_since;          /* 0 = not suspect */
	uint64_t next_look;
	uint32_t looks;
};

struct liveness_ops {
	/* True if the client holds client slots in any object. */
	bool (*holds)(void *ctx, uint64_t client_id);
	/* Asks a node to fence the client; the answer comes later, by liveness_answer, but not
	   after an error. */
	int (*fence)(void *ctx, struct node *node, uint64_t client_id, enum fence_how how);
	/* The client is fenced: settles its slots in each shard for whose node that is proved. 0:
	   in all shards; -EAGAIN: some shards remain, and it is called again. */
	int (*on_dead)(void *ctx, const struct client *client);
	/* Closes conn: its client has a newer connection. */
	void (*on_cut)(void *ctx, struct conn *conn);
	/* The client of conn, which is still open, is forgotten and about to be freed. */
	void (*on_buried)(void *ctx, struct conn *conn);
};

struct liveness {
	const struct clock *clock;
	struct catalog_store *store;
	struct nodes *nodes;
	const struct liveness_ops *ops;
	void *ctx;
	uint64_t lease_ns;
	uint64_t stall_ns;
	bool kill_stalled;
	uint64_t last_tick;
	struct client *first;
};

/* Identity that a connecting client claims. */
struct liveness_guest {
	uint64_t wanted_id; /* 0 = new */
	bool has_process;
	struct process_id process; /* zeros: not on this host */
	struct conn *conn;
	uint8_t secret[AUTH_SECRET_BYTES]; /* in: the secret shown; out: the secret of its lease */
};

/*
 * Loads from the store all clients that had a lease before the server's start; they have one lease
 * time to reconnect. A client whose process on this host has ended is fenced at the first tick.
 * -ENOMEM, store errors.
 */
RLV_MUST_CHECK int liveness_load(struct liveness *live);
void liveness_fini(struct liveness *live);

/*
 * Grants the guest a lease: the wanted one if the guest shows its secret, is the same process, and
 * was not fenced; otherwise a new one, whose secret it puts into guest->secret. *client_out: the
 * client of the lease, owned by live. -ENOMEM, -EIO, store errors.
 */
RLV_MUST_CHECK int liveness_join(struct liveness *live, struct liveness_guest *guest,
				 struct client **client_out);
void liveness_renew(struct liveness *live, struct client *client);
/* The client's connection has closed: the client becomes suspect. */
void liveness_part(struct liveness *live, struct client *client);

/* A slot in a region names this holder: adds its client, as a suspect, if it is unknown. */
void liveness_watch(struct liveness *live, const struct slot_holder *holder);

/* A node's answer to a fence. code not 0: the fence failed; it is logged, result is ignored. */
void liveness_answer(struct liveness *live, uint64_t client_id, const struct node *node, int code,
		     enum fence_result result);

/* The node is about to be forgotten, and its number may be reused: clears its proofs in all
   clients. */
void liveness_forget_node(struct liveness *live, const struct node *node);

/* True if the client is fenced and it is proved that it cannot access the node's memory. */
bool liveness_is_proved(const struct client *client, const struct node *node);

/* True if every client that is connected and not suspect has adopted that layout or a newer one. */
bool liveness_all_know(const struct liveness *live, uint64_t layout);

/* True if the client is not connected, and four looks (some 150 ms) have not settled it. */
bool liveness_is_missing(const struct client *client);

struct client *liveness_find(const struct liveness *live, uint64_t client_id);
uint32_t liveness_count(const struct liveness *live);

/*
 * Checks the clients whose next look is due: asks nodes to fence suspects, settles and forgets
 * fenced ones. Returns the latest time of the next call. If the server itself was stopped or held
 * up by a node, leases that would end meanwhile are extended: renewals are still unread.
 */
uint64_t liveness_tick(struct liveness *live);

#endif

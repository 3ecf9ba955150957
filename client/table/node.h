/*
 * Nodes: the connections and shards that one user of a table holds while memory nodes come and go.
 * Each handle has its own, because a transport belongs to one thread.
 *
 *   shards[s]   open, or NULL: then statuses[s].state says why
 *
 *   ACTIVE, DRAINING --- its connection ended, or its memory was orphaned ---> DOWN or LOST, closed
 *          ^                                                                      |
 *          +---- the server grants it anew: connected, opened, joined ------------+
 *
 * Nothing here runs in a thread of its own. A call that meets a dead connection drops the node's
 * shards (node_set_drop) and goes on; while shards are unreachable, or the server has announced a
 * newer layout, calls ask it (node_set_heal), at most once per back-off time.
 */
#ifndef RLV_CLIENT_TABLE_NODE_H
#define RLV_CLIENT_TABLE_NODE_H

#include "client/meta/meta.h"

/* Hooks of the user of a set for shards that come and go. */
struct node_hooks {
	/* Called after the shard was opened. After an error it is closed again. */
	int (*join)(void *ctx, uint32_t shard);
	/* Called before it is closed: release it. Its addressable memory can still be read. */
	void (*leave)(void *ctx, uint32_t shard);
};

struct node {
	char uri[META_NODE_URI_BYTES];
	struct transport *tr; /* NULL = not connected */
	uint64_t link;        /* of the last connection; the next one replaces it */
	uint32_t failed;      /* number of the request after which connecting failed */
};

/* State of a shard, open or not. */
struct shard_status {
	uint32_t state; /* enum rlv_shard_state as this user sees it */
	uint32_t weight;
	uint64_t weight_ns; /* time of that weight */
	uint64_t ramp_ns;
	uint64_t incarnation;
	uint64_t opened; /* the set's version then */
	uint32_t node;   /* index in nodes, where it is or was last; n_nodes and above = unknown */
	bool granted;    /* the server reaches it */
	char name[RLV_NAME_BYTES];
};

struct node_set {
	struct meta *meta;
	const struct table_desc *desc; /* of the table */
	struct meta_access access;     /* the grants wanted */
	const struct clock *clock;
	const struct node_hooks *hooks; /* NULL = none */
	void *ctx;
	uint32_t n_nodes, n_shards;
	uint32_t n_up;         /* shards that are open */
	uint32_t n_away;       /* DOWN: may come back */
	struct node *nodes;    /* one for each memory node */
	struct shard **shards; /* NULL = not open */
	struct shard_status *statuses;
	uint32_t control;  /* shard that keeps the limiter's counts */
	uint64_t layout;   /* taken up */
	uint64_t version;  /* rises with each change of all that */
	uint64_t ask_ns;   /* earliest time of the next request */
	uint64_t asked_ns; /* time of the last request */
	uint32_t asked;    /* requests in a row that left shards missing */
	uint32_t questions;
	uint64_t deadline_ns;        /* deadline of the call in progress */
	int64_t patience_ns;         /* longest wait for the server, or for one connection */
	struct transport_stats past; /* of connections that were closed */
};

/*
 * Connects to every node of the table and opens its shards; those that cannot be reached are DOWN,
 * with a warning in the log. -EHOSTDOWN if none can; an error if one is not what it should be. like:
 * meta, desc, access. place is borrowed until return, desc until close. Cost: control plane.
 */
RLV_MUST_CHECK int node_set_open(const struct node_set *like, const struct meta_table *place,
				 uint64_t deadline_ns, struct node_set *out);
void node_set_close(struct node_set *set);

/* Starts a call: its deadline, and the longest wait per request to the server or a node. */
void node_set_begin(struct node_set *set, uint64_t deadline_ns, int64_t patience_ns);

/* Time for the next such request. */
int64_t node_set_patience(const struct node_set *set);

/*
 * 0 if its regions can be accessed. -ECHILD in a forked child, -ESTALE dropped, -EHOSTDOWN: the
 * memory of some shard was orphaned, a connection has ended, or nothing is open. Cost: one load for
 * each shard that is addressable.
 */
RLV_MUST_CHECK int node_set_check(const struct node_set *set);

/* True if a connection has ended or a shard is orphaned. */
bool node_set_has_broken(const struct node_set *set);

/* Closes those connections and shards; returns the number of shards. */
uint32_t node_set_drop(struct node_set *set);

/* True if the server should be asked for the placement. Cost: one load, and the clock if so. */
bool node_set_is_due(const struct node_set *set);

/*
 * Asks the server and applies its answer, with the patience of the call for the request and for
 * each connection. -ESTALE, -ECHILD; after any other failure it asks again later.
 */
RLV_MUST_CHECK int node_set_heal(struct node_set *set);

/*
 * Moves the set to another slot: attaches its pages in place of the old ones in open shards. After
 * an error a shard may still have the old page.
 */
RLV_MUST_CHECK int node_set_move(struct node_set *set, uint32_t owner);

/* Current share of new blocks of a shard: 0..META_WEIGHT_FULL. */
uint32_t node_set_weight(const struct node_set *set, uint32_t shard, uint64_t now_ns);

static inline bool node_set_has_control(const struct node_set *set)
{
	return set->control < set->n_shards && set->shards[set->control];
}

/* True if all open shards are addressable. */
bool node_set_is_addressable(const struct node_set *set);

/* The first transport that is connected, or NULL. */
struct transport *node_set_any(const struct node_set *set);

/* Adds the counters of all connections, closed ones too. */
void node_set_stats(const struct node_set *set, struct transport_stats *out);

#endif

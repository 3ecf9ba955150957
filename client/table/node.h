/*
 * Nodes: the connections and shards that one user of a table holds, and what becomes of them when
 * memory nodes go and come. Each handle has its own, because a transport belongs to one thread.
 *
 *   shards[s]   open, or NULL: then seats[s].state says why
 *
 *   ACTIVE, DRAINING --- its connection ended, or its memory was orphaned ---> DOWN or LOST, closed
 *          ^                                                                      |
 *          +---- the server grants it anew: connected, opened, joined ------------+
 *
 * Nothing here runs in a thread of its own. A call that meets a dead connection drops the node's
 * shards (node_set_drop) and goes on; while shards are away, or the server has spoken of a newer
 * layout, calls ask it now and then (node_set_heal), at most once in a back-off time.
 */
#ifndef RLV_CLIENT_TABLE_NODE_H
#define RLV_CLIENT_TABLE_NODE_H

#include "client/meta/meta.h"

/* What the user of a set does when a shard comes or goes. */
struct node_hooks {
	/* The shard was opened: take it into use. After an error it is closed again. */
	int (*join)(void *ctx, uint32_t shard);
	/* It will be closed: let go of it. What is addressable of it can still be read. */
	void (*leave)(void *ctx, uint32_t shard);
};

struct node {
	char uri[META_NODE_URI_BYTES];
	struct transport *tr; /* NULL = not connected */
	uint64_t link;        /* of the last connection; the next one replaces it */
	uint32_t failed;      /* question after which connecting failed */
};

/* What is known of a shard, open or not. */
struct shard_status {
	uint32_t state; /* enum rlv_shard_state as this user sees it */
	uint32_t weight;
	uint64_t weight_ns; /* when it was that */
	uint64_t ramp_ns;
	uint64_t incarnation;
	uint64_t opened; /* the set's version then */
	uint32_t node;   /* index in nodes, where it is or was last; n_nodes and above = unknown */
	bool granted;    /* the server can reach it */
	char name[RLV_NAME_BYTES];
};

struct node_set {
	struct meta *meta;
	const struct table_desc *desc; /* of the table */
	struct meta_access access;     /* what is asked for */
	const struct clock *clock;
	const struct node_hooks *hooks; /* NULL = none */
	void *ctx;
	uint32_t n_nodes, n_shards;
	uint32_t n_up;         /* shards that are open */
	uint32_t n_away;       /* DOWN: may come back */
	struct node *nodes;    /* one for each memory node */
	struct shard **shards; /* NULL = not open */
	struct shard_status *statuses;
	uint32_t control;  /* shard whose limiter words count */
	uint64_t layout;   /* taken up */
	uint64_t version;  /* rises with each change of all that */
	uint64_t ask_ns;   /* the server is not asked before */
	uint64_t asked_ns; /* when it was asked last */
	uint32_t asked;    /* in a row, without getting all back */
	uint32_t questions;
	uint64_t deadline_ns;        /* of the call in progress: nothing waits longer */
	int64_t patience_ns;         /* most that it waits for the server, or for one connection */
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

/* A call begins: so long it may take, and so long each question to the server or a node. */
void node_set_begin(struct node_set *set, uint64_t deadline_ns, int64_t patience_ns);

/* Time for the next such question. */
int64_t node_set_patience(const struct node_set *set);

/*
 * May its regions be looked at? -ECHILD in a forked child, -ESTALE dropped, -EHOSTDOWN: the memory
 * of some shard was orphaned, a connection has ended, or nothing is open. Cost: one load for each
 * shard that is addressable.
 */
RLV_MUST_CHECK int node_set_check(const struct node_set *set);

/* Is there a connection that has ended, or an orphaned shard? */
bool node_set_has_broken(const struct node_set *set);

/* Closes what that is. How many shards. */
uint32_t node_set_drop(struct node_set *set);

/* Is it worth asking the server where things are? Cost: one load, and the clock if so. */
bool node_set_is_due(const struct node_set *set);

/*
 * Asks, and takes up what it says, with the patience of the call for the question and for each node
 * that is connected to. -ESTALE, -ECHILD; anything else is no error: asked again later.
 */
RLV_MUST_CHECK int node_set_heal(struct node_set *set);

/*
 * The handle has another slot: its pages are attached in place of those of the old one, where shards are
 * open. After an error a shard may still have the old one.
 */
RLV_MUST_CHECK int node_set_move(struct node_set *set, uint32_t owner);

/* Share of new blocks that the shard takes now: 0..META_WEIGHT_FULL. */
uint32_t node_set_weight(const struct node_set *set, uint32_t shard, uint64_t now_ns);

static inline bool node_set_has_control(const struct node_set *set)
{
	return set->control < set->n_shards && set->shards[set->control];
}

/* Are all open shards addressable? */
bool node_set_is_addressable(const struct node_set *set);

/* The first transport that is connected, or NULL. */
struct transport *node_set_any(const struct node_set *set);

/* Adds the counters of all connections, closed ones too. */
void node_set_stats(const struct node_set *set, struct transport_stats *out);

#endif

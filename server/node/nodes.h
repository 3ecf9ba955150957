/*
 * Nodes: all memory nodes known to the store.
 *
 *                 registers                     silent for a lease, or its connection ends
 *   (unknown) ----------------> up ------------------------------------------> down
 *                               ^  \                                            |  |
 *                               |   draining: gets no new shards                |  | lost_ns,
 *                               +------- registers, any incarnation ------------+  | or by hand
 *                               +--------------- registers, empty ------- lost <---+
 *
 * An incarnation is one life of a node. The same incarnation returns with all its regions; a new
 * one has only regions kept in a file or device. A node on a file or device is never declared lost
 * by timeout: its data survives it.
 */
#ifndef RLV_SERVER_NODE_NODES_H
#define RLV_SERVER_NODE_NODES_H

#include "server/node/node.h"
#include "catalog/store.h"

struct event_base;

#define NODES_LOST_NS (30 * (uint64_t)CLOCK_NS_PER_S)

struct nodes_ops {
	/* A node's connection ended. The node is still in the list, as down. */
	void (*on_down)(void *ctx, struct node *node);
	/* The node was declared lost: its shards are lost from now on. */
	void (*on_lost)(void *ctx, struct node *node);
	/* A node granted, attached or made a page that was asked for, or went down: look at
	   everything soon. */
	void (*on_news)(void *ctx);
};

struct nodes {
	struct node *first;
	struct event_base *base;
	struct catalog_store *store;
	const struct clock *clock;
	const struct nodes_ops *ops;
	void *ctx;
	uint64_t lease_ns;         /* 0 at nodes_load: NODE_LEASE_NS */
	uint64_t lost_ns;          /* 0 at nodes_load: NODES_LOST_NS; UINT64_MAX = only by hand */
	uint64_t attach_client_id; /* our client id at every node */
	uint64_t former_client_id; /* our client id in the server's former life; 0 = none */
	uint64_t generation;       /* incremented when a node returns as a new incarnation */
	uint32_t n;
	uint64_t numbers; /* node numbers in use, bit set */
};

/* Values that a node reports when it registers. */
struct node_news {
	const char *name;
	const char *uri;
	const char *pages;
	uint64_t incarnation;
	uint64_t pool_bytes;
	bool persistent;
	bool sole_opener;
	uint8_t pool[16]; /* uuid of a persistent pool, or zero */
};

/* Loads the known nodes from the store, all down. The caller has set base to former_client_id (0 in
   lease_ns, lost_ns: default) and zeroed the others. -ENOMEM, store errors. */
RLV_MUST_CHECK int nodes_load(struct nodes *nodes);
void nodes_fini(struct nodes *nodes);

struct node *nodes_find(const struct nodes *nodes, const char *name);

/*
 * Checks whether the node may join. -EEXIST: a node of that name is up; -EINVAL: name, address or
 * incarnation is invalid; -ENOSPC: the name is new, and the store has NODES_MAX names. A node whose
 * connection has ended unnoticed is marked down first.
 */
RLV_MUST_CHECK int nodes_admit(struct nodes *nodes, const struct node_news *news);

/*
 * Marks the node up, adding it if its name is new, stores it, and owns *ch from then on; after an
 * error ch stays the caller's. *replaced_out: the node was known under another incarnation.
 * -ENOMEM, store errors.
 */
RLV_MUST_CHECK int nodes_join(struct nodes *nodes, const struct node_news *news, struct channel *ch,
			      struct node **node_out, bool *replaced_out);

/*
 * Asks the node to cut the connections that the server's former life has left there, before this
 * life opens new ones: a host that lost power closes none. Run after the node's registration was
 * answered. Failures are logged.
 */
void nodes_cut_former(const struct nodes *nodes, struct node *node);

/*
 * Pings nodes, reads their frames, delivers results, advances attachments, and detects nodes that
 * are down or lost. Returns the latest time of the next call.
 */
uint64_t nodes_tick(struct nodes *nodes);
/* Runs node_attach_next for all nodes and returns the earliest time. Run last in a tick, after all
   that may have asked a node for something. */
uint64_t nodes_attach_next(struct nodes *nodes);

/*
 * Request of an operator: deletes from the store and frees a node that no shard refers to; its
 * number may be reused. -EBUSY: the node is up, or a thread still connects to its address. Store
 * errors.
 */
RLV_MUST_CHECK int nodes_forget(struct nodes *nodes, struct node *node);
/*
 * Request of an operator: declares a node that is down lost, and calls on_lost. -EBUSY: the node is
 * up: stop it, or drain it.
 */
RLV_MUST_CHECK int nodes_drop(struct nodes *nodes, struct node *node);
/* Starts or stops draining, in the store, too: a draining node gets no new shards. Store errors. */
RLV_MUST_CHECK int nodes_set_draining(struct nodes *nodes, struct node *node, bool draining);

/*
 * True if the node knows everything that a client may have attached of its memory; generation:
 * nodes->generation when the client joined. False for a node restarted since then on a pool in a
 * file that another process still had mapped.
 */
bool nodes_is_witness(const struct node *node, uint64_t generation);

uint32_t nodes_count(const struct nodes *nodes, bool only_up);

#endif

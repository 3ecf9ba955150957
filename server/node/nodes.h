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
	/* A node answered, joined or went down: look at everything soon. */
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

/* Load the known nodes from the store, all down. The caller has set the fields base to ctx and
   zeroed the others. */
RLV_MUST_CHECK int nodes_load(struct nodes *nodes);
void nodes_fini(struct nodes *nodes);

struct node *nodes_find(const struct nodes *nodes, const char *name);

/*
 * Checks whether the node may join. -EEXIST: a node of that name is up; -EINVAL: name or address;
 * -ENOSPC: the store has NODES_MAX names. A node whose connection has ended unnoticed is marked
 * down first.
 */
RLV_MUST_CHECK int nodes_admit(struct nodes *nodes, const struct node_news *news);

/*
 * Marks it up and takes the channel over. *replaced_out: its known regions belong to an earlier
 * incarnation.
 */
RLV_MUST_CHECK int nodes_join(struct nodes *nodes, const struct node_news *news, struct channel *ch,
			      struct node **node_out, bool *replaced_out);

/*
 * Cuts the connections of the server's former life at the node, before this life opens new ones:
 * the host may have lost power. Posted after the node's registration was answered.
 */
void nodes_cut_former(const struct nodes *nodes, struct node *node);

/*
 * Pings nodes, reads their frames, and detects nodes that are down or lost. Returns the latest time
 * of the next call.
 */
uint64_t nodes_tick(struct nodes *nodes);
/* The time to look at pages that nodes make; after all that may have asked for one. */
uint64_t nodes_pages_watch(struct nodes *nodes);

/*
 * Request of an operator: forgets a node that no shard refers to; its number may be reused. -EBUSY:
 * it is up, or its address is being tried.
 */
RLV_MUST_CHECK int nodes_forget(struct nodes *nodes, struct node *node);
/*
 * Request of an operator: declares a node lost; calls on_lost. -EBUSY: it is up: stop it, or drain
 * it.
 */
RLV_MUST_CHECK int nodes_drop(struct nodes *nodes, struct node *node);
/* Start or stop draining: a draining node gets no new shards. */
RLV_MUST_CHECK int nodes_set_draining(struct nodes *nodes, struct node *node, bool draining);

/*
 * True if the node knows everything that a client of that generation may have attached of its
 * memory. False for a restarted node whose memory outlived the life in which the client attached
 * it.
 */
bool nodes_is_witness(const struct node *node, uint64_t generation);

uint32_t nodes_count(const struct nodes *nodes, bool only_up);

#endif

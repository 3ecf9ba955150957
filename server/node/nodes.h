/*
 * Nodes: all memory nodes that the store knows.
 *
 *                 registers                     silent for a lease, or its connection ends
 *   (unknown) ----------------> up ------------------------------------------> down
 *                               ^  \                                            |  |
 *                               |   draining: gets no new shards                |  | lost_ns,
 *                               +------- registers: the same life, or another --+  | or by hand
 *                               +--------------- registers, empty ------- lost <---+
 *
 * A life of a node is its incarnation. The same one again has all that it had; another one has
 * only what a file or device kept. A node on a file or device is never declared lost by time: what
 * it has is not gone with it.
 */
#ifndef RLV_SERVER_NODE_NODES_H
#define RLV_SERVER_NODE_NODES_H

#include "server/node/node.h"
#include "server/statedb/statedb.h"

struct event_base;

#define NODES_MAX 64u /* names that a store knows */
#define NODES_LOST_NS (30 * (uint64_t)CLOCK_NS_PER_S)

struct nodes_ops {
	/* It hung up, or was hung up on. It is in the list still, and down. */
	void (*on_down)(void *ctx, struct node *node);
	/* Its shards are lost from now on. */
	void (*on_lost)(void *ctx, struct node *node);
	/* Something was heard of a node, or not any more: look at everything soon. */
	void (*on_news)(void *ctx);
};

struct nodes {
	struct node *first;
	struct event_base *base;
	struct statedb *store;
	const struct clock *clock;
	const struct nodes_ops *ops;
	void *ctx;
	uint64_t lease_ns;         /* 0 = NODE_LEASE_NS */
	uint64_t lost_ns;          /* 0 = NODES_LOST_NS, UINT64_MAX = never by itself */
	uint64_t attach_client_id; /* of ours, at every node */
	uint64_t former_client_id; /* the same in our life before this one; 0 = none */
	uint64_t generation;       /* one more when a node came back as another one */
	uint32_t n;
	uint64_t numbers; /* in use, a bit each */
};

/* What a node reports about itself when it registers. */
struct node_news {
	const char *name;
	const char *uri;
	const char *pages;
	uint64_t incarnation;
	uint64_t pool_bytes;
	bool persistent;
	bool sole_opener;
	uint8_t pool[16]; /* uuid of a pool that survives it, or zero */
};

/* Takes the known ones from the store, all down since now. nodes is zeroed but for base to ctx. */
RLV_MUST_CHECK int nodes_load(struct nodes *nodes);
void nodes_fini(struct nodes *nodes);

struct node *nodes_find(const struct nodes *nodes, const char *name);

/*
 * Checks whether this node may join. -EEXIST: one of that name is up; -EINVAL: name or address;
 * -ENOSPC: the store knows NODES_MAX. A node whose connection has ended unnoticed is taken down
 * first.
 */
RLV_MUST_CHECK int nodes_admit(struct nodes *nodes, const struct node_news *news);

/*
 * It is up now; takes the channel over. *replaced_out: the regions that we know of it are those
 * of an earlier life.
 */
RLV_MUST_CHECK int nodes_join(struct nodes *nodes, const struct node_news *news, struct channel *ch,
			      struct node **node_out, bool *replaced_out);

/*
 * Cuts the connections that the server's previous life left at the node, before this life opens new
 * ones: the host may have lost power. Posted; the node's register was answered.
 */
void nodes_cut_former(const struct nodes *nodes, struct node *node);

/*
 * Pings, hears, and notices who is down or lost, however that came about. Returns when to call
 * again, at the latest.
 */
uint64_t nodes_tick(struct nodes *nodes);

/*
 * By hand: there is no such node any more, and another one may have its number. Nothing refers to it.
 * -EBUSY: it is up, or its address is being tried.
 */
RLV_MUST_CHECK int nodes_forget(struct nodes *nodes, struct node *node);
/* By hand. -EBUSY: it is up: stop it, or drain it. Tells on_lost. */
RLV_MUST_CHECK int nodes_drop(struct nodes *nodes, struct node *node);
/* It gets no new shards from now on, or gets some again. */
RLV_MUST_CHECK int nodes_set_draining(struct nodes *nodes, struct node *node, bool draining);

/*
 * True if the node knows everything that a client of that generation may have attached of its memory.
 * False for a restarted node whose memory outlived the life in which the client attached it.
 */
bool nodes_is_witness(const struct node *node, uint64_t generation);

uint32_t nodes_count(const struct nodes *nodes, bool only_up);

#endif

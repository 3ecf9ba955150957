/*
 * Nodes: all memory nodes that the store knows, up or down.
 */
#ifndef RLV_SERVER_NODES_H
#define RLV_SERVER_NODES_H

#include "server/node.h"
#include "server/store.h"

struct event_base;

struct nodes {
	struct node *first;
	struct event_base *base;
	struct store *store;
	uint64_t attach_client_id; /* of ours, at every node */
	uint64_t generation;       /* one more when a node was replaced: see liveness.h */
	struct node *last_picked;
	/* A node hung up. It is in the list still, and down. */
	void (*on_down)(void *ctx, struct node *node);
	void *ctx;
};

/* What a node says about itself. */
struct node_news {
	const char *name;
	const char *uri;
	const char *pages;
	uint64_t incarnation;
	uint64_t pool_bytes;
	bool persistent;
	bool sole_opener;
};

/* Takes the known ones from the store, all down. nodes is zeroed but for base, store, on_down. */
RLV_MUST_CHECK int nodes_load(struct nodes *nodes);
void nodes_fini(struct nodes *nodes);

struct node *nodes_find(const struct nodes *nodes, const char *name);

/*
 * May a node of these news join? -EEXIST: one of that name is up; -EINVAL: name or address. A node
 * whose connection has ended unnoticed is taken down first.
 */
RLV_MUST_CHECK int nodes_admit(struct nodes *nodes, const struct node_news *news);

/*
 * It is up now; takes the channel over. *replaced_out: the regions that we know of it are those
 * of an earlier life.
 */
RLV_MUST_CHECK int nodes_join(struct nodes *nodes, const struct node_news *news, struct channel *ch,
			      struct node **node_out, bool *replaced_out);

/* The next node in turn that is up, beginning after the last one picked; NULL = none. */
struct node *nodes_next(struct nodes *nodes);

uint32_t nodes_count(const struct nodes *nodes, bool only_up);

#endif

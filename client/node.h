/*
 * Nodes: the connections and shards that one user of a table holds. Each handle has its own,
 * because a transport belongs to one thread.
 */
#ifndef RLV_CLIENT_NODE_H
#define RLV_CLIENT_NODE_H

#include "client/meta.h"

struct node_set {
	uint32_t n_transports;
	uint32_t n_shards;
	struct transport **transports; /* one for each memory node */
	struct shard **shards;
};

/* Connects to every node of the table and opens its shards. Cost: control plane. */
RLV_MUST_CHECK int node_set_open(struct meta *meta, const struct meta_table *table,
				 int64_t timeout_ns, struct node_set *out);
void node_set_close(struct node_set *nodes);

/*
 * May its regions be looked at? -ECHILD in a forked child, -ESTALE dropped, -EHOSTDOWN.
 * Cost: one load for each shard.
 */
RLV_MUST_CHECK int node_set_check(const struct node_set *nodes);

/* Sums over all transports. */
void node_set_stats(const struct node_set *nodes, struct transport_stats *out);

#endif

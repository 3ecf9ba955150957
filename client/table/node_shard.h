/*
 * node_shard.h - private to client/node*.c: single shards of a node set.
 */
#ifndef RLV_CLIENT_TABLE_NODE_SHARD_H
#define RLV_CLIENT_TABLE_NODE_SHARD_H

#include "client/table/node.h"

static inline bool node_state_is_usable(uint32_t state)
{
	return state == RLV_SHARD_ACTIVE || state == RLV_SHARD_DRAINING;
}

/* Makes room for shards of numbers below n_shards. -ENOMEM, -EPROTO (too many). */
RLV_MUST_CHECK int node_set_grow(struct node_set *set, uint32_t n_shards);

/* The index of the node at that address, which need not be connected. -ENOMEM. */
RLV_MUST_CHECK int node_set_node_of(struct node_set *set, const char *uri, uint32_t *node_out);

/* Stores the server's description of a shard. -ENOMEM. */
RLV_MUST_CHECK int node_set_see(struct node_set *set, uint32_t s, const struct meta_shard *place);

/* Connects to the node if needed, opens a closed shard and calls the join hook. */
RLV_MUST_CHECK int node_set_open_shard(struct node_set *set, uint32_t s,
				       const struct meta_shard *place);

/* Attaches the page of the set's slot in an open shard. */
RLV_MUST_CHECK int node_set_take_page(struct node_set *set, uint32_t s,
				      const struct meta_shard *place);

/* Calls the leave hook, closes the shard, and its connection if no other shard uses it. */
void node_set_close_shard(struct node_set *set, uint32_t s, enum rlv_shard_state state);

/* Recomputes n_away. */
void node_set_count(struct node_set *set);

/* Makes the next request due now, unless the server has just been asked. */
void node_set_ask_soon(struct node_set *set);

#endif

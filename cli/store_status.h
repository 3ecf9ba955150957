/*
 * store_status.h - what a store says of itself and of its memory nodes.
 */
#ifndef RLV_CLI_STORE_STATUS_H
#define RLV_CLI_STORE_STATUS_H

#include "relive/relive.h"

#include "base/error.h"

#define STORE_NODES 64 /* a metadata server registers no more */

struct store_status {
	struct rlv_store_info info;
	size_t n_nodes; /* at most STORE_NODES */
	struct rlv_node_info nodes[STORE_NODES];
};

/* Asks the store's server: two requests. The message is rlv_last_error(). */
RLV_MUST_CHECK int store_status_read(struct rlv_store *store, struct store_status *out);

/* NULL: the store knows no node of that name. */
const struct rlv_node_info *store_status_find(const struct store_status *status, const char *name);

/* True for a node that answers its server, also while it is drained. */
bool store_node_is_up(const struct rlv_node_info *node);

#endif

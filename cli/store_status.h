/*
 * store_status.h - status of a store and its memory nodes.
 */
#ifndef RLV_CLI_STORE_STATUS_H
#define RLV_CLI_STORE_STATUS_H

#include "relive/relive.h"

#include "base/error.h"

#define STORE_NODES 64 /* limit of the metadata server */

struct store_status {
	struct rlv_store_info info;
	size_t n_nodes; /* at most STORE_NODES */
	struct rlv_node_info nodes[STORE_NODES];
};

/*
 * Fills *out by two requests to the store's server. After an error rlv_last_error() has the
 * message.
 */
RLV_MUST_CHECK int store_status_read(struct rlv_store *store, struct store_status *out);

/*
 * As store_status_read, of a store that it opens and closes. timeout_ns: of the connection, and
 * again of the request.
 */
int store_status_ask(const char *uri, int64_t timeout_ns, struct store_status *out) RLV_MUST_CHECK;

/* The node of that name in status; NULL: there is none. */
const struct rlv_node_info *store_status_find(const struct store_status *status, const char *name);

/* True if the node answers its server, also while draining. False for NULL. */
bool store_node_is_up(const struct rlv_node_info *node);

#endif

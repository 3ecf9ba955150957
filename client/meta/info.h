/*
 * info.h - describes a store from its server. Private to client/meta/remote.c.
 */
#ifndef RLV_CLIENT_META_INFO_H
#define RLV_CLIENT_META_INFO_H

#include "client/meta/rpc.h"

#include "relive/relive.h"

/* Fills all but size and uri. Errors: those of rpc_ask. */
RLV_MUST_CHECK int meta_info(struct rpc *rpc, struct rlv_store_info *out);

/* As rlv_store_nodes. */
RLV_MUST_CHECK int meta_nodes(struct rpc *rpc, struct rlv_node_info *nodes, size_t *n_inout);

#endif

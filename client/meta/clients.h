/*
 * clients.h - lists clients and their slots from the server. Private to client/meta/remote.c.
 */
#ifndef RLV_CLIENT_META_CLIENTS_H
#define RLV_CLIENT_META_CLIENTS_H

#include "client/meta/rpc.h"

#include "relive/admin.h"

/* As rlv_store_clients. */
RLV_MUST_CHECK int meta_clients(struct rpc *rpc, struct rlv_client_info *clients, size_t *n_inout);

#endif

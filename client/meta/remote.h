/*
 * remote.h - private to client/meta/remote*.c: the calls of struct meta_ops that stand in files of their
 * own. Each is a request to the metadata server. Errors: those of rpc_ask.
 */
#ifndef RLV_CLIENT_META_REMOTE_H
#define RLV_CLIENT_META_REMOTE_H

#include "client/meta/meta.h"
#include "client/meta/rpc.h"

/* Sends a request and waits for its reply as long as control calls do; after the connection
   broke, sends it again. reply_out and errors: as rpc_ask. */
RLV_MUST_CHECK int remote_get(struct meta *meta, uint16_t type, const ProtobufCMessage *request,
			      const ProtobufCMessageDescriptor *answer, void *reply_out);
/* As remote_get, for a request whose reply is only a status. once: after the connection broke,
   does not send it again but returns -ECONNRESET. */
RLV_MUST_CHECK int remote_tell(struct meta *meta, uint16_t type, const ProtobufCMessage *request,
			       bool once);

/* -------- remote_info.c -------- */

RLV_MUST_CHECK int remote_info(struct meta *meta, struct rlv_store_info *out);
RLV_MUST_CHECK int remote_nodes(struct meta *meta, struct rlv_node_info *nodes, size_t *n_inout);
RLV_MUST_CHECK int remote_heaps(struct meta *meta, struct rlv_heap_info *heaps, size_t *n_inout);
RLV_MUST_CHECK int remote_lags(struct meta *meta, struct rlv_lag *lags, size_t *n_inout);
RLV_MUST_CHECK int remote_waits(struct meta *meta, struct rlv_wait *waits, size_t *n_inout);
RLV_MUST_CHECK int remote_clients(struct meta *meta, struct rlv_client_info *clients,
				  size_t *n_inout);

/* -------- remote_admin.c -------- */

RLV_MUST_CHECK int remote_drain_node(struct meta *meta, const char *node,
				     struct rlv_drain_info *out);
RLV_MUST_CHECK int remote_remove_node(struct meta *meta, const char *node, bool forget);
RLV_MUST_CHECK int remote_rebalance(struct meta *meta, const char *table, uint32_t *added_out,
				    uint32_t *draining_out);
RLV_MUST_CHECK int remote_token(struct meta *meta, const char *role, bool rotate, char *token_out,
				uint32_t *epoch_out);
RLV_MUST_CHECK int remote_backup(struct meta *meta,
				 int (*take)(void *ctx, const void *bytes, size_t len), void *ctx);
RLV_MUST_CHECK int remote_persist(struct meta *meta);

/* -------- remote_heap.c -------- */

RLV_MUST_CHECK int remote_heap_call(struct meta *meta, const struct meta_object *object,
				    const struct heap_access *acc, struct central_call *call);

#endif

/*
 * rpc_call.h - one request on its way to its answer. Private to server/rpc*.c.
 */
#ifndef RLV_SERVER_METAD_RPC_CALL_H
#define RLV_SERVER_METAD_RPC_CALL_H

#include "server/metad/roles.h"
#include "server/metad/rpc.h"

struct call {
	struct metad *md;
	struct conn *conn;
	struct client *client; /* NULL: a memory node */
	const struct frame_header *head;
};

/* The words are error_last(): good until the next error. */
void rpc_set_status(Relive__Status *status, int code);

/* Of a client's call: -EOWNERDEAD, it was fenced. */
RLV_MUST_CHECK int rpc_check_client(const struct call *call);

/* Each answers, now or when nodes have done their part. */
void rpc_table_create(const struct call *call, const ProtobufCMessage *message);
void rpc_table_open(const struct call *call, const ProtobufCMessage *message);
void rpc_table_drop(const struct call *call, const ProtobufCMessage *message);
void rpc_table_list(const struct call *call, const ProtobufCMessage *message);
void rpc_table_rebalance(const struct call *call, const ProtobufCMessage *message);
void rpc_token(const struct call *call, const ProtobufCMessage *message);
void rpc_client_list(const struct call *call, const ProtobufCMessage *message);
void rpc_backup(const struct call *call, const ProtobufCMessage *message);

#endif

/*
 * rpc_call.h - one request until its answer. Private to server/metad/rpc*.c.
 */
#ifndef RLV_SERVER_METAD_RPC_CALL_H
#define RLV_SERVER_METAD_RPC_CALL_H

#include "server/metad/roles.h"
#include "server/metad/rpc.h"

struct call {
	struct metad *md;
	struct conn *conn;
	struct client *client; /* NULL: the peer is a memory node */
	const struct frame_header *head;
};

/* The message is error_last(): valid until the next error. */
void rpc_set_status(Relive__Status *status, int code);

/* For a client's request. -EOWNERDEAD: the client was fenced. */
RLV_MUST_CHECK int rpc_check_client(const struct call *call);

/* Handlers: each answers, now or after nodes have answered. */
void rpc_table_create(const struct call *call, const ProtobufCMessage *message);
void rpc_table_open(const struct call *call, const ProtobufCMessage *message);
void rpc_table_drop(const struct call *call, const ProtobufCMessage *message);
void rpc_table_list(const struct call *call, const ProtobufCMessage *message);
void rpc_slot_get(const struct call *call, const ProtobufCMessage *message);
void rpc_table_rebalance(const struct call *call, const ProtobufCMessage *message);
void rpc_token(const struct call *call, const ProtobufCMessage *message);
void rpc_client_list(const struct call *call, const ProtobufCMessage *message);
void rpc_backup(const struct call *call, const ProtobufCMessage *message);

#endif

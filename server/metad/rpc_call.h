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

/* Result of a handler that has answered, or will. Other results are answered as a status. */
#define RPC_ANSWERED 1

/* Answers the call with reply, after setting *status, its status member, to success. Returns
   RPC_ANSWERED. */
int rpc_answer(const struct call *call, const ProtobufCMessage *reply, Relive__Status **status);

/* Checks that the client of the call may send requests. -EOWNERDEAD: it was fenced, or forgotten
   since. */
RLV_MUST_CHECK int rpc_check_client(const struct call *call);

/* -ENOTSUP: unknown. id 0: tables. */
RLV_MUST_CHECK int rpc_find_kind(uint32_t id, const struct object_kind **kind_out);
/* Copies the uuid of a request; absent: zeros. -EPROTO: it has another length. */
RLV_MUST_CHECK int rpc_take_uuid(const ProtobufCBinaryData *bytes, uint8_t uuid[16]);

/* Handlers of one request type each: return RPC_ANSWERED, or a code, which rpc_serve answers as a
   status. */
RLV_MUST_CHECK int rpc_table_create(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_table_open(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_table_drop(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_table_commit(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_table_list(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_slot_get(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_table_rebalance(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_token(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_client_list(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_node_register(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_node_drain(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_node_drop(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_node_forget(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_heap_call(const struct call *call, const ProtobufCMessage *message);
RLV_MUST_CHECK int rpc_backup(const struct call *call, const ProtobufCMessage *message);

#endif

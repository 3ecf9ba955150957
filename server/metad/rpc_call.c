#include "server/metad/rpc_call.h"

#include <errno.h>

int rpc_answer(const struct call *call, const ProtobufCMessage *reply, Relive__Status **status)
{
	static Relive__Status success = RELIVE__STATUS__INIT;

	*status = &success;
	conn_answer(call->conn, call->head, reply);
	return RPC_ANSWERED;
}

int rpc_check_client(const struct call *call)
{
	if (call->client && !call->client->fenced)
		return 0;
	return error_set(
		-EOWNERDEAD,
		"this client was fenced: it was silent for its lease, or an operator cut it off");
}

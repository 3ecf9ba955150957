/*
 * rpc_call.c - plain requests, over rpc_ask.
 */
#include "client/meta/rpc.h"

#include "wire/control.pb-c.h"

int rpc_get(struct rpc *rpc, uint16_t type, const ProtobufCMessage *request,
	    const ProtobufCMessageDescriptor *answer, ProtobufCMessage **reply_out)
{
	const struct rpc_call call = { .type = type, .request = request, .reply = answer };

	return rpc_ask(rpc, &call, reply_out);
}

int rpc_tell(struct rpc *rpc, uint16_t type, const ProtobufCMessage *request, bool once)
{
	const struct rpc_call call = {
		.type = type,
		.once = once,
		.request = request,
		.reply = &relive__status_reply__descriptor,
	};
	ProtobufCMessage *reply;
	int ret = rpc_ask(rpc, &call, &reply);

	if (ret == 0)
		protobuf_c_message_free_unpacked(reply, NULL);
	return ret;
}

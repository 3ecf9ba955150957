#include "client/meta/rpc.h"

#include "relive/relive.h"

#include <errno.h>
#include <string.h>

static int take_token(const Relive__TokenReply *reply, char *token_out)
{
	size_t len = strlen(reply->token);

	if (len == 0 || len >= RLV_TOKEN_BYTES)
		return error_set(-EPROTO, "token of %zu characters", len);
	memcpy(token_out, reply->token, len + 1);
	return 0;
}

int rpc_token(struct rpc *rpc, const struct rpc_token_wish *wish, char *token_out,
	      uint32_t *epoch_out)
{
	Relive__TokenRequest request = RELIVE__TOKEN_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_TOKEN,
		.once = wish->rotate,
		.request = &request.base,
		.reply = &relive__token_reply__descriptor,
	};
	ProtobufCMessage *reply;
	int ret;

	request.role = wish->role ? (char *)wish->role : (char *)"";
	request.rotate = wish->rotate;
	ret = rpc_ask(rpc, &call, &reply);
	if (ret)
		return ret;
	if (token_out)
		ret = take_token((const Relive__TokenReply *)reply, token_out);
	if (ret == 0 && epoch_out)
		*epoch_out = ((const Relive__TokenReply *)reply)->epoch;
	protobuf_c_message_free_unpacked(reply, NULL);
	return ret;
}

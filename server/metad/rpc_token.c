/*
 * rpc_token.c - role tokens for the store's owner, and token epochs.
 */
#include "server/metad/rpc_call.h"

#include <errno.h>
#include <openssl/crypto.h>

#include "base/log.h"

static int token_for_role(const struct metad *md, const char *role,
			  char token_out[TOKEN_TEXT_BYTES])
{
	struct token_id id = { .epoch = md->epoch };
	int ret = token_role_find(role, &id.role);

	return ret ? ret : token_derive(md->token, &id, token_out);
}

/* Answers with the token of a role, after beginning a new epoch if that is requested. Answers
   before cutting connections of the old epoch, which may include the requester's. */
int rpc_token(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__TokenRequest *request = (const Relive__TokenRequest *)message;
	Relive__TokenReply reply = RELIVE__TOKEN_REPLY__INIT;
	char token[TOKEN_TEXT_BYTES] = "";
	struct metad *md = call->md;
	int ret = 0;

	if (*request->role || !request->rotate) /* an unknown role rotates nothing */
		ret = token_for_role(md, request->role, token);
	if (ret == 0 && request->rotate && md->epoch == UINT32_MAX)
		ret = error_set(-EOVERFLOW, "token: no epoch after %u", md->epoch);
	else if (ret == 0 && request->rotate)
		ret = store_number_put(md->store, "epoch", md->epoch + UINT64_C(1));
	if (ret == 0 && request->rotate) {
		md->epoch++;
		log_info("tokens of roles are of epoch %u", md->epoch);
		if (*request->role)
			ret = token_for_role(md, request->role, token);
	}
	reply.token = token;
	reply.epoch = md->epoch;
	if (ret == 0)
		ret = rpc_answer(call, &reply.base, &reply.status);
	OPENSSL_cleanse(token, sizeof(token));
	if (request->rotate)
		conns_set_epoch(md->conns, md->epoch);
	return ret;
}

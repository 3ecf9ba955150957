/* remote_admin.c - requests of administrators: nodes, tokens, copies of the catalog. */
#include "client/meta/remote.h"

#include "wire/control.pb-c.h"

#include <errno.h>
#include <string.h>

/* -------- nodes -------- */

/* -------- nodes -------- */

int remote_drain_node(struct meta *meta, const char *node, struct rlv_drain_info *out)
{
	Relive__NodeNameRequest request = RELIVE__NODE_NAME_REQUEST__INIT;
	const Relive__NodeDrainReply *drain;
	ProtobufCMessage *reply;
	int ret;

	request.name = (char *)node;
	ret = rpc_get(meta->rpc, RELIVE__TYPE__TYPE_NODE_DRAIN, &request.base,
		      &relive__node_drain_reply__descriptor, &reply);
	if (ret)
		return ret;
	drain = (const Relive__NodeDrainReply *)reply;
	out->shards = drain->shards;
	out->items_left = drain->items_left;
	out->items_begin = drain->items_begin;
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

int remote_drop_node(struct meta *meta, const char *node)
{
	Relive__NodeNameRequest request = RELIVE__NODE_NAME_REQUEST__INIT;

	request.name = (char *)node;
	return rpc_tell(meta->rpc, RELIVE__TYPE__TYPE_NODE_DROP, &request.base, true);
}

int remote_forget_node(struct meta *meta, const char *node)
{
	Relive__NodeNameRequest request = RELIVE__NODE_NAME_REQUEST__INIT;

	request.name = (char *)node;
	return rpc_tell(meta->rpc, RELIVE__TYPE__TYPE_NODE_FORGET, &request.base, true);
}

int remote_rebalance(struct meta *meta, const char *table, uint32_t *added_out,
		     uint32_t *draining_out)
{
	Relive__TableRebalanceRequest request = RELIVE__TABLE_REBALANCE_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_TABLE_REBALANCE,
		.once = true,
		.request = &request.base,
		.reply = &relive__table_rebalance_reply__descriptor,
	};
	ProtobufCMessage *reply;
	int ret;

	request.name = (char *)table;
	ret = rpc_ask(meta->rpc, &call, &reply);
	if (ret)
		return ret;
	*added_out = ((const Relive__TableRebalanceReply *)reply)->added;
	*draining_out = ((const Relive__TableRebalanceReply *)reply)->draining;
	protobuf_c_message_free_unpacked(reply, NULL);
	return 0;
}

int remote_persist(struct meta *meta)
{
	Relive__Empty request = RELIVE__EMPTY__INIT;

	return rpc_tell(meta->rpc, RELIVE__TYPE__TYPE_PERSIST, &request.base, false);
}

/* -------- tokens -------- */

int remote_token(struct meta *meta, const char *role, bool rotate, char *token_out,
		 uint32_t *epoch_out)
{
	Relive__TokenRequest request = RELIVE__TOKEN_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_TOKEN,
		.once = rotate,
		.request = &request.base,
		.reply = &relive__token_reply__descriptor,
	};
	const Relive__TokenReply *token;
	ProtobufCMessage *reply;
	size_t len;
	int ret;

	request.role = role ? (char *)role : (char *)"";
	request.rotate = rotate;
	ret = rpc_ask(meta->rpc, &call, &reply);
	if (ret)
		return ret;
	token = (const Relive__TokenReply *)reply;
	len = strlen(token->token);
	if (token_out && (len == 0 || len >= RLV_TOKEN_BYTES))
		ret = error_set(-EPROTO, "answer of the metadata server: a token of %zu characters",
				len);
	else if (token_out)
		memcpy(token_out, token->token, len + 1);
	if (ret == 0 && epoch_out)
		*epoch_out = token->epoch;
	protobuf_c_message_free_unpacked(reply, NULL);
	return ret;
}

/* -------- copy of the catalog -------- */

/* One piece. A connection that broke has no copy begun, so that nothing is asked twice. */
static int ask_piece(struct meta *meta, uint64_t offset, ProtobufCMessage **reply_out)
{
	Relive__BackupRequest request = RELIVE__BACKUP_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_BACKUP,
		.once = true,
		.request = &request.base,
		.reply = &relive__backup_reply__descriptor,
	};

	request.offset = offset;
	return rpc_ask(meta->rpc, &call, reply_out);
}

int remote_backup(struct meta *meta, int (*take)(void *ctx, const void *bytes, size_t len),
		  void *ctx)
{
	uint64_t done = 0, total = 1;

	while (done < total) {
		const Relive__BackupReply *piece;
		ProtobufCMessage *reply;
		int ret = ask_piece(meta, done, &reply);

		if (ret)
			return ret;
		piece = (const Relive__BackupReply *)reply;
		total = piece->total;
		done += piece->data.len;
		if (piece->data.len == 0 || done > total)
			ret = error_set(-EPROTO, "backup: the server sent %zu of %llu bytes",
					piece->data.len, (unsigned long long)total);
		else
			ret = take(ctx, piece->data.data, piece->data.len);
		protobuf_c_message_free_unpacked(reply, NULL);
		if (ret)
			return ret;
	}
	return 0;
}

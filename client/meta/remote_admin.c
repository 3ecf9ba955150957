/* remote_admin.c - requests of administrators: nodes, tokens, copies of the catalog. */
#include "client/meta/remote.h"

#include "wire/control.pb-c.h"

#include <errno.h>
#include <string.h>

/* -------- nodes -------- */

int remote_drain_node(struct meta *meta, const char *node, struct rlv_drain_info *out)
{
	Relive__NodeNameRequest request = RELIVE__NODE_NAME_REQUEST__INIT;
	Relive__NodeDrainReply *drain;
	int ret;

	request.name = (char *)node;
	ret = remote_get(meta, RELIVE__TYPE__TYPE_NODE_DRAIN, &request.base,
			 &relive__node_drain_reply__descriptor, &drain);
	if (ret)
		return ret;
	out->shards = drain->shards;
	out->items_left = drain->items_left;
	out->items_begin = drain->items_begin;
	protobuf_c_message_free_unpacked(&drain->base, NULL);
	return 0;
}

int remote_remove_node(struct meta *meta, const char *node, bool forget)
{
	Relive__NodeNameRequest request = RELIVE__NODE_NAME_REQUEST__INIT;
	uint16_t type = forget ? RELIVE__TYPE__TYPE_NODE_FORGET : RELIVE__TYPE__TYPE_NODE_DROP;

	request.name = (char *)node;
	return remote_tell(meta, type, &request.base, true);
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
	Relive__TableRebalanceReply *reply;
	int ret;

	request.name = (char *)table;
	ret = rpc_ask(meta->rpc, &call, &reply);
	if (ret)
		return ret;
	if (added_out)
		*added_out = reply->added;
	if (draining_out)
		*draining_out = reply->draining;
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	return 0;
}

int remote_persist(struct meta *meta)
{
	Relive__Empty request = RELIVE__EMPTY__INIT;

	return remote_tell(meta, RELIVE__TYPE__TYPE_PERSIST, &request.base, false);
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
	Relive__TokenReply *token;
	size_t len;
	int ret;

	request.role = role ? (char *)role : (char *)"";
	request.rotate = rotate;
	ret = rpc_ask(meta->rpc, &call, &token);
	if (ret)
		return ret;
	len = strlen(token->token);
	if (token_out && (len == 0 || len >= RLV_TOKEN_BYTES))
		ret = error_set(-EPROTO, "answer of the metadata server: a token of %zu characters",
				len);
	else if (token_out)
		memcpy(token_out, token->token, len + 1);
	if (ret == 0 && epoch_out)
		*epoch_out = token->epoch;
	protobuf_c_message_free_unpacked(&token->base, NULL);
	return ret;
}

/* -------- copy of the catalog -------- */

int remote_backup(struct meta *meta, int (*take)(void *ctx, const void *bytes, size_t len),
		  void *ctx)
{
	/* A connection that broke has no copy begun, so that nothing is asked twice. */
	Relive__BackupRequest request = RELIVE__BACKUP_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_BACKUP,
		.once = true,
		.request = &request.base,
		.reply = &relive__backup_reply__descriptor,
	};
	uint64_t total = 1;

	while (request.offset < total) {
		Relive__BackupReply *piece;
		int ret = rpc_ask(meta->rpc, &call, &piece);

		if (ret)
			return ret;
		total = piece->total;
		request.offset += piece->data.len;
		if (piece->data.len == 0 || request.offset > total)
			ret = error_set(-EPROTO, "backup: the server sent %zu of %llu bytes",
					piece->data.len, (unsigned long long)total);
		else
			ret = take(ctx, piece->data.data, piece->data.len);
		protobuf_c_message_free_unpacked(&piece->base, NULL);
		if (ret)
			return ret;
	}
	return 0;
}

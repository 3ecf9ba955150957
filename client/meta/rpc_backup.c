#include "client/meta/rpc.h"

#include <errno.h>

/* One piece. A connection that broke has no copy begun, so that nothing is asked twice. */
static int ask_piece(struct rpc *rpc, uint64_t offset, ProtobufCMessage **reply_out)
{
	Relive__BackupRequest request = RELIVE__BACKUP_REQUEST__INIT;
	struct rpc_call call = {
		.type = RELIVE__TYPE__TYPE_BACKUP,
		.once = true,
		.request = &request.base,
		.reply = &relive__backup_reply__descriptor,
	};

	request.offset = offset;
	return rpc_ask(rpc, &call, reply_out);
}

int rpc_backup(struct rpc *rpc, int (*take)(void *ctx, const void *bytes, size_t len), void *ctx)
{
	uint64_t done = 0, total = 1;

	while (done < total) {
		const Relive__BackupReply *piece;
		ProtobufCMessage *reply;
		int ret = ask_piece(rpc, done, &reply);

		if (ret)
			return ret;
		piece = (const Relive__BackupReply *)reply;
		total = piece->total;
		done += piece->data.len;
		if (piece->data.len == 0 || done > total)
			ret = error_set(-EPROTO, "backup: %zu bytes of %llu", piece->data.len,
					(unsigned long long)total);
		else
			ret = take(ctx, piece->data.data, piece->data.len);
		protobuf_c_message_free_unpacked(reply, NULL);
		if (ret)
			return ret;
	}
	return 0;
}

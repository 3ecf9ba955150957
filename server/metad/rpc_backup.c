/*
 * rpc_backup.c - sends a copy of the catalog in pieces that fit a frame. The copy is made for the
 * first piece, and kept with the connection until the last piece was sent.
 */
#include "server/metad/rpc_call.h"

#include <errno.h>

#include "base/mem/alloc.h"
#include "base/bits.h"

struct rpc_backup {
	struct rpc_backup *next;
	const struct conn *conn;
	uint8_t *bytes;
	size_t len;
};

void rpc_backup_forget(struct metad *md, const struct conn *conn)
{
	struct rpc_backup **link = &md->backups, *backup;

	while ((backup = *link) != NULL) {
		if (conn && backup->conn != conn) {
			link = &backup->next;
			continue;
		}
		*link = backup->next;
		statedb_backup_free(backup->bytes);
		mem_free(backup);
	}
}

int rpc_backup(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__BackupRequest *request = (const Relive__BackupRequest *)message;
	Relive__BackupReply reply = RELIVE__BACKUP_REPLY__INIT;
	struct metad *md = call->md;
	struct rpc_backup *backup;
	int ret;

	if (request->offset == 0) {
		rpc_backup_forget(md, call->conn);
		backup = mem_zalloc(sizeof(*backup));
		if (!backup)
			return error_set(-ENOMEM, "backup: cannot allocate memory");
		ret = statedb_backup(md->store, &backup->bytes, &backup->len);
		if (ret) {
			mem_free(backup);
			return ret;
		}
		backup->conn = call->conn;
		backup->next = md->backups;
		md->backups = backup;
	}
	for (backup = md->backups; backup && backup->conn != call->conn;)
		backup = backup->next;
	if (!backup || request->offset > backup->len)
		return error_set(-ESTALE,
				 "backup: the server restarted meanwhile: start the backup again");
	reply.total = backup->len;
	reply.data.data = backup->bytes + request->offset;
	reply.data.len = min_u64(backup->len - request->offset, 512 << 10);
	ret = rpc_answer(call, &reply.base, &reply.status);
	if (request->offset + reply.data.len == backup->len)
		rpc_backup_forget(md, call->conn);
	return ret;
}

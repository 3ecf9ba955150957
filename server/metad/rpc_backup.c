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

static int backup_begin(const struct call *call)
{
	struct rpc_backup *backup = mem_zalloc(sizeof(*backup));
	int ret;

	rpc_backup_forget(call->md, call->conn);
	if (!backup)
		return error_set(-ENOMEM, "backup: cannot allocate memory");
	ret = statedb_backup(call->md->store, &backup->bytes, &backup->len);
	if (ret) {
		mem_free(backup);
		return ret;
	}
	backup->conn = call->conn;
	backup->next = call->md->backups;
	call->md->backups = backup;
	return 0;
}

void rpc_backup(const struct call *call, const ProtobufCMessage *message)
{
	const Relive__BackupRequest *request = (const Relive__BackupRequest *)message;
	Relive__BackupReply reply = RELIVE__BACKUP_REPLY__INIT;
	int ret = request->offset == 0 ? backup_begin(call) : 0;
	const struct rpc_backup *backup = call->md->backups;
	Relive__Status status;

	while (backup && backup->conn != call->conn)
		backup = backup->next;
	if (ret == 0 && (!backup || request->offset > backup->len))
		ret = error_set(-ESTALE,
				"backup: the server restarted meanwhile: start the backup again");
	rpc_set_status(&status, ret);
	reply.status = &status;
	if (ret == 0) {
		reply.total = backup->len;
		reply.data.data = backup->bytes + request->offset;
		reply.data.len = min_u64(backup->len - request->offset, 512 << 10);
	}
	conn_answer(call->conn, call->head, &reply.base);
	if (ret == 0 && request->offset + reply.data.len == backup->len)
		rpc_backup_forget(call->md, call->conn);
}

/*
 * Rpc: requests to the metadata server: decode, dispatch, encode.
 */
#ifndef RLV_SERVER_METAD_RPC_H
#define RLV_SERVER_METAD_RPC_H

#include "server/metad/metad.h"

/* Serves a frame of an authenticated peer: answers it, now or later; errors are answered as a
   status. After a message that cannot be decoded, closes the connection. */
void rpc_serve(struct metad *md, struct conn *conn, const struct channel_frame *frame);

/* Advances all requests that wait for memory nodes, and answers those that are complete. */
void rpc_go_on(struct metad *md);
/* Run when conn closes: its waiting requests go on without an answer; its backup is freed. */
void rpc_forget(struct metad *md, const struct conn *conn);
void rpc_fini(struct metad *md);

/* Frees the copies of the catalog that are being sent over conn; NULL: over any connection. */
void rpc_backup_forget(struct metad *md, const struct conn *conn);

#endif

/*
 * Rpc: requests to the metadata server: decode, dispatch, encode.
 */
#ifndef RLV_SERVER_METAD_RPC_H
#define RLV_SERVER_METAD_RPC_H

#include "server/metad/metad.h"

/* Serves a frame of an authenticated peer: answers it, or drops the connection. */
void rpc_serve(struct metad *md, struct conn *conn, const struct channel_frame *frame);

/* Advance requests that wait for nodes. */
void rpc_go_on(struct metad *md);
/* The connection closes: drop its pending answers. */
void rpc_forget(struct metad *md, const struct conn *conn);
void rpc_fini(struct metad *md);

/* Drop unfinished catalog transfers: over conn, or NULL = all. */
void rpc_backup_forget(struct metad *md, const struct conn *conn);

#endif

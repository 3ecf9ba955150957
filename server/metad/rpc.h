/*
 * Rpc: what may be asked of the metadata server: decode, dispatch, encode.
 */
#ifndef RLV_SERVER_METAD_RPC_H
#define RLV_SERVER_METAD_RPC_H

#include "server/metad/metad.h"

/* A frame of a peer that has proved the token. Answers it, or drops the connection. */
void rpc_serve(struct metad *md, struct conn *conn, const struct channel_frame *frame);

/* Requests that wait for nodes: does what can be done of them now. */
void rpc_go_on(struct metad *md);
/* The connection ends: nobody is to be answered there. */
void rpc_forget(struct metad *md, const struct conn *conn);
void rpc_fini(struct metad *md);

/* Copies of the catalog that were not sent to the end: over conn, or NULL = all. */
void rpc_backup_forget(struct metad *md, const struct conn *conn);

#endif

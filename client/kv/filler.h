/*
 * filler.h - private to client/kv: a thread of a handle that puts into parts with copies. Copies that lack
 * something are filled by their part's owner; this thread does so while the program makes no call.
 *
 * The turn of a handle is a lock that each call holds, and the thread for each piece: 64 KiB, or what one
 * entry has. Handles of heaps without copies have neither.
 */
#ifndef RLV_CLIENT_KV_FILLER_H
#define RLV_CLIENT_KV_FILLER_H

#include "client/kv/kv.h"

void kv_turns_init(struct rlv_kv *kv);
/* Ends the thread: waits for the piece that it fills; a forked child has no such thread. */
void kv_turns_fini(struct rlv_kv *kv, bool forked);

/* Begins and ends a call. -ECHILD in a forked child whose parent was filling. */
RLV_MUST_CHECK int kv_turn_begin(struct rlv_kv *kv);
void kv_turn_end(struct rlv_kv *kv);

/* Starts the thread, if it does not run. Without it copies are filled by puts and rlv_kv_repair alone. */
void kv_filler_start(struct rlv_kv *kv);

#endif

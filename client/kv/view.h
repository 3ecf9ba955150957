/*
 * view.h - private to client: a value in chunks that is held (ds/heap/keys.h), and mapped a second time: its shares, which are whole
 * pages, side by side. It stays readable when its part leaves.
 */
#ifndef RLV_CLIENT_KV_VIEW_H
#define RLV_CLIENT_KV_VIEW_H

#include "client/kv/kv.h"

#include "base/mem/alloc.h"

struct kv_view {
	struct rlv_kv *kv; /* which stays open meanwhile */
	struct heap_hold hold;
	struct pages_view value, line; /* value.at: hold.len bytes */
	pid_t pid;
};

/*
 * Holds the newest version of a key. *out has no manifest if the value is in one entry, or in chunks without a lead; then it is not to be
 * closed. Errors: those of heap_hold; -ENOTSUP: also with copies, or where the memory cannot be mapped twice. Thread: owner.
 */
RLV_MUST_CHECK int kv_view_open(struct rlv_kv *kv, struct rlv_bytes key, struct kv_view *out);
/* Thread: any. */
void kv_view_close(struct kv_view *view);

#endif

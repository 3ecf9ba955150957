/*
 * view.h - private to client: a value in chunks that is held (ds/heap/keys.h), and mapped a second time, so that it
 * stays readable when its part leaves.
 */
#ifndef RLV_CLIENT_KV_VIEW_H
#define RLV_CLIENT_KV_VIEW_H

#include "client/kv/kv.h"

#include "base/mem/alloc.h"

struct kv_view {
	struct rlv_kv *kv; /* which stays open meanwhile */
	struct heap_hold hold;
	uint64_t rows_off; /* of rows.at in the region */
	struct pages_view rows, line;
	pid_t pid;
};

/*
 * Holds the newest version of a key. *out has no manifest if the value is in one entry; then it is not to be closed.
 * Errors: those of heap_hold; -ENOTSUP: also with copies, or where the memory cannot be mapped twice. Thread: owner.
 */
RLV_MUST_CHECK int kv_view_open(struct rlv_kv *kv, struct rlv_bytes key, struct kv_view *out);
/* Thread: any. */
void kv_view_close(struct kv_view *view);

/* n bytes of the value from that offset on, if they are in one chunk; else NULL. */
const void *kv_view_at(const struct kv_view *view, uint64_t off, uint64_t n);
/* Copies n bytes from that offset on, all of which the value has. */
void kv_view_copy(const struct kv_view *view, uint64_t off, uint64_t n, void *to);

#endif

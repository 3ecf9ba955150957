/*
 * kv.h - private to client/kv: a handle of a heap. It has a client slot, connections and open parts of
 * its own; the state of a part is a struct heap_access. A call goes to one part, which the hash of the
 * key chooses; kv_run makes it until it is done, fails for good, or has no time left.
 */
#ifndef RLV_CLIENT_KV_KV_H
#define RLV_CLIENT_KV_KV_H

#include "client/part/part_set.h"
#include "client/store/store.h"

#include "ds/heap/copies.h"
#include "ds/heap/keys.h"

#include "relive/kv.h"

#include "base/os/lock.h"

#include <pthread.h>
#include <stdatomic.h>

struct kv_filler {
	struct lock turn;
	_Atomic uint32_t stop; /* futex */
	pthread_t thread;
	pid_t pid;
	bool runs;
	bool fills; /* the turn is the thread's */
};

struct rlv_kv {
	struct rlv_store *store;
	struct heap_desc desc;
	struct part_set set;
	struct meta_slot slot;       /* owner 0 = a reader */
	uint64_t window_bytes;       /* of each access, as heap_access.window_bytes */
	bool fenced;                 /* in some part: the slot is not ours any more */
	struct kv_owned *owned;      /* of each part, if parts have copies: copies.c */
	uint32_t at[HEAP_MAX_PARTS]; /* the catalog's part that has each part */
	struct kv_filler filler;     /* if parts have copies: filler.c */
	_Atomic uint32_t n_views;    /* open ones: view.h */
	struct kv_stripes *stripes;  /* NULL: values stay in their part */
	const void *last;            /* access of the last call: what it gave out lies there */
	void *kept[2];               /* or here, if the access has ended since */
};

/* A call on one part. */
struct kv_call {
	uint32_t part;
	int (*step)(void *ctx, struct heap_access *acc);
	void *ctx;
	bool once; /* do not wait: -EAGAIN is returned */
	bool puts;
};

/*
 * Enters, and makes the step again after a lost connection, and while it returns -EAGAIN or the part
 * is away, for timeout_ns at most. A step whose put is in doubt is not made again. Errors: of entering and
 * of the step; -EHOSTDOWN, -EOWNERDEAD.
 */
RLV_MUST_CHECK int kv_run(struct rlv_kv *kv, const struct kv_call *call, int64_t timeout_ns);

/* -EINVAL: no handle, or a key that cannot be. */
RLV_MUST_CHECK int kv_key_check(const struct rlv_kv *kv, struct rlv_bytes key);

/* rlv_kv_put, of bytes that may lie in several places; then put->len is above one extent. */
RLV_MUST_CHECK int kv_put(struct rlv_kv *kv, struct rlv_bytes key, const struct heap_put *put,
			  uint64_t *version_out);

/* Starts a call that has that much time, and looks at the parts. */
RLV_MUST_CHECK int kv_enter(struct rlv_kv *kv, int64_t timeout_ns);

/* The part, or a copy of it, has moved: asks the server where to, at most once in its back-off time. -EAGAIN. */
RLV_MUST_CHECK int kv_seek(struct rlv_kv *kv);

#define KV_NOWHERE UINT32_MAX

/* NULL: the part is away. */
static inline struct heap_access *kv_access(const struct rlv_kv *kv, uint32_t part)
{
	uint32_t s = kv->at[part];

	return s < kv->set.n_parts ? kv->set.states[s] : NULL;
}

/* True if that part of the catalog will never be there again. */
static inline bool kv_part_is_gone(const struct rlv_kv *kv, uint32_t s)
{
	uint32_t state = kv->set.statuses[s].state;

	return state != RLV_SHARD_ACTIVE && state != RLV_SHARD_DRAINING && state != RLV_SHARD_DOWN;
}

#endif

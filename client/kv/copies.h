/*
 * copies.h - private to client/kv: which copy of a part a call goes to, who may put there, and repair.
 * Without copies, part p of the heap is part p of the set.
 */
#ifndef RLV_CLIENT_KV_COPIES_H
#define RLV_CLIENT_KV_COPIES_H

#include "client/kv/kv.h"

/* -ENOMEM. */
RLV_MUST_CHECK int kv_copies_init(struct rlv_kv *kv);
/* Gives all parts back that can be reached. */
void kv_copies_fini(struct rlv_kv *kv);
/* When no access is open. */
void kv_copies_free(struct rlv_kv *kv);

/*
 * Access to part p: of its primary; if `puts`, as its owner, who this client becomes if nobody is, or as one of
 * several writers.
 * -EHOSTDOWN: the primary, or for a put any copy, is away; -EAGAIN; -EBUSY: another client owns it;
 * -EOWNERDEAD; errors of the transport. Cost: none while nothing changes.
 */
RLV_MUST_CHECK int kv_copy(struct rlv_kv *kv, uint32_t p, bool puts, struct heap_access **acc_out);

/* A put in part p failed with that code: if it may have changed something, the next one settles. */
void kv_copies_failed(struct rlv_kv *kv, uint32_t p, int code);

/* Before the access ends, or what it mirrors to. */
void kv_copies_forget(struct heap_access *acc);

/* Adds the whole copies that are open, of all parts. */
void kv_copies_count(const struct rlv_kv *kv, struct rlv_kv_info *info);

/* Adds heads and entries that differ in copies of the part to the report's problems. */
RLV_MUST_CHECK int kv_copies_compare(struct rlv_kv *kv, uint32_t p, struct rlv_kv_report *report);

/* Fills a piece of each part of which we are the owner. True: copies lack something still. */
bool kv_copies_fill(struct rlv_kv *kv);

/* After a put, of that many bytes in chunks: fills copies of part p that lack something by a piece, as
   rlv_kv_repair. What fails is tried again behind the next put. */
void kv_copies_go_on(struct rlv_kv *kv, uint32_t p, uint64_t bytes);

#endif

/*
 * Meta waits: what calls wait for, as a client tells its server with the lease, and as the server tells
 * of all clients.
 */
#ifndef RLV_CLIENT_META_WAITS_H
#define RLV_CLIENT_META_WAITS_H

#include "client/meta/meta.h"

#include "wire/control.pb-c.h"

#define META_WAITS_SENT 4u

struct rpc;
struct rlv_wait;

/* Copies of watches, and the messages that point into them: it stays where it is. */
struct meta_waits {
	uint32_t n;
	struct meta_watch at[META_WAITS_SENT];
	Relive__Waiting waits[META_WAITS_SENT], *list[META_WAITS_SENT];
};

/* Notes a wait. true: it is the first word for a while. The watch's list is locked, for both. */
bool meta_waits_note(struct meta_watch *watch, const struct meta_wait *wait);
/* The first of the list whose calls wait now. */
void meta_waits_collect(const struct meta_watch *first, struct meta_waits *out);

/* As rlv_store_waits. */
RLV_MUST_CHECK int meta_waits_ask(struct rpc *rpc, struct rlv_wait *waits, size_t *n_inout);

#endif

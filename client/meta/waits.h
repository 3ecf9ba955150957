/*
 * Meta waits: waits of calls, as a client reports them with lease renewals.
 */
#ifndef RLV_CLIENT_META_WAITS_H
#define RLV_CLIENT_META_WAITS_H

#include "client/meta/meta.h"

#include "wire/control.pb-c.h"

#define META_WAITS_SENT 4u

/* Copies of watches, and messages that point into them: must not be moved. */
struct meta_waits {
	uint32_t n;
	struct meta_watch at[META_WAITS_SENT];
	Relive__Waiting waits[META_WAITS_SENT], *list[META_WAITS_SENT];
};

/* Records a wait. True if it is the first report for a while. The caller holds the lock of the
   watch list, here and in meta_waits_collect. */
bool meta_waits_note(struct meta_watch *watch, const struct meta_wait *wait);
/* Collects the listed watches whose calls wait now, up to the room. */
void meta_waits_collect(const struct meta_watch *first, struct meta_waits *out);

#endif

/*
 * Fence: settles the slot of a client in one part after its death was proved.
 *
 * Only the metadata server (embed: recovery under the store's lock) calls it, after the target's
 * fence or a pidfd proved that the owner made its last store. Settling a live owner breaks rule 1:
 * two parties would write its words.
 *
 * A server killed at any point settles the same slot again (it finds it FENCED, or LIVE and dead as
 * before) and reaches the same state, by this order:
 *
 *   1. dirty += 1 unless it was idle   before a pass is unblocked; a repeat costs one more pass
 *   2. state LIVE -> FENCED            rebuilds no longer wait for it
 *   3. its rebuild -> ownerless        so that the next rebuilder can take it over
 *   4. settle the kind's structure     ds/replay/settle.h
 *   5. pin -> IDLE, then FENCED -> FREE: the owner id may be reused
 */
#ifndef RLV_DS_PART_FENCE_H
#define RLV_DS_PART_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/part.h"

#include "base/error.h"

/* Step 4: settles the owner's state in the structure of the part. May be called again. */
struct fence_kind {
	int (*settle)(void *ctx, struct part *part, uint32_t owner);
	void *ctx;
};

struct fence_report {
	bool was_idle;    /* no drift: needs no rebuild */
	bool had_rebuild; /* it ran a rebuild, which needs a successor */
};

/*
 * Settles the dead owner's slot in one part and frees it. A free slot is a no-op. report_out may be
 * NULL. Errors: -EINVAL (no such owner, or its page is not attached), -EIO (a lost answer), errors
 * of transport and kind; after all but -EINVAL call again.
 * Cost: 6 phases plus the cost of the kind. Thread: setup.
 */
RLV_MUST_CHECK int fence_settle(struct part *part, uint32_t owner, const struct fence_kind *kind,
				struct fence_report *report_out);

#endif

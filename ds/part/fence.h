/*
 * Fence: what is done to a part after it was proved that an owner is dead.
 *
 * Only the metadata server (embed: recovery under the store's lock) calls it, and only after the
 * target's fence or a pidfd gave the proof: the owner's last store has been made. Settling a live
 * owner breaks rule 1: what it owns would be written by two.
 *
 * Order, so that a server that is killed anywhere settles the same slot again (it finds it FENCED,
 * or live and dead as before) and ends in the same state:
 *
 *   1. dirty += 1 unless it was idle   before anything lets a pass go on; twice costs one pass more
 *   2. state LIVE -> FENCED            no rebuild waits for it any more
 *   3. a rebuild that it ran -> ownerless, so that the next rebuilder may take it over
 *   4. what the kind of the part has of it (ds/replay/settle.h)
 *   5. promise -> IDLE, then FENCED -> FREE: the owner id may be given to another
 */
#ifndef RLV_DS_PART_FENCE_H
#define RLV_DS_PART_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/part.h"

#include "base/error.h"

/* Step 4: settles what the owner has in the structure of the part. It may be called again. */
struct fence_kind {
	int (*settle)(void *ctx, struct part *part, uint32_t owner);
	void *ctx;
};

struct fence_report {
	bool was_idle;    /* no drift: no rebuild is needed for it */
	bool had_rebuild; /* it ran a rebuild, which waits for a successor */
};

/*
 * Settles the dead owner's slot in one part. A free slot is a no-op. report_out may be NULL. Errors:
 * -EINVAL (owner), -EIO (an answer was lost: call again), those of the transport and of the kind: again.
 * Cost: 6 phases, and those of the kind. Thread: setup.
 */
RLV_MUST_CHECK int fence_settle(struct part *part, uint32_t owner, const struct fence_kind *kind,
				struct fence_report *report_out);

#endif

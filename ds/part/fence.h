/*
 * Fence: what is done to a shard after it was proved that an owner is dead.
 *
 * Only the metadata server (embed: recovery under the store's lock) calls it, and only after the
 * target's fence or a pidfd gave the proof: the owner's last store has been made. Settling a live
 * owner breaks rule 1: its blocks would be written by two.
 *
 * Order, so that a server that is killed anywhere settles the same slot again (it finds it FENCED,
 * or live and dead as before) and ends in the same state:
 *
 *   1. dirty += 1 unless it was idle   before anything lets a pass go on; twice costs one pass more
 *   2. state LIVE -> FENCED            no rebuild waits for it any more
 *   3. a rebuild that it ran -> ownerless, so that the next rebuilder may take it over
 *   4. its open blocks -> closed       leaves untouched: what it published stays
 *   5. per view, both sides: admitted -= what its page says is not committed, at most what all
 *      clients have admitted and not committed; then the page says so. A server killed between these two gives one reservation back twice: slack by it, as
 *      for a client killed between its own two. The other order would lose it, and a queue
 *      would wait for ever.
 *   6. promise -> IDLE, then FENCED -> FREE: the owner id may be given to another
 */
#ifndef RLV_DS_PART_FENCE_H
#define RLV_DS_PART_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/error.h"

struct fence_report {
	bool was_idle;          /* no drift: no rebuild is needed for it */
	bool had_rebuild;       /* it ran a rebuild, which waits for a successor */
	uint32_t closed;        /* blocks */
	uint64_t given_back[2]; /* admissions of inserts and of samples, all views */
};

/*
 * Settles the dead owner's slot in one shard. A free slot is a no-op. report_out may be NULL.
 * Errors: -EINVAL (owner), -EIO (an answer was lost: call again), those of the transport: again.
 * Cost: 6 phases, 4 for each side of a view that owes, and one for each 256 blocks. Thread: setup.
 */
RLV_MUST_CHECK int fence_settle(struct shard *shard, uint32_t owner,
				struct fence_report *report_out);

/* Closes open blocks of the owner; 0 = of anybody (recovery). Same cost and errors. */
RLV_MUST_CHECK int fence_close_blocks(struct shard *shard, uint32_t owner, uint32_t *closed_out);

#endif

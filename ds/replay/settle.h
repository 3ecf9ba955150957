/*
 * Settle: cleans up the state of a dead owner in a shard, besides its slot (ds/part/fence.h).
 *
 *   open blocks -> closed   leaves untouched: published items stay
 *   admitted -= rest        per view and side: rest = uncommitted admissions of its page, at most
 *                           those outstanding of all clients; then the page is updated
 *
 * A server killed between these two gives one reservation back twice: slack, as for a client
 * killed between its own two. The other order would lose it, and a queue would wait for ever.
 */
#ifndef RLV_DS_REPLAY_SETTLE_H
#define RLV_DS_REPLAY_SETTLE_H

#include <stdint.h>

#include "ds/part/fence.h"
#include "ds/replay/shard.h"

#include "base/error.h"

struct shard_settled {
	struct fence_report fence;
	uint32_t closed;        /* blocks */
	uint64_t given_back[2]; /* admissions of inserts and of samples, all views */
};

/*
 * Settles the dead owner's slot and state in a shard: fence_settle with shard_settle_dead, same
 * errors. report_out may be NULL. Cost: 6 phases, 4 for each side of a view that owes, and one for
 * each 256 blocks. Thread: setup.
 */
RLV_MUST_CHECK int shard_settle(struct shard *shard, uint32_t owner,
				struct shard_settled *report_out);

/*
 * Closes the dead owner's open blocks and gives its uncommitted admissions back: the settle hook of
 * struct fence_kind. ctx: struct shard_settled to fill in, or NULL.
 */
RLV_MUST_CHECK int shard_settle_dead(void *ctx, struct part *part, uint32_t owner);

/*
 * Closes open blocks of the owner; 0 = of all (recovery). *closed_out: how many. -EIO: an answer
 * was lost. Cost: one phase for each 256 blocks.
 */
RLV_MUST_CHECK int shard_close_blocks(struct shard *shard, uint32_t owner, uint32_t *closed_out);

#endif

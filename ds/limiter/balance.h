/*
 * Balance: puts the counts of a queue right after kills.
 *
 * In a view whose items are taken once and whose limiter bounds both sides, inserted - sampled is
 * the number of its items. A writer killed between publish and commit leaves items that are not
 * counted and never admitted to a sampler; a learner killed between take and commit leaves room
 * that no insert is ever admitted to, and the queue would wedge by and by. No order of the two steps
 * avoids both, and the slot of the dead does not say which of them happened. The leaves do.
 *
 * They are asked at a moment when no client is in a call, which is proved, not waited for:
 *
 *   read the four words and all slots; read the sizes of the trees; read slots and words again
 *
 * A call announces itself in its slot before it admits (rule 8) and is out of it only after it has
 * committed. Slots that are quiet and the same twice mean that nothing was published or taken in
 * between. The corrections are additions, so what begins afterwards is not in the way.
 */
#ifndef RLV_DS_LIMITER_BALANCE_H
#define RLV_DS_LIMITER_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/error.h"

/* Has the view counts to balance: taken once, both sides bounded, one sample for each insert? */
bool balance_applies(const struct view_desc *view);

/*
 * Balances one view of a table: all n shards that it has, the control shard first. *moved_out: counts
 * that were wrong, items that were not counted below zero, items that were taken by the dead above.
 * Errors: -EAGAIN (somebody is in a call, or a shard waits for its rebuild: later), -EIO (an answer
 * was lost: again), those of the transport. One caller at a time: the metadata server, or embed's
 * recovery. Cost: 4 phases, 2 for each 64 clients, 1 for each shard. Thread: setup.
 */
RLV_MUST_CHECK int balance_view(struct shard *const *shards, uint32_t n, uint32_t view,
				int64_t *moved_out);

#endif

/*
 * Balance: corrects the counts of a queue after kills.
 *
 * In a view whose items are sampled once and whose limiter bounds both sides, inserted - sampled
 * is the number of its items. A writer killed between publish and commit leaves items that are
 * not counted and never admitted to a sampler; a learner killed between consume and commit
 * leaves room that no insert is admitted to, and the queue wedges over time. No order of the two
 * steps avoids both, and the slot of the dead client does not tell them apart. The leaves do.
 *
 * The leaves are counted while no client is in a call. This is proved, not waited for:
 *
 *   read the four words and all slots; read the sizes of the trees; read slots and words again
 *
 * A call announces itself in its slot before it admits (rule 8) and withdraws only after it has
 * committed. If all slots are quiet and both reads are equal, nothing was published or consumed
 * in between. The corrections are additions, so calls that begin later do not conflict.
 */
#ifndef RLV_DS_LIMITER_BALANCE_H
#define RLV_DS_LIMITER_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/error.h"

/*
 * True if balance_view applies to the view: its items are sampled once, the limiter bounds inserts
 * and samples, and samples_per_insert is 1.
 */
bool balance_applies(const struct view_desc *view);

/*
 * Corrects the limiter counts of one view of a table from the number of its live items. shards: all
 * n of the table, the control shard first. *moved_out: the correction; negative = items that were
 * not counted as inserted, positive = items that dead clients consumed.
 * Errors: -EAGAIN (a client is in a call, counts changed meanwhile, or a shard needs a rebuild:
 * retry later), -EIO (an answer was lost: retry), those of the transport. One caller at a time: the
 * metadata server, or embed's recovery. Cost: 4 phases, 2 for each 64 clients, 1 for each shard.
 * Thread: setup.
 */
RLV_MUST_CHECK int balance_view(struct shard *const *shards, uint32_t n, uint32_t view,
				int64_t *moved_out);

#endif

/*
 * Migrate: the walk of a rebuild over the leaves of one view. Private to ds/sumtree/rebuild.c.
 *
 * A CAS moves the tag of every leaf from e to e+1, and the priority that the CAS found is added
 * to arr[e+1]. A leaf that has the new tag was moved, with its priority, by the client that
 * changed it.
 */
#ifndef RLV_DS_SUMTREE_MIGRATE_H
#define RLV_DS_SUMTREE_MIGRATE_H

#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/error.h"

struct migrate_counts {
	uint64_t live_leaves;   /* moved by the walk */
	uint64_t repaired_tags; /* found with a tag of no current epoch */
	uint64_t lost_answers;  /* atomics without a result: the sums may be wrong */
};

/*
 * The mode of the shard is DUAL of this epoch and the caller is its rebuilder. Adds to *counts,
 * also on an error of the transport, after which the sums lack some. At return all additions
 * are complete.
 * Cost in phases: leaves / 128 + nodes / 256.
 */
RLV_MUST_CHECK int sumtree_migrate(struct shard *shard, uint32_t view, uint32_t epoch,
				   struct migrate_counts *counts);

#endif

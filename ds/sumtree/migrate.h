/*
 * Migrate: the walk of a rebuild over one view's leaves. Private to ds/sumtree/rebuild.c.
 *
 * Every leaf's tag goes from e to e+1 by CAS, and the priority that the CAS found is added to
 * arr[e+1]. A leaf that has the new tag was moved by whoever changed it, with its priority.
 */
#ifndef RLV_DS_SUMTREE_MIGRATE_H
#define RLV_DS_SUMTREE_MIGRATE_H

#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/error.h"

struct migrate_counts {
	uint64_t live_leaves;   /* that the walk moved */
	uint64_t repaired_tags; /* that were of no current epoch */
	uint64_t lost_answers;  /* atomics without a result: the sums may be wrong */
};

/*
 * The shard's mode is DUAL of this epoch and the caller its rebuilder. *counts is added to, also on
 * an error, after which additions are missing: those of the transport. All additions are complete
 * at return. Cost: leaves / 256 x 2 phases, and nodes / 256.
 */
RLV_MUST_CHECK int sumtree_migrate(struct shard *shard, uint32_t view, uint32_t epoch,
				   struct migrate_counts *counts);

#endif

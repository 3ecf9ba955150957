/*
 * Memnode pool: marks in the row regions of a persistent pool (wire/region.h) that say whether the
 * pool is in use and may hold rows that are not durable.
 *
 *   begin   before any client is served: keeps the found mark for recovery, and sets it, durably;
 *           other processes that have the pool mapped continue
 *   made    new region: sets its mark, durably, before the region is announced
 *   end     after the last client: if no process maps the rows, makes rows, then tree, durable, and
 *           clears the mark if the shard was recovered: the next life need not read the rows
 *
 * Thread: setup; one caller at a time.
 */
#ifndef RLV_SERVER_MEMNODE_POOL_H
#define RLV_SERVER_MEMNODE_POOL_H

#include "transport/transport.h"

#include "base/error.h"

#define MEMNODE_POOL_END_NS (500 * CLOCK_NS_PER_MS) /* time for other processes to unmap */

/* Run before any client is served: marks the rows of each part as in use, durably; where no other
   process has the part mapped, first keeps the mark found. Errors: those of persist; -ENOMEM. */
RLV_MUST_CHECK int memnode_pool_begin(struct transport_target *target);
RLV_MUST_CHECK int memnode_pool_made(struct transport_target *target,
				     const struct target_region *region);

/* Makes the pool durable and clears its marks. Waits up to MEMNODE_POOL_END_NS for other processes
   to unmap it; regions still in use keep their mark. Failures are logged. */
void memnode_pool_end(struct transport_target *target);

#endif

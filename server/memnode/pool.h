/*
 * Memnode pool: what a node says in the rows of a pool that it keeps (wire/region.h): who has it, and
 * that rows may be stored which are not durable.
 *
 *   begin   before anybody is served: the mark that is found is kept for who makes the shards sound,
 *           and set, durably; while others still have the pool mapped, they go on
 *   made    a new region: its mark is set, durably, before anybody hears of it
 *   end     after the last: where nobody has the rows any more, rows, then tree, are made durable, and
 *           the mark is cleared, if the shard was made sound meanwhile. So the next life need not
 *           read them
 *
 * Thread: setup; made by one at a time.
 */
#ifndef RLV_SERVER_MEMNODE_POOL_H
#define RLV_SERVER_MEMNODE_POOL_H

#include "transport/transport.h"

#include "base/error.h"

#define MEMNODE_POOL_END_NS (500 * CLOCK_NS_PER_MS) /* that others may take to let go */

/* Errors: those of persist; -ENOMEM. */
RLV_MUST_CHECK int memnode_pool_begin(struct transport_target *target);
RLV_MUST_CHECK int memnode_pool_made(struct transport_target *target,
				     const struct target_region *region);

/* Waits briefly for clients that are closing. Regions still in use keep their mark. */
void memnode_pool_end(struct transport_target *target);

#endif

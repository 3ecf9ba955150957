/*
 * Repair: rebuilds the sums of shards where somebody died in the middle of a call, one pass of one
 * shard for each call, so that the loop answers in between.
 *
 * The server is an owner like any other meanwhile, with a slot of its own in that table.
 */
#ifndef RLV_SERVER_REPAIR_H
#define RLV_SERVER_REPAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "server/catalog.h"
#include "server/liveness.h"

#include "base/clock.h"

#define REPAIR_WORDS_BYTES 160

struct repair {
	struct catalog *cat;
	const struct liveness *live;
	const struct clock *clock;
	struct slot_holder self; /* client id: that of our attachments */
	uint32_t done;           /* rebuilds, for STORE_INFO */
	uint32_t table_id;       /* where the next look begins */
	/* What exact sums of each table wait for, as of the last look; "" = nothing. */
	char waiting[TABLE_MAX_ID + 1][REPAIR_WORDS_BYTES];
};

/* Does one slice of work, if there is any. Returns when to call again, at the latest. */
uint64_t repair_tick(struct repair *repair);

#endif

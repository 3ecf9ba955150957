/*
 * Repair: rebuilds the sums of shards where somebody died in the middle of a call, one pass of one
 * shard for each call, so that the loop answers in between.
 *
 * The server is an owner like any other meanwhile, with a slot of its own in that table.
 */
#ifndef RLV_SERVER_CATALOG_REPAIR_H
#define RLV_SERVER_CATALOG_REPAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "server/catalog/catalog.h"
#include "server/node/liveness.h"

#include "base/os/clock.h"

#define REPAIR_WORDS_BYTES 160

/* What exact sums of a table wait for, as of the last look; words "" = nothing. */
struct repair_wait {
	char words[REPAIR_WORDS_BYTES];
	uint32_t pid;
	uint32_t owner; /* 1 + its client slot; 0 = for a slot of our own */
	uint32_t shard;
	uint64_t since; /* on repair->clock */
};

struct repair {
	struct catalog *cat;
	const struct liveness *live;
	const struct clock *clock;
	struct slot_holder self;                      /* client id: that of our attachments */
	uint32_t done;                                /* rebuilds, for STORE_INFO */
	uint32_t table_id;                            /* where the next look begins */
	struct repair_wait waiting[TABLE_MAX_ID + 1]; /* by table id */
};

/* Does one slice of work, if there is any. Returns when to call again, at the latest. */
uint64_t repair_tick(struct repair *repair);

#endif

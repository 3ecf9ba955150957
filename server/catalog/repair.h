/*
 * Repair: rebuilds the sums of parts in which a client died inside a call, and completes what parts lack
 * (object_kind.mend). Each call does one pass over one part, so that the event loop stays responsive.
 *
 * Meanwhile the server is an ordinary owner, with its own client slot in that object.
 */
#ifndef RLV_SERVER_CATALOG_REPAIR_H
#define RLV_SERVER_CATALOG_REPAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "catalog/catalog.h"
#include "server/node/liveness.h"

#include "base/os/clock.h"

#define REPAIR_WORDS_BYTES 160

/* The reason why an object's rebuild waits, as of the last look; words "" = none. */
struct repair_wait {
	char words[REPAIR_WORDS_BYTES];
	uint32_t pid;
	uint32_t owner; /* 1 + its client slot; 0 = waiting for a slot of our own */
	uint32_t shard;
	uint64_t since; /* time of repair->clock */
};

struct repair {
	struct catalog *cat;
	const struct liveness *live;
	const struct clock *clock;
	struct slot_holder self;                       /* client id of our attachments */
	uint32_t done;                                 /* number of rebuilds, for STORE_INFO */
	uint32_t table_id;                             /* object at which the next look starts */
	struct repair_wait waiting[OBJECT_MAX_ID + 1]; /* indexed by object id */
};

/* Does one pass over one part whose sums need a rebuild, if any. Returns the latest time of the
   next call. */
uint64_t repair_tick(struct repair *repair);

#endif

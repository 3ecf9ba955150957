/*
 * Regions: whose the regions are that a node reports, and what becomes of those that are nobody's.
 *
 *   a shard's or a making's   kept
 *   given up by this catalog  freed: that stands in the store before anything of it is freed or asked
 *                             for: a shard that is GONE, or LOST in memory; of tables that were
 *                             dropped, the regions (leftovers); shards on their way (makings)
 *   unknown                   never freed unasked: the node is refused, until a person says what
 *                             becomes of it (catalog_adopt.c)
 *
 * A making that a restart has cut short proves nothing about a region in which a block was ever opened:
 * the shard may have been published after the copy of a catalog was taken. That one is unknown, too.
 */
#ifndef RLV_SERVER_CATALOG_REGIONS_H
#define RLV_SERVER_CATALOG_REGIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/node/node.h"

#include "base/error.h"

struct catalog;
struct catalog_arrival;
struct catalog_table;

enum region_owner {
	OWNER_TABLE, /* a shard has it, or one that is being made */
	OWNER_NONE,  /* given up */
	OWNER_UNKNOWN,
	OWNER_ADOPTED, /* unknown, and to be taken in: catalog_adopt.c */
};

/* Of region i of the arrival. Errors of the store. */
RLV_MUST_CHECK int catalog_region_owner(const struct catalog *cat,
					const struct catalog_arrival *arrival, size_t i,
					enum region_owner *owner_out);

/* Does the node have all regions of the shard? */
bool catalog_regions_of_shard(const struct catalog_arrival *arrival,
			      const struct catalog_table *table, uint32_t s);

/* The region of that role of a shard among those of the arrival; NULL. */
const Relive__NodeRegion *catalog_regions_find(const struct catalog_arrival *arrival,
					       const Relive__NodeRegion *like, uint32_t role);

/*
 * Forgets a table in the store, and notes its regions as given up: before they are retired. After an
 * error, one of the store, nothing has changed.
 */
RLV_MUST_CHECK int catalog_give_up_table(struct catalog *cat, const struct catalog_table *table);

/*
 * Frees a region that was given up: first the word that its users look at (enum region_state), in a
 * mapping that they keep, then, posted, the memory: now, or by catalog_retire_tick, where the node has
 * to be asked. id 0 is a no-op. Failures are logged: the node's next registration brings it up again.
 */
void catalog_retire_region(struct catalog *cat, struct node *node, uint32_t id, uint32_t state);

/* Forgets what is still to be freed. */
void catalog_retire_forget(struct catalog *cat);

/* The regions of a shard, where its node is up; detached before. */
void catalog_retire_shard(struct catalog *cat, struct catalog_table *table, uint32_t s,
			  uint32_t state);
/* All of the table. */
void catalog_retire_table(struct catalog *cat, struct catalog_table *table);

/* The memory alone, of what was never formatted. */
void catalog_free_region(struct catalog *cat, struct node *node, uint32_t id);

#endif

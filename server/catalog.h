/*
 * Catalog: tables, where their shards are, and our own attachment to each of them.
 *
 * A table is made in an order that leaves nothing but a leak, wherever we are killed:
 *
 *   1. store: table CREATING, its laps set aside       a restart forgets the table
 *   2. nodes: two regions for each shard               a restart frees what no table owns
 *   3. regions: formatted, live
 *   4. store: shards and table LIVE                    from here on it is there
 *
 * and dropped so: store: DROPPING; regions: state DROPPED, freed; store: forgotten. A region that
 * a node reports and no live table owns is dropped in the same way: first the word that its users
 * look at, then the memory.
 *
 * A shard whose node comes back with empty memory is lost: its old memory, which we and the
 * clients still have mapped, is marked ORPHANED, and nobody can open it again. There are never
 * two pools under one name.
 */
#ifndef RLV_SERVER_CATALOG_H
#define RLV_SERVER_CATALOG_H

#include <stdbool.h>
#include <stdint.h>

#include "server/catalog_table.h"
#include "server/nodes.h"
#include "server/store.h"

#include "wire/control.pb-c.h"

struct catalog {
	struct store *store;
	struct nodes *nodes;
	struct store_ids ids;
	struct catalog_table *tables[TABLE_MAX_ID + 1]; /* by id */
	uint32_t last_id;
	/* Somebody holds a slot of a shard that was just attached. */
	void (*on_holder)(void *ctx, const struct slot_holder *holder);
	void *ctx;
};

/* catalog is zeroed but for store, nodes, on_holder. No node is up yet. */
RLV_MUST_CHECK int catalog_load(struct catalog *cat);
void catalog_fini(struct catalog *cat);

struct catalog_table *catalog_find(const struct catalog *cat, const char *name);
/* By id and uuid: NULL if it was dropped. */
struct catalog_table *catalog_find_same(const struct catalog *cat, uint32_t id, const uint8_t *uuid,
					size_t uuid_len);
uint32_t catalog_count(const struct catalog *cat);

/*
 * Makes the table, or finds the one of that name and signature. desc is input and checked here.
 * -EEXIST, -ENOSPC (no node has room; the message says how much), -EHOSTDOWN (no node is up),
 * -EPROTO, -EBADMSG (descriptor), those of the store.
 */
RLV_MUST_CHECK int catalog_create(struct catalog *cat, const struct table_desc *desc,
				  struct catalog_table **table_out);
RLV_MUST_CHECK int catalog_drop(struct catalog *cat, const char *name);

/* Rights for a client on one shard. -EHOSTDOWN: its node is down, or the shard is lost. */
struct catalog_grants {
	struct region_grant tree;
	struct region_grant rows;
};

RLV_MUST_CHECK int catalog_grant(struct catalog_table *table, uint32_t shard, uint64_t client_id,
				 bool read_only, struct catalog_grants *out);

/*
 * A node joined. regions: what it has now. replaced: it is another life of it than we knew.
 * Attaches what is ours, marks what is lost, frees what nobody owns. Failures are logged.
 */
struct catalog_arrival {
	struct node *node;
	bool replaced;
	const Relive__NodeRegion *const *regions;
	size_t n_regions;
};

void catalog_node_up(struct catalog *cat, const struct catalog_arrival *arrival);
/* A node hung up: gives the mappings of a file pool back, so that it can be opened alone. */
void catalog_node_down(struct catalog *cat, struct node *node);

#endif

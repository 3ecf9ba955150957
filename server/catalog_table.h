/*
 * Catalog table: one table of the catalog, its shards and our attachment to their regions.
 */
#ifndef RLV_SERVER_CATALOG_TABLE_H
#define RLV_SERVER_CATALOG_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/shard.h"

#include "server/node.h"
#include "server/slots.h"
#include "server/store.h"

struct catalog_shard {
	struct node *node;
	uint64_t incarnation; /* of the node that has the regions */
	uint32_t tree_id;
	uint32_t rows_id;
	bool drift; /* its sums may be off: repair.h looks */
};

struct catalog_table {
	struct table_desc desc; /* shard 0's */
	struct catalog_shard *shards;
	struct shard **attached; /* NULL where not */
	bool *lost;
	struct slots slots;
};

/* NULL and a message: no memory. */
struct catalog_table *catalog_table_new(const struct table_desc *desc);
/* Detaches all; NULL is a no-op. */
void catalog_table_free(struct catalog_table *table);

/* Opens shard s, whose regions are formatted, and closes it. */
RLV_MUST_CHECK int catalog_table_attach(struct catalog_table *table, uint32_t s);
void catalog_table_detach(struct catalog_table *table, uint32_t s);

/* Attaches both regions of a shard, formatted or not. */
RLV_MUST_CHECK int catalog_attach_pair(struct node *node, const struct catalog_shard *place,
				       struct region **tree, struct region **rows);

/*
 * Drops a region: first the word that its users look at, in a mapping that they keep, then the
 * memory. 0 is a no-op. Failures are logged: the node's next registration brings it up again.
 */
void catalog_retire_region(struct node *node, uint32_t id);

/* All regions of the table, where the nodes are up. */
void catalog_table_retire(struct catalog_table *table);

/* Remembers where shard s is. */
RLV_MUST_CHECK int catalog_table_put_shard(struct store *store, const struct catalog_table *table,
					   uint32_t s);

#endif

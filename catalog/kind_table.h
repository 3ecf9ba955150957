/*
 * Kind table: replay tables. Their parts are shards, rings of rows with sum trees.
 *
 *   kind_table.c   the hooks of kind.h      plan.c   descriptor of a new table
 *   control.c      the control shard        adopt.c  tables that a pool brings
 */
#ifndef RLV_CATALOG_KIND_TABLE_H
#define RLV_CATALOG_KIND_TABLE_H

#include "ds/limiter/limiter.h"
#include "ds/replay/shard.h"

#include "catalog/catalog.h"

/*
 * Laps of the ring reserved for one life of a table: keys of two lives never collide, even if the
 * server did not see the end of the first. Dropping the table records the laps really used.
 */
#define TABLE_LAPS ((uint64_t)1 << 16)

/* State of a table: catalog_object.state. */
struct table_state {
	struct table_desc desc; /* of shard 0; the stored descriptor */
	bool words_known;
	struct limiter_words words[RING_MAX_VIEWS]; /* last reading from the control shard */
	/* Drain: words that a shard gave to the new control shard, by shard. */
	struct limiter_words handed[TABLE_MAX_SHARDS][RING_MAX_VIEWS];
};

extern const struct object_kind kind_table;

/* NULL is no table. */
static inline bool object_is_table(const struct catalog_object *object)
{
	return object && object->kind == &kind_table;
}

/* Returns the state of an object that is a table (object_is_table). */
static inline struct table_state *table_state_of(const struct catalog_object *table)
{
	return table->state;
}

struct table_wish {
	struct table_desc desc;
	bool auto_shards;  /* the number of shards follows the nodes; desc is planned for one */
	bool crc_by_nodes; /* add row checksums if a node wants them */
	struct table_plan_opts opts; /* remote is computed from the nodes */
};

/*
 * Checks the wish's descriptor (-EPROTO, -EBADMSG: invalid), then creates the table as
 * catalog_create.
 */
RLV_MUST_CHECK int table_create(struct catalog *cat, const struct table_wish *wish,
				struct catalog_object **table_out);

/* *out: the descriptor of a new table, computed for the nodes that are up now. */
RLV_MUST_CHECK int table_plan_for(const struct catalog *cat, const struct table_wish *wish,
				  struct table_desc *out);
/* True if the table's descriptor results from this wish, for any number of shards. */
bool table_is_wish_of(const struct catalog_object *table, const struct catalog_wish *wish);

/* *items_out: live items of a view in a shard, from the size word of its sum tree. */
RLV_MUST_CHECK int table_shard_items(struct shard *shard, uint32_t view, uint64_t *items_out);

/*
 * Reads the limiter words of the control shard into the table's state: the hook look. A failure is
 * logged. The hook tick, catalog_control_tick, moves the control shard if it is lost.
 */
void catalog_control_read(struct catalog_object *table);
void catalog_control_tick(struct catalog *cat, struct catalog_object *table);
/*
 * If shard s is the control shard, makes another shard the control shard, with its limiter words,
 * and returns 1; else returns 0. -EAGAIN: no other shard is available.
 */
RLV_MUST_CHECK int catalog_control_hand_over(struct catalog *cat, struct catalog_object *table,
					     uint32_t s);
/*
 * Adds what clients counted at shard `from`, since it handed its limiter words over, to the words
 * of the present control shard. -EHOSTDOWN: one of the two is not attached.
 */
RLV_MUST_CHECK int catalog_control_settle(struct catalog_object *table, uint32_t from);

#endif

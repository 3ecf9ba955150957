/*
 * Table: an open table, as its handles and the calls of the API share it.
 */
#ifndef RLV_CLIENT_TABLE_TABLE_H
#define RLV_CLIENT_TABLE_TABLE_H

#include "client/part/part_set.h"
#include "client/store/store.h"

struct table_seen; /* last counts of shards, used while they are unreachable: table.c */

struct rlv_table {
	struct rlv_store *store;
	struct table_desc desc; /* shard 0's */
	struct lock lock;       /* role table_lock: all below */
	struct part_set set;    /* for info and verify */
	struct table_seen *seen;
	uint32_t open_handles;
};

/* The parts of a table are shards; descriptors are struct table_desc. */
extern const struct part_kind table_kind;

/* As rlv_table_create; load: of a table that a load makes (meta_wish), or NULL. -EEXIST: a load finds
   one of that name, and is not to be beside it; -EBUSY: another load makes it. */
RLV_MUST_CHECK int table_create_for(struct rlv_store *store, const char *name,
				    const struct rlv_table_opts *opts, const struct meta_load *load,
				    struct rlv_table **table_out);

/* Counts a handle of the table in (delta 1) or out (-1); while some are open, rlv_table_close
   refuses. */
void table_handle_count(struct rlv_table *table, int delta);

#endif

/*
 * Store and table handles: what the verbs of the API share.
 */
#ifndef RLV_CLIENT_STORE_STORE_H
#define RLV_CLIENT_STORE_STORE_H

#include "client/store/abi.h"
#include "client/store/backoff.h"
#include "client/meta/meta.h"
#include "client/table/node.h"
#include "client/store/uri.h"

#include "base/os/lock.h"

struct rlv_store {
	struct meta *meta;
	struct uri uri;
	char uri_text[URI_TEXT_BYTES];
	int64_t timeout_ns, stall_ns;
	bool read_only;
	struct lock lock; /* role store_lock: open_tables */
	uint32_t open_tables;
};

struct table_seen; /* what info has seen of shards that may be away now: client/table/table.c */

struct rlv_table {
	struct rlv_store *store;
	struct meta_table place;
	struct lock lock;      /* role table_lock: all below */
	struct node_set nodes; /* for info and verify */
	struct table_seen *seen;
	uint32_t open_handles;
};

/* Counts a table of the store in (1) and out (-1). */
void store_table_count(struct rlv_store *store, int delta);

/* A call that needs memory nodes to be there, within the store's timeout. Those of embed: never come. */
struct store_wait {
	uint64_t deadline_ns;
	struct backoff backoff;
};

struct store_wait store_wait_begin(const struct rlv_store *store);

/*
 * What the call met. 0: nodes were away, it has slept a little: try again. Else the error to
 * return: none of theirs, or they have not come in time.
 */
RLV_MUST_CHECK int store_wait_nodes(struct store_wait *wait, int error);

/* Does the store keep its rows in a file? Then rows carry a crc by default. */
bool store_is_file(const struct rlv_store *store);

/* Counts a handle of the table in and out, so that close can refuse. */
void table_handle_get(struct rlv_table *table);
void table_handle_put(struct rlv_table *table);

#endif

/*
 * Store: the records that a catalog needs again after a restart. The metadata server keeps them in
 * SQLite (server/statedb). A process with the pool in its own hands keeps none of them
 * (client/meta/embed.c): the regions themselves say what there is.
 *
 *   numbers   by key: last object id, newest layout, loaders of objects
 *   objects   kind, number, name, state, and    parts    locations of their regions, and
 *             the descriptor of its kind                 state
 *   laps      (table id, shard) -> first lap of the ring that was never used there
 *   makings   parts that are being made         leftovers  regions that were given up
 *   nodes     name, address, incarnation,       clients  leases: identity of the holder
 *             draining, lost, pool
 *
 * Nodes and clients are records of the server. Each put and delete is a transaction of its own,
 * unless between store_begin and store_end. A failed transaction changes nothing. Errors of all
 * calls: -ENOSPC (disk full), -EIO, -ENOMEM, -EBADMSG (damaged). Thread: owner.
 */
#ifndef RLV_CATALOG_STORE_H
#define RLV_CATALOG_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/region.h"

#include "base/error.h"
#include "base/os/process.h"

#define STORE_NAME_BYTES 64
#define STORE_URI_BYTES 256
#define STORE_KEY_BYTES 16

enum store_rows {
	STORE_NUMBERS,
	STORE_OBJECTS,
	STORE_PARTS,
	STORE_LAPS,
	STORE_MAKINGS,
	STORE_LEFTOVERS,
	STORE_NODES,
	STORE_CLIENTS,
	STORE_ROWS,
};

/* The key of each record is named behind it. */

struct store_number { /* key */
	char key[STORE_KEY_BYTES];
	uint64_t value;
};

enum store_object_state {
	STORE_OBJECT_CREATING = 1, /* regions being created: deleted at a restart */
	STORE_OBJECT_LIVE = 2,
	STORE_OBJECT_LOADING = 3, /* LIVE for the client of store_loader alone */
};

struct store_object {  /* object: objects of all kinds are numbered in one sequence */
	uint32_t kind; /* enum kind_id */
	uint32_t object;
	char name[STORE_NAME_BYTES];
	uint32_t state;
	const void *desc; /* descriptor, in the format of its kind; borrowed during the call */
	size_t desc_len;
	uint32_t control; /* number of the control part, of kinds that have one */
	bool auto_parts;  /* the number of parts follows the nodes */
};

struct store_part { /* object, part */
	uint32_t kind, object, part;
	char node[STORE_NAME_BYTES];
	uint64_t incarnation; /* incarnation of the node when the regions were last confirmed */
	uint32_t regions[REGION_ROLES]; /* region ids, by role */
	uint32_t state;                 /* enum part_state: ACTIVE, DRAINING, LOST, GONE */
};

struct store_lap { /* table_id, shard */
	uint32_t table_id, shard;
	uint64_t first;
};

/*
 * Provisioning record: a node was asked for a part's regions and may have created them. It exists
 * until the part is published there, or the node has reported its regions.
 */
struct store_making { /* node, object, part */
	char node[STORE_NAME_BYTES];
	uint32_t kind, object, part;
	uint8_t uuid[16]; /* uuid of the object */
};

/* A region that the catalog gave up and that its node may still have. It is never used again. */
struct store_leftover { /* node, region */
	char node[STORE_NAME_BYTES];
	uint32_t region;
	uint8_t uuid[16]; /* uuid in its superblock, or zero: not formatted */
};

struct store_node { /* name */
	char name[STORE_NAME_BYTES];
	char uri[STORE_URI_BYTES];
	uint64_t incarnation;
	bool persistent;
	bool draining;
	bool lost;
	uint8_t pool[16]; /* uuid of a persistent pool; zero: none */
};

struct store_client { /* id */
	uint64_t id;
	struct process_id process;
	uint8_t secret[32]; /* SHA-256 of the secret that resumes the lease */
};

/* Identity of the store, and how often it was opened. */
struct store_ids {
	uint8_t uuid[16];
	uint64_t term;
};

struct catalog_store;

/* NULL: nothing is kept. */
struct store_ops {
	int (*begin)(struct catalog_store *store);
	int (*end)(struct catalog_store *store, int code);
	int (*put)(struct catalog_store *store, enum store_rows rows, const void *record);
	int (*remove)(struct catalog_store *store, enum store_rows rows, const void *record,
		      uint32_t n_keys);
	int (*find)(struct catalog_store *store, enum store_rows rows, void *record,
		    bool *found_out);
	int (*each)(struct catalog_store *store, enum store_rows rows,
		    int (*fn)(void *ctx, const void *record), void *ctx);
};

/* Head of every implementation. */
struct catalog_store {
	const struct store_ops *ops;
	struct store_ids ids;
};

static inline RLV_MUST_CHECK int store_begin(struct catalog_store *store)
{
	return store->ops->begin ? store->ops->begin(store) : 0;
}

/* Commits if code is 0; else rolls back and returns code. */
static inline RLV_MUST_CHECK int store_end(struct catalog_store *store, int code)
{
	return store->ops->end ? store->ops->end(store, code) : code;
}

/* Inserts the record, or replaces the one that has its key. */
static inline RLV_MUST_CHECK int store_put(struct catalog_store *store, enum store_rows rows,
					   const void *record)
{
	return store->ops->put(store, rows, record);
}

/* Deletes all records that have the first n_keys members of the record's key. */
static inline RLV_MUST_CHECK int store_delete(struct catalog_store *store, enum store_rows rows,
					      const void *record, uint32_t n_keys)
{
	return store->ops->remove ? store->ops->remove(store, rows, record, n_keys) : 0;
}

/*
 * Finds a record by its key, which is set in *record. *found_out: there is one, and the rest of
 * *record is filled in.
 */
static inline RLV_MUST_CHECK int store_find(struct catalog_store *store, enum store_rows rows,
					    void *record, bool *found_out)
{
	return store->ops->find(store, rows, record, found_out);
}

/* Calls fn for each record, ordered by key, until it returns non-zero, which is then the result. */
static inline RLV_MUST_CHECK int store_each(struct catalog_store *store, enum store_rows rows,
					    int (*fn)(void *ctx, const void *record), void *ctx)
{
	return store->ops->each ? store->ops->each(store, rows, fn, ctx) : 0;
}

/* *value_out: the number stored under the key; 0 if absent. */
RLV_MUST_CHECK int store_number(struct catalog_store *store, const char *key, uint64_t *value_out);
RLV_MUST_CHECK int store_number_put(struct catalog_store *store, const char *key, uint64_t value);

/* *client_out: the client that loads the object, a number in the store; 0: none. put with 0 deletes it. */
RLV_MUST_CHECK int store_loader(struct catalog_store *store, uint32_t object, uint64_t *client_out);
RLV_MUST_CHECK int store_loader_put(struct catalog_store *store, uint32_t object, uint64_t client);

/* Deletes the object, its parts and its loader; its laps stay. */
RLV_MUST_CHECK int store_object_delete(struct catalog_store *store, uint32_t object);

/*
 * *first_out: the lowest lap that a new shard of this (table id, shard) may start at, so that keys
 * never repeat; 0 if the pair was never used.
 */
RLV_MUST_CHECK int store_lap(struct catalog_store *store, uint32_t table_id, uint32_t shard,
			     uint64_t *first_out);
/* Raises the lap that store_lap gives for (table id, shard) to `first`; never lowers it. */
RLV_MUST_CHECK int store_lap_raise(struct catalog_store *store, uint32_t table_id, uint32_t shard,
				   uint64_t first);

#endif

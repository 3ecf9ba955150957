/*
 * Statedb: durable state of the metadata server, in SQLite (WAL, synchronous FULL). It has no item
 * data: the regions are authoritative for items.
 *
 *   meta      uuid of the store, term (incremented at each start), last table id, own lease
 *   objects   kind, number, name, state, and    parts    locations of their regions, and
 *             the descriptor of its kind                 state
 *   laps      (table id, shard) -> first lap of the ring that was never used there
 *   nodes     name, address, incarnation,       clients  leases: identity of the holder
 *             draining, lost, pool
 *   provisionings  parts that are being made    leftovers  regions that were given up
 *
 * Each put is a transaction of its own, unless between statedb_begin and statedb_commit. A failed
 * transaction changes nothing. Each row has a crc32c; opening checks all rows and the structure of
 * the database, and leaves a damaged database unchanged: -EBADMSG. Errors of all calls: -ENOSPC
 * (disk full), -EIO, -ENOMEM, -EBADMSG (not a database, damaged), -EACCES, -EBUSY (another process
 * has it open). Thread: owner.
 */
#ifndef RLV_SERVER_STATEDB_STATEDB_H
#define RLV_SERVER_STATEDB_STATEDB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/region.h"

#include "base/error.h"
#include "base/os/process.h"

#define STORE_NAME_BYTES 64
#define STORE_URI_BYTES 256

/* Application id in the header of an SQLite file, as bytes and as a number. */
#define STORE_APPLICATION "RLVC"
#define STORE_APPLICATION_ID 0x524c5643u

struct statedb;

enum statedb_object_state {
	STORE_OBJECT_CREATING = 1, /* regions being created: deleted at a restart */
	STORE_OBJECT_LIVE = 2,
};

/* Objects of all kinds are numbered in one sequence: the number alone is the key. */
struct statedb_object {
	uint32_t kind; /* enum kind_id */
	uint32_t object;
	char name[STORE_NAME_BYTES];
	uint32_t state;
	const void *desc; /* descriptor, in the format of its kind; borrowed during the call */
	size_t desc_len;
	uint32_t control; /* number of the control part, of kinds that have one */
	bool auto_parts;  /* the number of parts follows the nodes */
};

struct statedb_part {
	uint32_t kind, object, part;
	char node[STORE_NAME_BYTES];
	uint64_t incarnation; /* incarnation of the node when the regions were last confirmed */
	uint32_t regions[REGION_ROLES]; /* region ids, by role */
	uint32_t state;                 /* enum Relive__ShardState: ACTIVE, DRAINING, LOST, GONE */
};

struct statedb_node {
	char name[STORE_NAME_BYTES];
	char uri[STORE_URI_BYTES];
	uint64_t incarnation;
	bool persistent;
	bool draining;
	bool lost;
	uint8_t pool[16]; /* uuid of a persistent pool; zero: none */
};

/*
 * Provisioning record: a node was asked for a part's regions and may have created them. It exists
 * until the part is published there, or the node has reported its regions.
 */
struct statedb_making {
	char node[STORE_NAME_BYTES];
	uint32_t kind, object, part;
	uint8_t uuid[16]; /* uuid of the object */
};

/* A region that the catalog gave up and that its node may still have. It is never used again. */
struct statedb_leftover {
	char node[STORE_NAME_BYTES];
	uint32_t region;
	uint8_t uuid[16]; /* uuid in its superblock, or zero: not formatted */
};

struct statedb_client {
	uint64_t id;
	struct process_id process;
	uint8_t secret[32]; /* SHA-256 of the secret that resumes the lease */
};

struct statedb_ids {
	uint8_t uuid[16];
	uint64_t term;
};

/*
 * Opens or creates the database and begins a new term; migrates an older schema. -EPROTO: a newer
 * schema, or another program's file. path ":memory:" for tests.
 */
RLV_MUST_CHECK int statedb_open(const char *path, struct statedb **statedb_out);
void statedb_close(struct statedb **store);
void statedb_ids(const struct statedb *store, struct statedb_ids *out);

/*
 * Checks, without writing, that a commit could succeed. -ENOENT: the file was removed; -ENOSPC;
 * -EROFS.
 */
RLV_MUST_CHECK int statedb_check(const struct statedb *store);

RLV_MUST_CHECK int statedb_begin(struct statedb *store);
RLV_MUST_CHECK int statedb_commit(struct statedb *store);
void statedb_rollback(struct statedb *store);
/* Commit if code is 0; else roll back and return code. */
RLV_MUST_CHECK int statedb_end(struct statedb *store, int code);

/* Read a number of the meta table; 0 if absent. */
RLV_MUST_CHECK int statedb_number(struct statedb *store, const char *key, uint64_t *value_out);
RLV_MUST_CHECK int statedb_number_put(struct statedb *store, const char *key, uint64_t value);

/* Insert or replace, by (object), (object, part), (name), (id). */
RLV_MUST_CHECK int statedb_object_put(struct statedb *store, const struct statedb_object *object);
RLV_MUST_CHECK int statedb_part_put(struct statedb *store, const struct statedb_part *part);
RLV_MUST_CHECK int statedb_node_put(struct statedb *store, const struct statedb_node *node);
RLV_MUST_CHECK int statedb_node_delete(struct statedb *store, const char *name);
RLV_MUST_CHECK int statedb_client_put(struct statedb *store, const struct statedb_client *client);

/* Deletes the object and its parts; its laps stay. */
RLV_MUST_CHECK int statedb_object_delete(struct statedb *store, uint32_t object);
RLV_MUST_CHECK int statedb_client_delete(struct statedb *store, uint64_t id);

/* Insert or replace by (node, object, part). */
RLV_MUST_CHECK int statedb_making_put(struct statedb *store, const struct statedb_making *making);
RLV_MUST_CHECK int statedb_making_delete(struct statedb *store,
					 const struct statedb_making *making);
/* In: all but uuid. Out, if found: uuid. */
RLV_MUST_CHECK int statedb_making_find(struct statedb *store, struct statedb_making *making,
				       bool *found_out);
RLV_MUST_CHECK int statedb_makings_delete(struct statedb *store, const char *node);

/* Insert or replace by (node, region). */
RLV_MUST_CHECK int statedb_leftover_put(struct statedb *store, const struct statedb_leftover *left);
/* In: node, region. Out, if found: uuid. */
RLV_MUST_CHECK int statedb_leftover_find(struct statedb *store, struct statedb_leftover *left,
					 bool *found_out);
RLV_MUST_CHECK int statedb_leftovers_delete(struct statedb *store, const char *node);

/* 0 if (table id, shard) was never used. */
RLV_MUST_CHECK int statedb_lap(struct statedb *store, uint32_t table_id, uint32_t shard,
			       uint64_t *first_out);
/* Never lowers it. */
RLV_MUST_CHECK int statedb_lap_raise(struct statedb *store, uint32_t table_id, uint32_t shard,
				     uint64_t first);

/* Call fn for each row until it returns non-zero, which is then the result. */
RLV_MUST_CHECK int statedb_each_object(struct statedb *store,
				       int (*fn)(void *ctx, const struct statedb_object *),
				       void *ctx);
RLV_MUST_CHECK int statedb_each_part(struct statedb *store,
				     int (*fn)(void *ctx, const struct statedb_part *), void *ctx);
RLV_MUST_CHECK int statedb_each_node(struct statedb *store,
				     int (*fn)(void *ctx, const struct statedb_node *), void *ctx);
RLV_MUST_CHECK int statedb_each_client(struct statedb *store,
				       int (*fn)(void *ctx, const struct statedb_client *),
				       void *ctx);

/*
 * Copies the whole database while it is in use; freed by statedb_backup_free. -ENOMEM, -EIO,
 * -EBADMSG.
 */
RLV_MUST_CHECK int statedb_backup(struct statedb *store, uint8_t **bytes_out, size_t *len_out);
void statedb_backup_free(uint8_t *bytes);

/* For tests: limit the file to so many 4 KiB pages, to simulate a full disk. */
RLV_MUST_CHECK int statedb_limit_pages(struct statedb *store, uint32_t pages);

#endif

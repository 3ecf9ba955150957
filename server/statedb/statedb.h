/*
 * Store: what the metadata server must not forget, in SQLite (WAL, synchronous FULL). Nothing per
 * item: the truth about items is in the regions.
 *
 *   meta      uuid of the store, term (one more at each start), last table id, own lease
 *   tables    id, name, state, descriptor,      shards   where each one's regions are, and
 *             control shard                              what it is good for
 *   laps      (table id, shard) -> first lap of the ring that was never used there
 *   nodes     name, address, incarnation,       clients  leases: who they are
 *             draining, lost, pool
 *   makings   shards that a node was asked for   leftovers  regions that were given up
 *
 * Every put is one transaction, unless it stands between store_begin and store_commit. When one
 * fails, nothing of it holds. Each row has a crc32c; all are checked, and so is the structure of the
 * database, when it is opened: one that is damaged is -EBADMSG, and as it was. Errors of all calls:
 * -ENOSPC (disk full), -EIO, -ENOMEM, -EBADMSG (not a database, damaged), -EACCES, -EBUSY (another
 * process has it open). Thread: owner.
 */
#ifndef RLV_SERVER_STATEDB_STATEDB_H
#define RLV_SERVER_STATEDB_STATEDB_H

#include "wire/table_layout.h"

#include "base/error.h"
#include "base/os/process.h"

#define STORE_NAME_BYTES 64
#define STORE_URI_BYTES 256

/* Of the header of a SQLite file, as bytes there and as a number. */
#define STORE_APPLICATION "RLVC"
#define STORE_APPLICATION_ID 0x524c5643u

struct statedb;

enum statedb_table_state {
	STORE_TABLE_CREATING = 1, /* its regions are being made: gone after a restart */
	STORE_TABLE_LIVE = 2,
};

struct statedb_table {
	uint32_t state;
	struct table_desc desc;
	uint32_t control; /* number of the shard whose limiter words count */
	bool auto_shards; /* it follows the nodes */
};

struct statedb_shard {
	uint32_t table_id;
	uint32_t shard;
	char node[STORE_NAME_BYTES];
	uint64_t incarnation; /* of the node, when the regions were last known to be there */
	uint32_t regions[REGION_ROLES]; /* their numbers, by role */
	uint32_t state;                 /* enum Relive__ShardState: ACTIVE, DRAINING, LOST, GONE */
};

struct statedb_node {
	char name[STORE_NAME_BYTES];
	char uri[STORE_URI_BYTES];
	uint64_t incarnation;
	bool persistent;
	bool draining;
	bool lost;
	uint8_t pool[16]; /* uuid of a pool that survives it; zero: of none */
};

/*
 * A node was asked for the regions of a shard, and may have made them: until the shard is published
 * there, or the node has said what it holds.
 */
struct statedb_making {
	char node[STORE_NAME_BYTES];
	uint32_t table_id;
	uint32_t shard;
	uint8_t uuid[16]; /* of the table */
};

/* A region that the catalog gave up, and that its node may still have. It never comes back. */
struct statedb_leftover {
	char node[STORE_NAME_BYTES];
	uint32_t region;
	uint8_t uuid[16]; /* of its superblock, or zero: it was not formatted */
};

struct statedb_client {
	uint64_t id;
	struct process_id process;
	uint8_t secret[32]; /* SHA-256 of what resumes the lease */
};

struct statedb_ids {
	uint8_t uuid[16];
	uint64_t term;
};

/*
 * Opens or makes the database and begins a new term; one of an earlier schema is changed to this one.
 * -EPROTO: of another schema, or another program's. path ":memory:" for tests.
 */
RLV_MUST_CHECK int statedb_open(const char *path, struct statedb **statedb_out);
void statedb_close(struct statedb **store);
void statedb_ids(const struct statedb *store, struct statedb_ids *out);

/*
 * Checks, without writing, that a commit could work. -ENOENT: the file is not there any more;
 * -ENOSPC; -EROFS.
 */
RLV_MUST_CHECK int statedb_check(const struct statedb *store);

RLV_MUST_CHECK int statedb_begin(struct statedb *store);
RLV_MUST_CHECK int statedb_commit(struct statedb *store);
void statedb_rollback(struct statedb *store);
/* Commits if code is 0; else rolls back, and answers code. */
RLV_MUST_CHECK int statedb_end(struct statedb *store, int code);

/* A number of the meta table; 0 if it was never put. */
RLV_MUST_CHECK int statedb_number(struct statedb *store, const char *key, uint64_t *value_out);
RLV_MUST_CHECK int statedb_number_put(struct statedb *store, const char *key, uint64_t value);

/* Insert or replace, by (id), (table_id, shard), (name), (id). */
RLV_MUST_CHECK int statedb_table_put(struct statedb *store, const struct statedb_table *table);
RLV_MUST_CHECK int statedb_shard_put(struct statedb *store, const struct statedb_shard *shard);
RLV_MUST_CHECK int statedb_node_put(struct statedb *store, const struct statedb_node *node);
RLV_MUST_CHECK int statedb_node_delete(struct statedb *store, const char *name);
RLV_MUST_CHECK int statedb_client_put(struct statedb *store, const struct statedb_client *client);

/* The table and its shards; its laps stay. */
RLV_MUST_CHECK int statedb_table_delete(struct statedb *store, uint32_t table_id);
RLV_MUST_CHECK int statedb_client_delete(struct statedb *store, uint64_t id);

/* Insert or replace by (node, table_id, shard). */
RLV_MUST_CHECK int statedb_making_put(struct statedb *store,
				      const struct statedb_making *provisioning);
RLV_MUST_CHECK int statedb_making_delete(struct statedb *store, const char *node, uint32_t table_id,
					 uint32_t shard);
/* In: node, table_id, shard. Out, if found: uuid. */
RLV_MUST_CHECK int statedb_making_find(struct statedb *store, struct statedb_making *provisioning,
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

/* Calls fn for each row, until it answers non-zero, which is then the result. */
RLV_MUST_CHECK int statedb_each_table(struct statedb *store,
				      int (*fn)(void *ctx, const struct statedb_table *),
				      void *ctx);
RLV_MUST_CHECK int statedb_each_shard(struct statedb *store,
				      int (*fn)(void *ctx, const struct statedb_shard *),
				      void *ctx);
RLV_MUST_CHECK int statedb_each_node(struct statedb *store,
				     int (*fn)(void *ctx, const struct statedb_node *), void *ctx);
RLV_MUST_CHECK int statedb_each_client(struct statedb *store,
				       int (*fn)(void *ctx, const struct statedb_client *),
				       void *ctx);

/*
 * A copy of the whole database as it is now, while it is in use; freed by store_backup_free.
 * -ENOMEM, -EIO, -EBADMSG.
 */
RLV_MUST_CHECK int statedb_backup(struct statedb *store, uint8_t **bytes_out, size_t *len_out);
void statedb_backup_free(uint8_t *bytes);

/* For tests: no more than so many pages of 4 KiB, so that the disk is full. */
RLV_MUST_CHECK int statedb_limit_pages(struct statedb *store, uint32_t pages);

#endif

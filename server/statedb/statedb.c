#include "server/statedb/statedb.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/mem/alloc.h"
#include "base/bits.h"

#include "server/statedb/sql.h"

/* Columns covered by a row's crc, in schema order. */
#define META_COLUMNS "key, value"
#define OBJECTS_COLUMNS "kind, object, name, state, desc, control, auto_parts"
#define PARTS_COLUMNS "kind, object, part, node, incarnation, tree, rows, state, slots, pages"
#define LAPS_COLUMNS "table_id, shard, first"
#define NODES_COLUMNS "name, uri, incarnation, persistent, draining, lost, pool"
#define CLIENTS_COLUMNS "id, pid, start_time, boot_id, secret"
#define PROVISIONINGS_COLUMNS "node, kind, object, part, uuid"
#define LEFTOVERS_COLUMNS "node, region, uuid"

/* Pools of earlier formats are refused, so their catalogs are, too: there is no migration. */
#define SCHEMA_VERSION 10

static const char schema[] =
	"PRAGMA application_id = 1380734531;" /* STORE_APPLICATION_ID */
	"CREATE TABLE meta (key TEXT PRIMARY KEY, value, crc INTEGER) WITHOUT ROWID;"
	"CREATE TABLE objects (kind INTEGER NOT NULL, object INTEGER PRIMARY KEY, name TEXT NOT NULL,"
	"  state INTEGER NOT NULL, desc BLOB NOT NULL, control INTEGER NOT NULL,"
	"  auto_parts INTEGER NOT NULL, crc INTEGER);"
	"CREATE TABLE parts (kind INTEGER NOT NULL, object INTEGER, part INTEGER, node TEXT NOT NULL,"
	"  incarnation INTEGER NOT NULL, tree INTEGER NOT NULL, rows INTEGER NOT NULL,"
	"  state INTEGER NOT NULL, slots INTEGER NOT NULL, pages INTEGER NOT NULL, crc INTEGER,"
	"  PRIMARY KEY (object, part)) WITHOUT ROWID;"
	"CREATE TABLE laps (table_id INTEGER, shard INTEGER, first INTEGER NOT NULL, crc INTEGER,"
	"  PRIMARY KEY (table_id, shard)) WITHOUT ROWID;"
	"CREATE TABLE nodes (name TEXT PRIMARY KEY, uri TEXT NOT NULL, incarnation INTEGER NOT NULL,"
	"  persistent INTEGER NOT NULL, draining INTEGER NOT NULL, lost INTEGER NOT NULL,"
	"  pool BLOB NOT NULL, crc INTEGER) WITHOUT ROWID;"
	"CREATE TABLE clients (id INTEGER PRIMARY KEY, pid INTEGER NOT NULL,"
	"  start_time INTEGER NOT NULL, boot_id BLOB NOT NULL, secret BLOB NOT NULL, crc INTEGER);"
	"CREATE TABLE provisionings (node TEXT, kind INTEGER NOT NULL, object INTEGER, part INTEGER,"
	"  uuid BLOB NOT NULL, crc INTEGER, PRIMARY KEY (node, object, part)) WITHOUT ROWID;"
	"CREATE TABLE leftovers (node TEXT, region INTEGER, uuid BLOB NOT NULL, crc INTEGER,"
	"  PRIMARY KEY (node, region)) WITHOUT ROWID;"
	"PRAGMA user_version = 10;";

/* Each query reports a damaged row, if any. */
static const char *const checks[] = {
	"SELECT key FROM meta WHERE crc IS NOT crc32c(" META_COLUMNS ")",
	"SELECT object FROM objects WHERE crc IS NOT crc32c(" OBJECTS_COLUMNS ")",
	"SELECT object FROM parts WHERE crc IS NOT crc32c(" PARTS_COLUMNS ")",
	"SELECT table_id FROM laps WHERE crc IS NOT crc32c(" LAPS_COLUMNS ")",
	"SELECT name FROM nodes WHERE crc IS NOT crc32c(" NODES_COLUMNS ")",
	"SELECT id FROM clients WHERE crc IS NOT crc32c(" CLIENTS_COLUMNS ")",
	"SELECT node FROM provisionings WHERE crc IS NOT crc32c(" PROVISIONINGS_COLUMNS ")",
	"SELECT node FROM leftovers WHERE crc IS NOT crc32c(" LEFTOVERS_COLUMNS ")",
};

/* -------- transactions -------- */

int statedb_begin(struct statedb *store)
{
	return statedb_sql_run(store, "BEGIN IMMEDIATE", NULL, 0);
}

int statedb_commit(struct statedb *store)
{
	int ret = statedb_sql_run(store, "COMMIT", NULL, 0);

	if (ret)
		statedb_rollback(store);
	return ret;
}

void statedb_rollback(struct statedb *store)
{
	/* Some errors have already rolled back. */
	if (!sqlite3_get_autocommit(store->db))
		(void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
}

int statedb_end(struct statedb *store, int code)
{
	if (code == 0)
		return statedb_commit(store);
	statedb_rollback(store);
	return code;
}

/* -------- meta -------- */

int statedb_number(struct statedb *store, const char *key, uint64_t *value_out)
{
	const struct statedb_sql_value values[] = { SQL_TEXT(key) };
	sqlite3_stmt *stmt = NULL;
	int rc, ret = statedb_sql_prepare(store, "SELECT value FROM meta WHERE key = ?", values, 1,
					  &stmt);

	if (ret)
		return ret;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*value_out = statedb_sql_column_u64(stmt, 0);
	else if (rc == SQLITE_DONE)
		*value_out = 0;
	else
		ret = statedb_sql_failed(store, rc, "read meta");
	sqlite3_finalize(stmt);
	return ret;
}

int statedb_number_put(struct statedb *store, const char *key, uint64_t value)
{
	const struct statedb_sql_value values[] = { SQL_TEXT(key), SQL_INT(value) };

	return statedb_sql_run(store, "INSERT OR REPLACE INTO meta VALUES (?1, ?2, crc32c(?1, ?2))",
			       values, ARRAY_LEN(values));
}

/* -------- open -------- */

static int read_int(void *ctx, sqlite3_stmt *stmt)
{
	*(int *)ctx = sqlite3_column_int(stmt, 0);
	return 0;
}

/* Table ids start at a random number: tables of two stores rarely collide, and can be adopted. */
static int make_ids(struct statedb *store)
{
	struct statedb_sql_value values[] = { SQL_BLOB(store->ids.uuid, sizeof(store->ids.uuid)) };
	uint8_t last_table;
	int ret;

	if (getrandom(store->ids.uuid, sizeof(store->ids.uuid), 0) !=
		    (ssize_t)sizeof(store->ids.uuid) ||
	    getrandom(&last_table, sizeof(last_table), 0) != (ssize_t)sizeof(last_table))
		return error_set(-EIO, "getrandom: %s", strerror(errno));
	ret = statedb_sql_run(store, "INSERT INTO meta VALUES ('uuid', ?1, crc32c('uuid', ?1))",
			      values, 1);
	return ret ? ret : statedb_number_put(store, "last_table", last_table);
}

static int read_uuid(void *ctx, sqlite3_stmt *stmt)
{
	struct statedb *store = ctx;

	store->has_uuid = true;
	return statedb_sql_column_blob(stmt, 0, store->ids.uuid, sizeof(store->ids.uuid));
}

static int damaged_page(void *ctx, sqlite3_stmt *stmt)
{
	const char *words = (const char *)sqlite3_column_text(stmt, 0);

	(void)ctx;
	return words && strcmp(words, "ok") == 0
		       ? 0
		       : error_set(-EBADMSG, "state database: damaged: %s", words ? words : "");
}

static int damaged_row(void *ctx, sqlite3_stmt *stmt)
{
	const char *key = (const char *)sqlite3_column_text(stmt, 0);

	(void)ctx;
	return error_set(-EBADMSG,
			 "state database: damaged: the crc of a row is wrong, its %s is \"%.64s\"",
			 sqlite3_column_name(stmt, 0), key ? key : "");
}

/* Run before any content is used: SQLite checks its pages, the crc checks rows. */
static int check_content(struct statedb *store)
{
	int ret = statedb_sql_each(store, "PRAGMA integrity_check(1)", damaged_page, NULL);

	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(checks); i++)
		ret = statedb_sql_each(store, checks[i], damaged_row, NULL);
	return ret;
}

static int check_schema(struct statedb *store, const char *path)
{
	int version = 0, application = 0;
	int ret = statedb_sql_each(store, "PRAGMA user_version", read_int, &version);

	if (ret == 0)
		ret = statedb_sql_each(store, "PRAGMA application_id", read_int, &application);
	if (ret)
		return ret;
	if (application && (uint32_t)application != STORE_APPLICATION_ID)
		return error_set(-EPROTO, "state database %s: a file of another program", path);
	if (version != 0 && version != SCHEMA_VERSION)
		return error_set(-EPROTO, "state database %s: schema %d, this server knows %d",
				 path, version, SCHEMA_VERSION);
	if (version == 0) {
		ret = statedb_sql_script(store, schema);
		return ret ? ret : make_ids(store);
	}
	ret = check_content(store);
	if (ret == 0)
		ret = statedb_sql_each(store, "SELECT value FROM meta WHERE key = 'uuid'",
				       read_uuid, store);
	if (ret == 0 && !store->has_uuid)
		ret = error_set(-EBADMSG, "state database: it holds no uuid of a store");
	return ret;
}

static int begin_term(struct statedb *store, const char *path)
{
	int ret = statedb_begin(store);

	if (ret)
		return ret;
	ret = check_schema(store, path);
	if (ret == 0)
		ret = statedb_number(store, "term", &store->ids.term);
	if (ret == 0)
		ret = statedb_number_put(store, "term", ++store->ids.term);
	return statedb_end(store, ret);
}

/*
 * A commit checkpoints the WAL before it returns. So a WAL that is damaged, or missing in a copy of
 * the file, loses nothing. No WAL content is written back before the database was checked.
 */
static int set_up(struct statedb *store)
{
	int rc = sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	int ret = rc == SQLITE_OK ? statedb_sql_add_crc32c(store)
				  : statedb_sql_failed(store, rc, "setup");

	if (ret)
		return ret;
	sqlite3_busy_timeout(store->db, 1000);
	return statedb_sql_script(store,
				  "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
				  "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1;"
				  "PRAGMA cell_size_check = ON;");
}

int statedb_open(const char *path, struct statedb **statedb_out)
{
	struct statedb *store = mem_zalloc(sizeof(*store));
	int rc, ret;

	if (!store)
		return error_set(-ENOMEM, "state database: cannot allocate memory");
	rc = sqlite3_open_v2(path, &store->db,
			     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
			     NULL);
	ret = rc == SQLITE_OK ? set_up(store) : statedb_sql_failed(store, rc, path);
	if (ret == 0)
		ret = begin_term(store, path);
	if (ret) {
		statedb_close(&store);
		return ret;
	}
	(void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
	*statedb_out = store;
	return 0;
}

void statedb_close(struct statedb **store)
{
	if (!*store)
		return;
	(void)sqlite3_close((*store)->db);
	mem_free(*store);
	*store = NULL;
}

void statedb_ids(const struct statedb *store, struct statedb_ids *out)
{
	*out = store->ids;
}

int statedb_check(const struct statedb *store)
{
	const char *path = sqlite3_db_filename(store->db, "main");
	struct statvfs disk;
	int moved = 0;

	(void)sqlite3_file_control(store->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
	if (moved)
		return error_set(
			-ENOENT,
			"state database %s: it was moved or removed, and the server writes "
			"into a file without that name",
			path);
	if (access(path, W_OK) || statvfs(path, &disk))
		return error_set(-errno, "state database %s: %s", path, strerror(errno));
	if (disk.f_bavail * disk.f_frsize < 256 << 10) /* a commit and its WAL need so much */
		return error_set(-ENOSPC, "state database %s: its disk is full", path);
	return 0;
}

/* -------- copies -------- */

static int copy_into(struct statedb *store, sqlite3 *to)
{
	sqlite3_backup *backup = sqlite3_backup_init(to, "main", store->db, "main");
	int rc;

	if (!backup)
		return statedb_sql_failed(store, sqlite3_errcode(to), "backup");
	(void)sqlite3_backup_step(backup, -1);
	rc = sqlite3_backup_finish(backup);
	return rc == SQLITE_OK ? 0 : statedb_sql_failed(store, rc, "backup");
}

int statedb_backup(struct statedb *store, uint8_t **bytes_out, size_t *len_out)
{
	uint8_t *bytes = NULL;
	sqlite3_int64 len = 0;
	sqlite3 *copy = NULL;
	int rc = sqlite3_open(":memory:", &copy), ret;

	ret = rc == SQLITE_OK ? copy_into(store, copy) : statedb_sql_failed(store, rc, "backup");
	if (ret == 0) {
		bytes = sqlite3_serialize(copy, "main", &len, 0);
		ret = bytes ? 0
			    : error_set(-ENOMEM, "state database: backup: cannot allocate memory");
	}
	(void)sqlite3_close(copy);
	if (ret)
		return ret;
	*bytes_out = bytes;
	*len_out = (size_t)len;
	return 0;
}

void statedb_backup_free(uint8_t *bytes)
{
	sqlite3_free(bytes);
}

int statedb_limit_pages(struct statedb *store, uint32_t pages)
{
	char sql[64];

	snprintf(sql, sizeof(sql), "PRAGMA max_page_count = %u", pages);
	return statedb_sql_script(store, sql);
}

/* -------- objects -------- */

int statedb_object_put(struct statedb *store, const struct statedb_object *object)
{
	const struct statedb_sql_value values[] = {
		SQL_INT(object->kind),
		SQL_INT(object->object),
		SQL_TEXT(object->name),
		SQL_INT(object->state),
		SQL_BLOB(object->desc, object->desc_len),
		SQL_INT(object->control),
		SQL_INT(object->auto_parts ? 1 : 0),
	};

	return statedb_sql_run(store,
			       "INSERT OR REPLACE INTO objects (" OBJECTS_COLUMNS ", crc)"
			       " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7,"
			       " crc32c(?1, ?2, ?3, ?4, ?5, ?6, ?7))",
			       values, ARRAY_LEN(values));
}

int statedb_object_delete(struct statedb *store, uint32_t object)
{
	const struct statedb_sql_value values[] = { SQL_INT(object) };
	bool alone = sqlite3_get_autocommit(store->db) != 0;
	int ret = alone ? statedb_begin(store) : 0;

	if (ret)
		return ret;
	ret = statedb_sql_run(store, "DELETE FROM parts WHERE object = ?", values, 1);
	if (ret == 0)
		ret = statedb_sql_run(store, "DELETE FROM objects WHERE object = ?", values, 1);
	return alone ? statedb_end(store, ret) : ret;
}

struct object_visit {
	int (*fn)(void *ctx, const struct statedb_object *);
	void *ctx;
};

static int visit_object(void *ctx, sqlite3_stmt *stmt)
{
	const struct object_visit *visit = ctx;
	struct statedb_object object = {
		.kind = statedb_sql_column_u32(stmt, 0),
		.object = statedb_sql_column_u32(stmt, 1),
		.state = statedb_sql_column_u32(stmt, 3),
		.desc = sqlite3_column_blob(stmt, 4),
		.desc_len = (size_t)sqlite3_column_bytes(stmt, 4),
		.control = statedb_sql_column_u32(stmt, 5),
		.auto_parts = statedb_sql_column_u32(stmt, 6) != 0,
	};

	statedb_sql_column_text(stmt, 2, object.name, sizeof(object.name));
	return visit->fn(visit->ctx, &object);
}

int statedb_each_object(struct statedb *store, int (*fn)(void *ctx, const struct statedb_object *),
			void *ctx)
{
	struct object_visit visit = { fn, ctx };

	return statedb_sql_each(store, "SELECT " OBJECTS_COLUMNS " FROM objects ORDER BY object",
				visit_object, &visit);
}

/* -------- parts -------- */

int statedb_part_put(struct statedb *store, const struct statedb_part *part)
{
	const struct statedb_sql_value values[] = {
		SQL_INT(part->kind),
		SQL_INT(part->object),
		SQL_INT(part->part),
		SQL_TEXT(part->node),
		SQL_INT(part->incarnation),
		SQL_INT(part->regions[REGION_TREE]),
		SQL_INT(part->regions[REGION_ROWS]),
		SQL_INT(part->state),
		SQL_INT(part->regions[REGION_SLOTS]),
		SQL_INT(part->regions[REGION_PAGES]),
	};

	return statedb_sql_run(store,
			       "INSERT OR REPLACE INTO parts (" PARTS_COLUMNS ", crc)"
			       " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
			       " crc32c(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10))",
			       values, ARRAY_LEN(values));
}

struct part_visit {
	int (*fn)(void *ctx, const struct statedb_part *);
	void *ctx;
};

static int visit_part(void *ctx, sqlite3_stmt *stmt)
{
	const struct part_visit *visit = ctx;
	struct statedb_part part = {
		.kind = statedb_sql_column_u32(stmt, 0),
		.object = statedb_sql_column_u32(stmt, 1),
		.part = statedb_sql_column_u32(stmt, 2),
		.incarnation = statedb_sql_column_u64(stmt, 4),
		.regions[REGION_TREE] = statedb_sql_column_u32(stmt, 5),
		.regions[REGION_ROWS] = statedb_sql_column_u32(stmt, 6),
		.regions[REGION_SLOTS] = statedb_sql_column_u32(stmt, 8),
		.regions[REGION_PAGES] = statedb_sql_column_u32(stmt, 9),
		.state = statedb_sql_column_u32(stmt, 7),
	};

	statedb_sql_column_text(stmt, 3, part.node, sizeof(part.node));
	return visit->fn(visit->ctx, &part);
}

int statedb_each_part(struct statedb *store, int (*fn)(void *ctx, const struct statedb_part *),
		      void *ctx)
{
	struct part_visit visit = { fn, ctx };

	return statedb_sql_each(store, "SELECT " PARTS_COLUMNS " FROM parts ORDER BY object, part",
				visit_part, &visit);
}

/* -------- laps -------- */

int statedb_lap(struct statedb *store, uint32_t table_id, uint32_t shard, uint64_t *first_out)
{
	const struct statedb_sql_value values[] = { SQL_INT(table_id), SQL_INT(shard) };
	sqlite3_stmt *stmt = NULL;
	int rc, ret = statedb_sql_prepare(store,
					  "SELECT first FROM laps WHERE table_id = ? AND shard = ?",
					  values, ARRAY_LEN(values), &stmt);

	if (ret)
		return ret;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW || rc == SQLITE_DONE)
		*first_out = rc == SQLITE_ROW ? statedb_sql_column_u64(stmt, 0) : 0;
	else
		ret = statedb_sql_failed(store, rc, "read laps");
	sqlite3_finalize(stmt);
	return ret;
}

int statedb_lap_raise(struct statedb *store, uint32_t table_id, uint32_t shard, uint64_t first)
{
	const struct statedb_sql_value values[] = { SQL_INT(table_id), SQL_INT(shard),
						    SQL_INT(first) };

	return statedb_sql_run(
		store,
		"INSERT INTO laps VALUES (?1, ?2, ?3, crc32c(?1, ?2, ?3)) ON CONFLICT DO UPDATE"
		" SET first = excluded.first, crc = excluded.crc WHERE excluded.first > first",
		values, ARRAY_LEN(values));
}

/* -------- nodes -------- */

int statedb_node_put(struct statedb *store, const struct statedb_node *node)
{
	const struct statedb_sql_value values[] = {
		SQL_TEXT(node->name),
		SQL_TEXT(node->uri),
		SQL_INT(node->incarnation),
		SQL_INT(node->persistent ? 1 : 0),
		SQL_INT(node->draining ? 1 : 0),
		SQL_INT(node->lost ? 1 : 0),
		SQL_BLOB(node->pool, sizeof(node->pool)),
	};

	return statedb_sql_run(store,
			       "INSERT OR REPLACE INTO nodes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7,"
			       " crc32c(?1, ?2, ?3, ?4, ?5, ?6, ?7))",
			       values, ARRAY_LEN(values));
}

int statedb_node_delete(struct statedb *store, const char *name)
{
	const struct statedb_sql_value values[] = { SQL_TEXT(name) };

	return statedb_sql_run(store, "DELETE FROM nodes WHERE name = ?", values, 1);
}

struct node_visit {
	int (*fn)(void *ctx, const struct statedb_node *);
	void *ctx;
};

static int visit_node(void *ctx, sqlite3_stmt *stmt)
{
	const struct node_visit *visit = ctx;
	struct statedb_node node = {
		.incarnation = statedb_sql_column_u64(stmt, 2),
		.persistent = statedb_sql_column_u32(stmt, 3) != 0,
		.draining = statedb_sql_column_u32(stmt, 4) != 0,
		.lost = statedb_sql_column_u32(stmt, 5) != 0,
	};
	int ret = statedb_sql_column_blob(stmt, 6, node.pool, sizeof(node.pool));

	statedb_sql_column_text(stmt, 0, node.name, sizeof(node.name));
	statedb_sql_column_text(stmt, 1, node.uri, sizeof(node.uri));
	return ret ? ret : visit->fn(visit->ctx, &node);
}

int statedb_each_node(struct statedb *store, int (*fn)(void *ctx, const struct statedb_node *),
		      void *ctx)
{
	struct node_visit visit = { fn, ctx };

	return statedb_sql_each(store, "SELECT * FROM nodes ORDER BY name", visit_node, &visit);
}

/* -------- provisioning records and leftovers at nodes -------- */

int statedb_making_put(struct statedb *store, const struct statedb_making *making)
{
	const struct statedb_sql_value values[] = {
		SQL_TEXT(making->node),
		SQL_INT(making->kind),
		SQL_INT(making->object),
		SQL_INT(making->part),
		SQL_BLOB(making->uuid, sizeof(making->uuid)),
	};

	return statedb_sql_run(store,
			       "INSERT OR REPLACE INTO provisionings (" PROVISIONINGS_COLUMNS
			       ", crc)"
			       " VALUES (?1, ?2, ?3, ?4, ?5, crc32c(?1, ?2, ?3, ?4, ?5))",
			       values, ARRAY_LEN(values));
}

int statedb_making_delete(struct statedb *store, const struct statedb_making *making)
{
	const struct statedb_sql_value values[] = { SQL_TEXT(making->node), SQL_INT(making->object),
						    SQL_INT(making->part) };

	return statedb_sql_run(
		store, "DELETE FROM provisionings WHERE node = ? AND object = ? AND part = ?",
		values, ARRAY_LEN(values));
}

/* Read the uuid of the only row, if any. */
static int find_uuid(struct statedb *store, sqlite3_stmt *stmt, uint8_t uuid_out[16],
		     bool *found_out)
{
	int rc = sqlite3_step(stmt), ret = 0;

	*found_out = rc == SQLITE_ROW;
	if (rc == SQLITE_ROW)
		ret = statedb_sql_column_blob(stmt, 0, uuid_out, 16);
	else if (rc != SQLITE_DONE)
		ret = statedb_sql_failed(store, rc, "look for a region");
	sqlite3_finalize(stmt);
	return ret;
}

int statedb_making_find(struct statedb *store, struct statedb_making *making, bool *found_out)
{
	const struct statedb_sql_value values[] = { SQL_TEXT(making->node), SQL_INT(making->kind),
						    SQL_INT(making->object),
						    SQL_INT(making->part) };
	sqlite3_stmt *stmt = NULL;
	int ret = statedb_sql_prepare(store,
				      "SELECT uuid FROM provisionings WHERE node = ? AND kind = ?"
				      " AND object = ? AND part = ?",
				      values, ARRAY_LEN(values), &stmt);

	return ret ? ret : find_uuid(store, stmt, making->uuid, found_out);
}

int statedb_makings_delete(struct statedb *store, const char *node)
{
	const struct statedb_sql_value values[] = { SQL_TEXT(node) };

	return statedb_sql_run(store, "DELETE FROM provisionings WHERE node = ?", values, 1);
}

int statedb_leftover_put(struct statedb *store, const struct statedb_leftover *left)
{
	const struct statedb_sql_value values[] = { SQL_TEXT(left->node), SQL_INT(left->region),
						    SQL_BLOB(left->uuid, sizeof(left->uuid)) };

	return statedb_sql_run(
		store, "INSERT OR REPLACE INTO leftovers VALUES (?1, ?2, ?3, crc32c(?1, ?2, ?3))",
		values, ARRAY_LEN(values));
}

int statedb_leftover_find(struct statedb *store, struct statedb_leftover *left, bool *found_out)
{
	const struct statedb_sql_value values[] = { SQL_TEXT(left->node), SQL_INT(left->region) };
	sqlite3_stmt *stmt = NULL;
	int ret = statedb_sql_prepare(store,
				      "SELECT uuid FROM leftovers WHERE node = ? AND region = ?",
				      values, ARRAY_LEN(values), &stmt);

	return ret ? ret : find_uuid(store, stmt, left->uuid, found_out);
}

int statedb_leftovers_delete(struct statedb *store, const char *node)
{
	const struct statedb_sql_value values[] = { SQL_TEXT(node) };

	return statedb_sql_run(store, "DELETE FROM leftovers WHERE node = ?", values, 1);
}

/* -------- clients -------- */

int statedb_client_put(struct statedb *store, const struct statedb_client *client)
{
	const struct statedb_sql_value values[] = {
		SQL_INT(client->id),
		SQL_INT(client->process.pid),
		SQL_INT(client->process.start_time),
		SQL_BLOB(client->process.boot_id, sizeof(client->process.boot_id)),
		SQL_BLOB(client->secret, sizeof(client->secret)),
	};

	return statedb_sql_run(store,
			       "INSERT OR REPLACE INTO clients (" CLIENTS_COLUMNS ", crc)"
			       " VALUES (?1, ?2, ?3, ?4, ?5, crc32c(?1, ?2, ?3, ?4, ?5))",
			       values, ARRAY_LEN(values));
}

int statedb_client_delete(struct statedb *store, uint64_t id)
{
	const struct statedb_sql_value values[] = { SQL_INT(id) };

	return statedb_sql_run(store, "DELETE FROM clients WHERE id = ?", values, 1);
}

struct client_visit {
	int (*fn)(void *ctx, const struct statedb_client *);
	void *ctx;
};

static int visit_client(void *ctx, sqlite3_stmt *stmt)
{
	const struct client_visit *visit = ctx;
	struct statedb_client client = {
		.id = statedb_sql_column_u64(stmt, 0),
		.process = { .pid = statedb_sql_column_u32(stmt, 1),
			     .start_time = statedb_sql_column_u64(stmt, 2) },
	};
	int ret = statedb_sql_column_blob(stmt, 3, client.process.boot_id,
					  sizeof(client.process.boot_id));

	if (ret == 0)
		ret = statedb_sql_column_blob(stmt, 4, client.secret, sizeof(client.secret));
	return ret ? ret : visit->fn(visit->ctx, &client);
}

int statedb_each_client(struct statedb *store, int (*fn)(void *ctx, const struct statedb_client *),
			void *ctx)
{
	struct client_visit visit = { fn, ctx };

	return statedb_sql_each(store, "SELECT " CLIENTS_COLUMNS " FROM clients ORDER BY id",
				visit_client, &visit);
}

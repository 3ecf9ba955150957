#include "server/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <sqlite3.h>

#include "base/alloc.h"
#include "base/bits.h"
#include "base/crc32c.h"

#define BUSY_TIMEOUT_MS 1000

struct store {
	sqlite3 *db;
	struct store_ids ids;
	bool has_uuid;
};

/* What the crc of a row is made of, in the order of their schema. */
#define META_COLUMNS "key, value"
#define TABLES_COLUMNS "id, name, state, desc, control, auto_shards"
#define SHARDS_COLUMNS "table_id, shard, node, incarnation, tree, rows, state"
#define LAPS_COLUMNS "table_id, shard, first"
#define NODES_COLUMNS "name, uri, incarnation, persistent, draining, lost, pool"
#define CLIENTS_COLUMNS "id, pid, start_time, boot_id"
#define MAKINGS_COLUMNS "node, table_id, shard, uuid"
#define LEFTOVERS_COLUMNS "node, region, uuid"

/* How each version is made from the one before; a new database goes through all of them. */
static const char *const schemas[] = {
	"CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
	"CREATE TABLE tables (id INTEGER PRIMARY KEY, name TEXT NOT NULL, state INTEGER NOT NULL,"
	"  desc BLOB NOT NULL);"
	"CREATE TABLE shards (table_id INTEGER, shard INTEGER, node TEXT NOT NULL,"
	"  incarnation INTEGER NOT NULL, tree INTEGER NOT NULL, rows INTEGER NOT NULL,"
	"  PRIMARY KEY (table_id, shard)) WITHOUT ROWID;"
	"CREATE TABLE laps (table_id INTEGER, shard INTEGER, first INTEGER NOT NULL,"
	"  PRIMARY KEY (table_id, shard)) WITHOUT ROWID;"
	"CREATE TABLE nodes (name TEXT PRIMARY KEY, uri TEXT NOT NULL, incarnation INTEGER NOT NULL,"
	"  persistent INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE clients (id INTEGER PRIMARY KEY, pid INTEGER NOT NULL,"
	"  start_time INTEGER NOT NULL, boot_id BLOB NOT NULL);"
	"PRAGMA user_version = 1;",
	/* Tables over nodes that come and go. */
	"ALTER TABLE tables ADD COLUMN control INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE tables ADD COLUMN auto_shards INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE shards ADD COLUMN state INTEGER NOT NULL DEFAULT 1;"
	"ALTER TABLE nodes ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE nodes ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;"
	"PRAGMA user_version = 2;",
	/* Hosts that lose their power. */
	"ALTER TABLE shards ADD COLUMN boot_id BLOB NOT NULL"
	"  DEFAULT X'00000000000000000000000000000000';"
	"PRAGMA user_version = 3;",
	/* What they lose, their regions say themselves. */
	"ALTER TABLE shards DROP COLUMN boot_id;"
	"PRAGMA user_version = 4;",
	/* A file that says what it is (STORE_APPLICATION_ID), and what pools hold that is nobody's. */
	"PRAGMA application_id = 1380734531;"
	"ALTER TABLE nodes ADD COLUMN pool BLOB NOT NULL"
	"  DEFAULT X'00000000000000000000000000000000';"
	"CREATE TABLE makings (node TEXT, table_id INTEGER, shard INTEGER, uuid BLOB NOT NULL,"
	"  PRIMARY KEY (node, table_id, shard)) WITHOUT ROWID;"
	"CREATE TABLE leftovers (node TEXT, region INTEGER, uuid BLOB NOT NULL,"
	"  PRIMARY KEY (node, region)) WITHOUT ROWID;"
	"PRAGMA user_version = 5;",
	/* Rows that say whether they are whole. */
	"ALTER TABLE meta ADD COLUMN crc INTEGER;"
	"ALTER TABLE tables ADD COLUMN crc INTEGER;"
	"ALTER TABLE shards ADD COLUMN crc INTEGER;"
	"ALTER TABLE laps ADD COLUMN crc INTEGER;"
	"ALTER TABLE nodes ADD COLUMN crc INTEGER;"
	"ALTER TABLE clients ADD COLUMN crc INTEGER;"
	"ALTER TABLE makings ADD COLUMN crc INTEGER;"
	"ALTER TABLE leftovers ADD COLUMN crc INTEGER;"
	"UPDATE meta SET crc = crc32c(" META_COLUMNS ");"
	"UPDATE tables SET crc = crc32c(" TABLES_COLUMNS ");"
	"UPDATE shards SET crc = crc32c(" SHARDS_COLUMNS ");"
	"UPDATE laps SET crc = crc32c(" LAPS_COLUMNS ");"
	"UPDATE nodes SET crc = crc32c(" NODES_COLUMNS ");"
	"UPDATE clients SET crc = crc32c(" CLIENTS_COLUMNS ");"
	"UPDATE makings SET crc = crc32c(" MAKINGS_COLUMNS ");"
	"UPDATE leftovers SET crc = crc32c(" LEFTOVERS_COLUMNS ");"
	"PRAGMA user_version = 6;",
};

/* Says so if there is one that is not whole. */
static const char *const checks[] = {
	"SELECT key FROM meta WHERE crc IS NOT crc32c(" META_COLUMNS ")",
	"SELECT id FROM tables WHERE crc IS NOT crc32c(" TABLES_COLUMNS ")",
	"SELECT table_id FROM shards WHERE crc IS NOT crc32c(" SHARDS_COLUMNS ")",
	"SELECT table_id FROM laps WHERE crc IS NOT crc32c(" LAPS_COLUMNS ")",
	"SELECT name FROM nodes WHERE crc IS NOT crc32c(" NODES_COLUMNS ")",
	"SELECT id FROM clients WHERE crc IS NOT crc32c(" CLIENTS_COLUMNS ")",
	"SELECT node FROM makings WHERE crc IS NOT crc32c(" MAKINGS_COLUMNS ")",
	"SELECT node FROM leftovers WHERE crc IS NOT crc32c(" LEFTOVERS_COLUMNS ")",
};

#define SCHEMA_VERSION ((int)ARRAY_LEN(schemas))

/* -------- the crc of a row -------- */

static uint32_t crc_of(uint32_t crc, sqlite3_value *value)
{
	int64_t number = sqlite3_value_int64(value);
	uint8_t kind = (uint8_t)sqlite3_value_type(value);
	const void *bytes = &number;
	size_t n = sizeof(number);

	if (kind == SQLITE_TEXT || kind == SQLITE_BLOB) {
		bytes = sqlite3_value_blob(value);
		n = (size_t)sqlite3_value_bytes(value);
	}
	crc = crc32c(crc, &kind, sizeof(kind));
	return n ? crc32c(crc, bytes, n) : crc;
}

/* crc32c(...): over kind and content of all arguments. */
static void sql_crc32c(sqlite3_context *context, int n, sqlite3_value **values)
{
	uint32_t crc = 0;

	for (int i = 0; i < n; i++)
		crc = crc_of(crc, values[i]);
	sqlite3_result_int64(context, crc);
}

/* -------- statements -------- */

static int code_of(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_ERROR: /* our statements are right, so the schema that they name is not */
		return -EBADMSG;
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
	case SQLITE_READONLY:
	case SQLITE_AUTH:
		return -EACCES;
	default:
		return -EIO;
	}
}

static int failed(struct store *store, int rc, const char *what)
{
	return error_set(code_of(rc), "state database: %s: %s", what,
			 store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(rc));
}

/* What stands for a ? of a statement. */
struct value {
	uint64_t number;
	const void *ptr;
	int len;
	enum { VALUE_INT, VALUE_TEXT, VALUE_BLOB } kind;
};

#define INT(x) \
	{ \
		.kind = VALUE_INT, .number = (x) \
	}
#define TEXT(x) \
	{ \
		.kind = VALUE_TEXT, .ptr = (x), .len = -1 \
	}
#define BLOB(x, n) \
	{ \
		.kind = VALUE_BLOB, .ptr = (x), .len = (int)(n) \
	}

static int bind(sqlite3_stmt *stmt, int i, const struct value *value)
{
	switch (value->kind) {
	case VALUE_INT:
		return sqlite3_bind_int64(stmt, i, (sqlite3_int64)value->number);
	case VALUE_TEXT:
		return sqlite3_bind_text(stmt, i, value->ptr, value->len, SQLITE_STATIC);
	default:
		return sqlite3_bind_blob(stmt, i, value->ptr, value->len, SQLITE_STATIC);
	}
}

static int prepare(struct store *store, const char *sql, const struct value *values, size_t n,
		   sqlite3_stmt **stmt_out)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL);

	for (size_t i = 0; rc == SQLITE_OK && i < n; i++)
		rc = bind(stmt, (int)i + 1, &values[i]);
	if (rc != SQLITE_OK) {
		int ret = failed(store, rc, sql);

		sqlite3_finalize(stmt);
		return ret;
	}
	*stmt_out = stmt;
	return 0;
}

/* Runs a statement that gives no rows. */
static int run(struct store *store, const char *sql, const struct value *values, size_t n)
{
	sqlite3_stmt *stmt = NULL;
	int rc, ret = prepare(store, sql, values, n, &stmt);

	if (ret)
		return ret;
	rc = sqlite3_step(stmt);
	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		ret = failed(store, rc, sql);
	sqlite3_finalize(stmt);
	return ret;
}

/* Calls row for each row, until it answers non-zero. */
static int each(struct store *store, const char *sql, int (*row)(void *ctx, sqlite3_stmt *stmt),
		void *ctx)
{
	sqlite3_stmt *stmt = NULL;
	int rc, ret = prepare(store, sql, NULL, 0, &stmt);

	if (ret)
		return ret;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		ret = row(ctx, stmt);
		if (ret)
			break;
	}
	if (ret == 0 && rc != SQLITE_DONE)
		ret = failed(store, rc, sql);
	sqlite3_finalize(stmt);
	return ret;
}

static uint64_t column_u64(sqlite3_stmt *stmt, int column)
{
	return (uint64_t)sqlite3_column_int64(stmt, column);
}

static uint32_t column_u32(sqlite3_stmt *stmt, int column)
{
	return (uint32_t)sqlite3_column_int64(stmt, column);
}

static void column_text(sqlite3_stmt *stmt, int column, char *out, size_t room)
{
	const unsigned char *text = sqlite3_column_text(stmt, column);

	snprintf(out, room, "%s", text ? (const char *)text : "");
}

/* -EBADMSG: it has another length. */
static int column_blob(sqlite3_stmt *stmt, int column, void *out, size_t len)
{
	const void *blob = sqlite3_column_blob(stmt, column);

	if (!blob || sqlite3_column_bytes(stmt, column) != (int)len)
		return error_set(-EBADMSG, "state database: %s of %d bytes, want %zu",
				 sqlite3_column_name(stmt, column),
				 sqlite3_column_bytes(stmt, column), len);
	memcpy(out, blob, len);
	return 0;
}

/* -------- transactions -------- */

int store_begin(struct store *store)
{
	return run(store, "BEGIN IMMEDIATE", NULL, 0);
}

int store_commit(struct store *store)
{
	int ret = run(store, "COMMIT", NULL, 0);

	if (ret)
		store_rollback(store);
	return ret;
}

void store_rollback(struct store *store)
{
	/* Some errors have rolled back already. */
	if (!sqlite3_get_autocommit(store->db))
		(void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
}

int store_end(struct store *store, int code)
{
	if (code == 0)
		return store_commit(store);
	store_rollback(store);
	return code;
}

/* -------- meta -------- */

int store_number(struct store *store, const char *key, uint64_t *value_out)
{
	const struct value values[] = { TEXT(key) };
	sqlite3_stmt *stmt = NULL;
	int rc, ret = prepare(store, "SELECT value FROM meta WHERE key = ?", values, 1, &stmt);

	if (ret)
		return ret;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*value_out = column_u64(stmt, 0);
	else if (rc == SQLITE_DONE)
		*value_out = 0;
	else
		ret = failed(store, rc, "read meta");
	sqlite3_finalize(stmt);
	return ret;
}

int store_number_put(struct store *store, const char *key, uint64_t value)
{
	const struct value values[] = { TEXT(key), INT(value) };

	return run(store, "INSERT OR REPLACE INTO meta VALUES (?1, ?2, crc32c(?1, ?2))", values,
		   ARRAY_LEN(values));
}

/* -------- open -------- */

static int run_script(struct store *store, const char *sql)
{
	int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : failed(store, rc, "setup");
}

static int read_int(void *ctx, sqlite3_stmt *stmt)
{
	*(int *)ctx = sqlite3_column_int(stmt, 0);
	return 0;
}

/* Tables are numbered from anywhere on: those of two stores seldom have one number, and can be adopted. */
static int make_ids(struct store *store)
{
	struct value values[] = { BLOB(store->ids.uuid, sizeof(store->ids.uuid)) };
	uint8_t last_table;
	int ret;

	if (getrandom(store->ids.uuid, sizeof(store->ids.uuid), 0) !=
		    (ssize_t)sizeof(store->ids.uuid) ||
	    getrandom(&last_table, sizeof(last_table), 0) != (ssize_t)sizeof(last_table))
		return error_set(-EIO, "getrandom: %s", strerror(errno));
	ret = run(store, "INSERT INTO meta VALUES ('uuid', ?1, crc32c('uuid', ?1))", values, 1);
	return ret ? ret : store_number_put(store, "last_table", last_table);
}

static int read_uuid(void *ctx, sqlite3_stmt *stmt)
{
	struct store *store = ctx;

	store->has_uuid = true;
	return column_blob(stmt, 0, store->ids.uuid, sizeof(store->ids.uuid));
}

static int load_uuid(struct store *store)
{
	int ret = each(store, "SELECT value FROM meta WHERE key = 'uuid'", read_uuid, store);

	if (ret == 0 && !store->has_uuid)
		ret = error_set(-EBADMSG, "state database: it has no uuid");
	return ret;
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

/* Before anything of it is believed: SQLite sees what is wrong with pages, the crc what with rows. */
static int check_content(struct store *store)
{
	int ret = each(store, "PRAGMA integrity_check(1)", damaged_page, NULL);

	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(checks); i++)
		ret = each(store, checks[i], damaged_row, NULL);
	return ret;
}

static int check_schema(struct store *store, const char *path)
{
	int version = 0, application = 0;
	int ret = each(store, "PRAGMA user_version", read_int, &version);

	if (ret == 0)
		ret = each(store, "PRAGMA application_id", read_int, &application);
	if (ret)
		return ret;
	if (application && (uint32_t)application != STORE_APPLICATION_ID)
		return error_set(-EPROTO, "state database %s: a file of another program", path);
	if (version < 0 || version > SCHEMA_VERSION)
		return error_set(-EPROTO, "state database %s: schema %d, this server knows %d",
				 path, version, SCHEMA_VERSION);
	for (int v = version; ret == 0 && v < SCHEMA_VERSION; v++)
		ret = run_script(store, schemas[v]);
	if (ret)
		return ret;
	if (version == 0)
		return make_ids(store);
	ret = check_content(store);
	return ret ? ret : load_uuid(store);
}

static int begin_term(struct store *store, const char *path)
{
	int ret = store_begin(store);

	if (ret)
		return ret;
	ret = check_schema(store, path);
	if (ret == 0)
		ret = store_number(store, "term", &store->ids.term);
	if (ret == 0)
		ret = store_number_put(store, "term", ++store->ids.term);
	if (ret) {
		store_rollback(store);
		return ret;
	}
	return store_commit(store);
}

/*
 * All that a commit changes is in the database itself when it returns, so a WAL that is damaged, or
 * left behind when the file is copied, takes nothing with it. Until we know that the database is
 * whole nothing of the WAL is written back.
 */
static int set_up(struct store *store)
{
	int rc = sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_create_function(store->db, "crc32c", -1,
					     SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, sql_crc32c,
					     NULL, NULL);
	if (rc != SQLITE_OK)
		return failed(store, rc, "setup");
	sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
	return run_script(store, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
				 "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1;"
				 "PRAGMA cell_size_check = ON;");
}

int store_open(const char *path, struct store **store_out)
{
	struct store *store = mem_zalloc(sizeof(*store));
	int rc, ret;

	if (!store)
		return error_set(-ENOMEM, "state database: no memory");
	rc = sqlite3_open_v2(path, &store->db,
			     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
			     NULL);
	ret = rc == SQLITE_OK ? set_up(store) : failed(store, rc, path);
	if (ret == 0)
		ret = begin_term(store, path);
	if (ret) {
		store_close(&store);
		return ret;
	}
	(void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
	*store_out = store;
	return 0;
}

void store_close(struct store **store)
{
	if (!*store)
		return;
	(void)sqlite3_close((*store)->db);
	mem_free(*store);
	*store = NULL;
}

void store_ids(const struct store *store, struct store_ids *out)
{
	*out = store->ids;
}

/* -------- copies -------- */

static int copy_into(struct store *store, sqlite3 *to)
{
	sqlite3_backup *backup = sqlite3_backup_init(to, "main", store->db, "main");
	int rc;

	if (!backup)
		return failed(store, sqlite3_errcode(to), "backup");
	(void)sqlite3_backup_step(backup, -1);
	rc = sqlite3_backup_finish(backup);
	return rc == SQLITE_OK ? 0 : failed(store, rc, "backup");
}

int store_backup(struct store *store, uint8_t **bytes_out, size_t *len_out)
{
	uint8_t *bytes = NULL;
	sqlite3_int64 len = 0;
	sqlite3 *copy = NULL;
	int rc = sqlite3_open(":memory:", &copy), ret;

	ret = rc == SQLITE_OK ? copy_into(store, copy) : failed(store, rc, "backup");
	if (ret == 0) {
		bytes = sqlite3_serialize(copy, "main", &len, 0);
		ret = bytes ? 0 : error_set(-ENOMEM, "state database: backup: no memory");
	}
	(void)sqlite3_close(copy);
	if (ret)
		return ret;
	*bytes_out = bytes;
	*len_out = (size_t)len;
	return 0;
}

void store_backup_free(uint8_t *bytes)
{
	sqlite3_free(bytes);
}

int store_limit_pages(struct store *store, uint32_t pages)
{
	char sql[64];

	snprintf(sql, sizeof(sql), "PRAGMA max_page_count = %u", pages);
	return run_script(store, sql);
}

/* -------- tables -------- */

int store_table_put(struct store *store, const struct store_table *table)
{
	const struct value values[] = {
		INT(table->desc.table_id), TEXT(table->desc.name),
		INT(table->state),         BLOB(&table->desc, sizeof(table->desc)),
		INT(table->control),       INT(table->auto_shards ? 1 : 0),
	};

	return run(store,
		   "INSERT OR REPLACE INTO tables VALUES (?1, ?2, ?3, ?4, ?5, ?6,"
		   " crc32c(?1, ?2, ?3, ?4, ?5, ?6))",
		   values, ARRAY_LEN(values));
}

int store_table_delete(struct store *store, uint32_t table_id)
{
	const struct value values[] = { INT(table_id) };
	bool alone = sqlite3_get_autocommit(store->db) != 0;
	int ret = alone ? store_begin(store) : 0;

	if (ret)
		return ret;
	ret = run(store, "DELETE FROM shards WHERE table_id = ?", values, 1);
	if (ret == 0)
		ret = run(store, "DELETE FROM tables WHERE id = ?", values, 1);
	if (!alone)
		return ret;
	if (ret)
		store_rollback(store);
	return ret ? ret : store_commit(store);
}

struct table_visit {
	int (*fn)(void *ctx, const struct store_table *);
	void *ctx;
};

static int visit_table(void *ctx, sqlite3_stmt *stmt)
{
	const struct table_visit *visit = ctx;
	struct store_table table;
	int ret = column_blob(stmt, 1, &table.desc, sizeof(table.desc));

	table.state = column_u32(stmt, 0);
	table.control = column_u32(stmt, 2);
	table.auto_shards = column_u32(stmt, 3) != 0;
	return ret ? ret : visit->fn(visit->ctx, &table);
}

int store_each_table(struct store *store, int (*fn)(void *ctx, const struct store_table *),
		     void *ctx)
{
	struct table_visit visit = { fn, ctx };

	return each(store, "SELECT state, desc, control, auto_shards FROM tables ORDER BY id",
		    visit_table, &visit);
}

/* -------- shards -------- */

int store_shard_put(struct store *store, const struct store_shard *shard)
{
	const struct value values[] = {
		INT(shard->table_id), INT(shard->shard), TEXT(shard->node), INT(shard->incarnation),
		INT(shard->tree),     INT(shard->rows),  INT(shard->state),
	};

	return run(store,
		   "INSERT OR REPLACE INTO shards VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7,"
		   " crc32c(?1, ?2, ?3, ?4, ?5, ?6, ?7))",
		   values, ARRAY_LEN(values));
}

struct shard_visit {
	int (*fn)(void *ctx, const struct store_shard *);
	void *ctx;
};

static int visit_shard(void *ctx, sqlite3_stmt *stmt)
{
	const struct shard_visit *visit = ctx;
	struct store_shard shard = {
		.table_id = column_u32(stmt, 0),
		.shard = column_u32(stmt, 1),
		.incarnation = column_u64(stmt, 3),
		.tree = column_u32(stmt, 4),
		.rows = column_u32(stmt, 5),
		.state = column_u32(stmt, 6),
	};

	column_text(stmt, 2, shard.node, sizeof(shard.node));
	return visit->fn(visit->ctx, &shard);
}

int store_each_shard(struct store *store, int (*fn)(void *ctx, const struct store_shard *),
		     void *ctx)
{
	struct shard_visit visit = { fn, ctx };

	return each(store, "SELECT * FROM shards ORDER BY table_id, shard", visit_shard, &visit);
}

/* -------- laps -------- */

int store_lap(struct store *store, uint32_t table_id, uint32_t shard, uint64_t *first_out)
{
	const struct value values[] = { INT(table_id), INT(shard) };
	sqlite3_stmt *stmt = NULL;
	int rc, ret = prepare(store, "SELECT first FROM laps WHERE table_id = ? AND shard = ?",
			      values, ARRAY_LEN(values), &stmt);

	if (ret)
		return ret;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW || rc == SQLITE_DONE)
		*first_out = rc == SQLITE_ROW ? column_u64(stmt, 0) : 0;
	else
		ret = failed(store, rc, "read laps");
	sqlite3_finalize(stmt);
	return ret;
}

int store_lap_raise(struct store *store, uint32_t table_id, uint32_t shard, uint64_t first)
{
	const struct value values[] = { INT(table_id), INT(shard), INT(first) };

	return run(store,
		   "INSERT INTO laps VALUES (?1, ?2, ?3, crc32c(?1, ?2, ?3)) ON CONFLICT DO UPDATE"
		   " SET first = excluded.first, crc = excluded.crc WHERE excluded.first > first",
		   values, ARRAY_LEN(values));
}

/* -------- nodes -------- */

int store_node_put(struct store *store, const struct store_node *node)
{
	const struct value values[] = {
		TEXT(node->name),
		TEXT(node->uri),
		INT(node->incarnation),
		INT(node->persistent ? 1 : 0),
		INT(node->draining ? 1 : 0),
		INT(node->lost ? 1 : 0),
		BLOB(node->pool, sizeof(node->pool)),
	};

	return run(store,
		   "INSERT OR REPLACE INTO nodes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7,"
		   " crc32c(?1, ?2, ?3, ?4, ?5, ?6, ?7))",
		   values, ARRAY_LEN(values));
}

struct node_visit {
	int (*fn)(void *ctx, const struct store_node *);
	void *ctx;
};

static int visit_node(void *ctx, sqlite3_stmt *stmt)
{
	const struct node_visit *visit = ctx;
	struct store_node node = {
		.incarnation = column_u64(stmt, 2),
		.persistent = column_u32(stmt, 3) != 0,
		.draining = column_u32(stmt, 4) != 0,
		.lost = column_u32(stmt, 5) != 0,
	};
	int ret = column_blob(stmt, 6, node.pool, sizeof(node.pool));

	column_text(stmt, 0, node.name, sizeof(node.name));
	column_text(stmt, 1, node.uri, sizeof(node.uri));
	return ret ? ret : visit->fn(visit->ctx, &node);
}

int store_each_node(struct store *store, int (*fn)(void *ctx, const struct store_node *), void *ctx)
{
	struct node_visit visit = { fn, ctx };

	return each(store, "SELECT * FROM nodes ORDER BY name", visit_node, &visit);
}

/* -------- what is made and what is left over at nodes -------- */

int store_making_put(struct store *store, const struct store_making *making)
{
	const struct value values[] = {
		TEXT(making->node),
		INT(making->table_id),
		INT(making->shard),
		BLOB(making->uuid, sizeof(making->uuid)),
	};

	return run(store,
		   "INSERT OR REPLACE INTO makings VALUES (?1, ?2, ?3, ?4,"
		   " crc32c(?1, ?2, ?3, ?4))",
		   values, ARRAY_LEN(values));
}

int store_making_delete(struct store *store, const char *node, uint32_t table_id, uint32_t shard)
{
	const struct value values[] = { TEXT(node), INT(table_id), INT(shard) };

	return run(store, "DELETE FROM makings WHERE node = ? AND table_id = ? AND shard = ?",
		   values, ARRAY_LEN(values));
}

/* The uuid of the one row that there may be. */
static int find_uuid(struct store *store, sqlite3_stmt *stmt, uint8_t uuid_out[16], bool *found_out)
{
	int rc = sqlite3_step(stmt), ret = 0;

	*found_out = rc == SQLITE_ROW;
	if (rc == SQLITE_ROW)
		ret = column_blob(stmt, 0, uuid_out, 16);
	else if (rc != SQLITE_DONE)
		ret = failed(store, rc, "look for a region");
	sqlite3_finalize(stmt);
	return ret;
}

int store_making_find(struct store *store, struct store_making *making, bool *found_out)
{
	const struct value values[] = { TEXT(making->node), INT(making->table_id),
					INT(making->shard) };
	sqlite3_stmt *stmt = NULL;
	int ret = prepare(store,
			  "SELECT uuid FROM makings WHERE node = ? AND table_id = ? AND shard = ?",
			  values, ARRAY_LEN(values), &stmt);

	return ret ? ret : find_uuid(store, stmt, making->uuid, found_out);
}

int store_makings_delete(struct store *store, const char *node)
{
	const struct value values[] = { TEXT(node) };

	return run(store, "DELETE FROM makings WHERE node = ?", values, 1);
}

int store_leftover_put(struct store *store, const struct store_leftover *left)
{
	const struct value values[] = { TEXT(left->node), INT(left->region),
					BLOB(left->uuid, sizeof(left->uuid)) };

	return run(store,
		   "INSERT OR REPLACE INTO leftovers VALUES (?1, ?2, ?3, crc32c(?1, ?2, ?3))",
		   values, ARRAY_LEN(values));
}

int store_leftover_find(struct store *store, struct store_leftover *left, bool *found_out)
{
	const struct value values[] = { TEXT(left->node), INT(left->region) };
	sqlite3_stmt *stmt = NULL;
	int ret = prepare(store, "SELECT uuid FROM leftovers WHERE node = ? AND region = ?", values,
			  ARRAY_LEN(values), &stmt);

	return ret ? ret : find_uuid(store, stmt, left->uuid, found_out);
}

int store_leftovers_delete(struct store *store, const char *node)
{
	const struct value values[] = { TEXT(node) };

	return run(store, "DELETE FROM leftovers WHERE node = ?", values, 1);
}

/* -------- clients -------- */

int store_client_put(struct store *store, const struct store_client *client)
{
	const struct value values[] = {
		INT(client->id),
		INT(client->process.pid),
		INT(client->process.start_time),
		BLOB(client->process.boot_id, sizeof(client->process.boot_id)),
	};

	return run(store,
		   "INSERT OR REPLACE INTO clients VALUES (?1, ?2, ?3, ?4,"
		   " crc32c(?1, ?2, ?3, ?4))",
		   values, ARRAY_LEN(values));
}

int store_client_delete(struct store *store, uint64_t id)
{
	const struct value values[] = { INT(id) };

	return run(store, "DELETE FROM clients WHERE id = ?", values, 1);
}

struct client_visit {
	int (*fn)(void *ctx, const struct store_client *);
	void *ctx;
};

static int visit_client(void *ctx, sqlite3_stmt *stmt)
{
	const struct client_visit *visit = ctx;
	struct store_client client = {
		.id = column_u64(stmt, 0),
		.process = { .pid = column_u32(stmt, 1), .start_time = column_u64(stmt, 2) },
	};
	int ret = column_blob(stmt, 3, client.process.boot_id, sizeof(client.process.boot_id));

	return ret ? ret : visit->fn(visit->ctx, &client);
}

int store_each_client(struct store *store, int (*fn)(void *ctx, const struct store_client *),
		      void *ctx)
{
	struct client_visit visit = { fn, ctx };

	return each(store, "SELECT * FROM clients ORDER BY id", visit_client, &visit);
}

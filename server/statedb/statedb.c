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

/* -------- transactions -------- */

static int run(struct catalog_store *store, const char *sql)
{
	sqlite3_stmt *stmt;
	int ret = statedb_sql_prepare(statedb_of(store), sql, &stmt);

	return ret ? ret : statedb_sql_finish(statedb_of(store), stmt, sql);
}

static int begin(struct catalog_store *store)
{
	return run(store, "BEGIN IMMEDIATE");
}

static int end(struct catalog_store *base, int code)
{
	struct statedb *store = statedb_of(base);

	if (code == 0)
		code = run(base, "COMMIT");
	/* Some errors have already rolled back. */
	if (code && !sqlite3_get_autocommit(store->db))
		(void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
	return code;
}

static const struct store_ops statedb_ops = {
	.begin = begin,
	.end = end,
	.put = statedb_put,
	.remove = statedb_remove,
	.find = statedb_find,
	.each = statedb_each,
};

/* -------- open -------- */

static int read_int(void *ctx, sqlite3_stmt *stmt)
{
	*(int *)ctx = sqlite3_column_int(stmt, 0);
	return 0;
}

/* Table ids start at a random number: tables of two stores rarely collide, and can be adopted. */
static int make_ids(struct statedb *store)
{
	static const char sql[] = "INSERT INTO meta VALUES ('uuid', ?1, crc32c('uuid', ?1))";
	uint8_t *uuid = store->base.ids.uuid, last_table;
	sqlite3_stmt *stmt;
	int ret;

	if (getrandom(uuid, 16, 0) != 16 ||
	    getrandom(&last_table, sizeof(last_table), 0) != (ssize_t)sizeof(last_table))
		return error_set(-EIO, "getrandom: %s", strerror(errno));
	ret = statedb_sql_prepare(store, sql, &stmt);
	if (ret)
		return ret;
	(void)sqlite3_bind_blob(stmt, 1, uuid, 16, SQLITE_STATIC);
	ret = statedb_sql_finish(store, stmt, sql);
	return ret ? ret : store_number_put(&store->base, "last_table", last_table);
}

static int read_uuid(void *ctx, sqlite3_stmt *stmt)
{
	struct statedb *store = ctx;

	store->has_uuid = true;
	return statedb_sql_column_blob(stmt, 0, store->base.ids.uuid, sizeof(store->base.ids.uuid));
}

static int damaged_page(void *ctx, sqlite3_stmt *stmt)
{
	const char *words = (const char *)sqlite3_column_text(stmt, 0);

	(void)ctx;
	return words && strcmp(words, "ok") == 0
		       ? 0
		       : error_set(-EBADMSG, "state database: damaged: %s", words ? words : "");
}

/* Run before any content is used: SQLite checks its pages, the crc checks rows. */
static int check_content(struct statedb *store)
{
	int ret = statedb_sql_each(store, "PRAGMA integrity_check(1)", damaged_page, NULL);

	return ret ? ret : statedb_check_rows(store);
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
	struct catalog_store *base = &store->base;
	int ret = store_begin(base);

	if (ret)
		return ret;
	ret = check_schema(store, path);
	if (ret == 0)
		ret = store_number(base, "term", &base->ids.term);
	if (ret == 0)
		ret = store_number_put(base, "term", ++base->ids.term);
	return store_end(base, ret);
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

int statedb_open(const char *path, struct catalog_store **store_out)
{
	struct statedb *store = mem_zalloc(sizeof(*store));
	struct catalog_store *base;
	int rc, ret;

	if (!store)
		return error_set(-ENOMEM, "state database: cannot allocate memory");
	base = &store->base;
	base->ops = &statedb_ops;
	rc = sqlite3_open_v2(path, &store->db,
			     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
			     NULL);
	ret = rc == SQLITE_OK ? set_up(store) : statedb_sql_failed(store, rc, path);
	if (ret == 0)
		ret = begin_term(store, path);
	if (ret) {
		statedb_close(&base);
		return ret;
	}
	(void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
	*store_out = base;
	return 0;
}

void statedb_close(struct catalog_store **store)
{
	if (!*store)
		return;
	(void)sqlite3_close(statedb_of(*store)->db);
	mem_free(*store);
	*store = NULL;
}

int statedb_check(struct catalog_store *base)
{
	const struct statedb *store = statedb_of(base);
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

int statedb_backup(struct catalog_store *base, uint8_t **bytes_out, size_t *len_out)
{
	struct statedb *store = statedb_of(base);
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

int statedb_limit_pages(struct catalog_store *store, uint32_t pages)
{
	char sql[64];

	snprintf(sql, sizeof(sql), "PRAGMA max_page_count = %u", pages);
	return statedb_sql_script(statedb_of(store), sql);
}

#include "server/statedb/statedb.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/random.h"

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

static int begin(struct catalog_store *store)
{
	return statedb_sql_script(statedb_of(store), "begin", "BEGIN IMMEDIATE");
}

static int end(struct catalog_store *base, int code)
{
	struct statedb *store = statedb_of(base);

	if (code == 0)
		code = statedb_sql_script(store, "commit", "COMMIT");
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

/* Makes a random uuid for a new store, and a random number after which its table ids start: tables
   of two stores rarely have the same id, so they can be adopted. */
static int make_ids(struct statedb *store)
{
	static const char sql[] = "INSERT INTO meta VALUES ('uuid', ?1, crc32c('uuid', ?1))";
	uint8_t *uuid = store->base.ids.uuid, last_table;
	sqlite3_stmt *stmt;
	int ret = random_fill(uuid, sizeof(store->base.ids.uuid));

	if (ret == 0)
		ret = random_fill(&last_table, sizeof(last_table));
	if (ret == 0)
		ret = statedb_sql_prepare(store, sql, &stmt);
	if (ret)
		return ret;
	(void)sqlite3_bind_blob(stmt, 1, uuid, 16, SQLITE_STATIC);
	ret = statedb_sql_step(store, stmt);
	return ret ? ret : store_number_put(&store->base, "last_table", last_table);
}

/* Checks the database before its content is used: SQLite checks its pages, the crc checks each row.
   -EBADMSG: damaged. */
static int check_content(struct statedb *store)
{
	sqlite3_stmt *stmt;
	int ret = statedb_sql_first(store, "PRAGMA integrity_check(1)", &stmt);

	if (ret > 0) {
		const char *words = (const char *)sqlite3_column_text(stmt, 0);

		ret = 0;
		if (!words || strcmp(words, "ok") != 0)
			ret = error_set(-EBADMSG, "state database: damaged: %s",
					words ? words : "");
		sqlite3_finalize(stmt);
	}
	return ret ? ret : statedb_check_rows(store);
}

static int check_schema(struct statedb *store, const char *path)
{
	int version = 0, application = 0;
	sqlite3_stmt *stmt;
	int ret = statedb_sql_first(store,
				    "SELECT user_version, application_id"
				    " FROM pragma_user_version, pragma_application_id",
				    &stmt);

	if (ret < 0)
		return ret;
	if (ret > 0) {
		version = sqlite3_column_int(stmt, 0);
		application = sqlite3_column_int(stmt, 1);
		sqlite3_finalize(stmt);
	}
	if (application && (uint32_t)application != STORE_APPLICATION_ID)
		return error_set(-EPROTO, "state database %s: a file of another program", path);
	if (version != 0 && version != SCHEMA_VERSION)
		return error_set(-EPROTO, "state database %s: schema %d, this server knows %d",
				 path, version, SCHEMA_VERSION);
	if (version == 0) {
		ret = statedb_sql_script(store, "setup", schema);
		return ret ? ret : make_ids(store);
	}
	ret = check_content(store);
	if (ret)
		return ret;
	ret = statedb_sql_first(store, "SELECT value FROM meta WHERE key = 'uuid'", &stmt);
	if (ret == 0)
		return error_set(-EBADMSG, "state database: it holds no uuid of a store");
	if (ret > 0) {
		ret = statedb_sql_column_blob(stmt, 0, store->base.ids.uuid, 16);
		sqlite3_finalize(stmt);
	}
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
 * the file, loses nothing. Before the database was checked, no WAL content is written back, not
 * even by closing it.
 */
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
	if (rc == SQLITE_OK)
		rc = sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(store->db, 1000);
	if (rc == SQLITE_OK)
		rc = sqlite3_create_function(store->db, "crc32c", -1,
					     SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL,
					     statedb_sql_crc32c, NULL, NULL);
	ret = rc == SQLITE_OK ? 0 : statedb_sql_failed(store, rc, path);
	if (ret == 0)
		ret = statedb_sql_script(
			store, "setup",
			"PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
			"PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1;"
			"PRAGMA cell_size_check = ON;");
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

int statedb_backup(struct catalog_store *base, uint8_t **bytes_out, size_t *len_out)
{
	struct statedb *store = statedb_of(base);
	sqlite3_backup *backup = NULL;
	sqlite3_int64 len = 0;
	sqlite3 *copy = NULL;
	int rc = sqlite3_open(":memory:", &copy), ret = 0;

	if (rc == SQLITE_OK) {
		backup = sqlite3_backup_init(copy, "main", store->db, "main");
		if (backup)
			(void)sqlite3_backup_step(backup, -1);
		rc = backup ? sqlite3_backup_finish(backup) : sqlite3_errcode(copy);
	}
	if (rc == SQLITE_OK)
		*bytes_out = sqlite3_serialize(copy, "main", &len, 0);
	if (rc != SQLITE_OK)
		ret = statedb_sql_failed(store, rc, "backup");
	else if (!*bytes_out)
		ret = error_set(-ENOMEM, "state database: backup: cannot allocate memory");
	(void)sqlite3_close(copy);
	*len_out = (size_t)len;
	return ret;
}

void statedb_backup_free(uint8_t *bytes)
{
	sqlite3_free(bytes);
}

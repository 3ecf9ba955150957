#include "server/statedb/sql.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"

/* -------- the crc of a row -------- */

void statedb_sql_crc32c(sqlite3_context *context, int n, sqlite3_value **values)
{
	uint32_t crc = 0;

	for (int i = 0; i < n; i++) {
		int64_t number = sqlite3_value_int64(values[i]);
		uint8_t kind = (uint8_t)sqlite3_value_type(values[i]);
		const void *bytes = &number;
		size_t len = sizeof(number);

		if (kind == SQLITE_TEXT || kind == SQLITE_BLOB) {
			bytes = sqlite3_value_blob(values[i]);
			len = (size_t)sqlite3_value_bytes(values[i]);
		}
		crc = crc32c(crc, &kind, sizeof(kind));
		crc = len ? crc32c(crc, bytes, len) : crc;
	}
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
	case SQLITE_ERROR: /* our statements are valid, so the schema lacks an object */
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

int statedb_sql_failed(struct statedb *store, int rc, const char *what)
{
	/* The message of an error that an operator can repair names the file. */
	if (store->db && ((rc & 0xff) == SQLITE_FULL || (rc & 0xff) == SQLITE_IOERR))
		return error_set(code_of(rc),
				 "state database %s: its disk %s, and nothing was changed",
				 sqlite3_db_filename(store->db, "main"),
				 (rc & 0xff) == SQLITE_FULL
					 ? "is full: make room there"
					 : "cannot be written or read: see its limits and health");
	return error_set(code_of(rc), "state database: %s: %s", what,
			 store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(rc));
}

int statedb_sql_prepare(struct statedb *store, const char *sql, sqlite3_stmt **stmt_out)
{
	int rc = sqlite3_prepare_v2(store->db, sql, -1, stmt_out, NULL);

	return rc == SQLITE_OK ? 0 : statedb_sql_failed(store, rc, sql);
}

int statedb_sql_step(struct statedb *store, sqlite3_stmt *stmt)
{
	int rc = sqlite3_step(stmt), ret = 0;

	if (rc == SQLITE_ROW)
		return 1;
	if (rc != SQLITE_DONE)
		ret = statedb_sql_failed(store, rc, sqlite3_sql(stmt));
	sqlite3_finalize(stmt);
	return ret;
}

int statedb_sql_first(struct statedb *store, const char *sql, sqlite3_stmt **stmt_out)
{
	int ret = statedb_sql_prepare(store, sql, stmt_out);

	return ret ? ret : statedb_sql_step(store, *stmt_out);
}

int statedb_sql_script(struct statedb *store, const char *what, const char *sql)
{
	int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : statedb_sql_failed(store, rc, what);
}

int statedb_sql_column_blob(sqlite3_stmt *stmt, int column, void *out, size_t len)
{
	const void *blob = sqlite3_column_blob(stmt, column);

	if (!blob || sqlite3_column_bytes(stmt, column) != (int)len)
		return error_set(-EBADMSG, "state database: %s of %d bytes, want %zu",
				 sqlite3_column_name(stmt, column),
				 sqlite3_column_bytes(stmt, column), len);
	memcpy(out, blob, len);
	return 0;
}

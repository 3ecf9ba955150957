/*
 * sql.h - statements of the state database: SQLite calls with our error codes. Private to
 * server/statedb/.
 *
 * Error codes are those of statedb.h. The error message has SQLite's message and the statement.
 * Thread: owner.
 */
#ifndef RLV_SERVER_STATEDB_SQL_H
#define RLV_SERVER_STATEDB_SQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sqlite3.h>

#include "server/statedb/statedb.h"

#include "base/error.h"

struct statedb {
	sqlite3 *db;
	struct statedb_ids ids;
	bool has_uuid;
};

/* A value bound to a ? of a statement. ptr is borrowed until the statement ends. */
struct statedb_sql_value {
	uint64_t number;
	const void *ptr;
	int len;
	enum { SQL_VALUE_INT, SQL_VALUE_TEXT, SQL_VALUE_BLOB } kind;
};

#define SQL_INT(x) \
	{ \
		.kind = SQL_VALUE_INT, .number = (x) \
	}
#define SQL_TEXT(x) \
	{ \
		.kind = SQL_VALUE_TEXT, .ptr = (x), .len = -1 \
	}
#define SQL_BLOB(x, n) \
	{ \
		.kind = SQL_VALUE_BLOB, .ptr = (x), .len = (int)(n) \
	}

/* Add the SQL function crc32c(...): over type and content of all arguments. */
RLV_MUST_CHECK int statedb_sql_add_crc32c(struct statedb *store);

/* Set the error for an SQLite result and return its code. what: the statement, or its name. */
int statedb_sql_failed(struct statedb *store, int rc, const char *what);

/* The caller finalizes the statement. */
RLV_MUST_CHECK int statedb_sql_prepare(struct statedb *store, const char *sql,
				       const struct statedb_sql_value *values, size_t n,
				       sqlite3_stmt **stmt_out);

/* Run a statement without result rows. */
RLV_MUST_CHECK int statedb_sql_run(struct statedb *store, const char *sql,
				   const struct statedb_sql_value *values, size_t n);

/* Run several statements without bound values. */
RLV_MUST_CHECK int statedb_sql_script(struct statedb *store, const char *sql);

/* Call row for each row until it returns non-zero, which is then the result. */
RLV_MUST_CHECK int statedb_sql_each(struct statedb *store, const char *sql,
				    int (*row)(void *ctx, sqlite3_stmt *stmt), void *ctx);

uint64_t statedb_sql_column_u64(sqlite3_stmt *stmt, int column);
uint32_t statedb_sql_column_u32(sqlite3_stmt *stmt, int column);
/* Truncated to room; "" for NULL. */
void statedb_sql_column_text(sqlite3_stmt *stmt, int column, char *out, size_t room);
/* -EBADMSG: its length differs from len. */
RLV_MUST_CHECK int statedb_sql_column_blob(sqlite3_stmt *stmt, int column, void *out, size_t len);

#endif

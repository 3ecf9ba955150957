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
	struct catalog_store base;
	sqlite3 *db;
};

static inline struct statedb *statedb_of(struct catalog_store *store)
{
	return (struct statedb *)store;
}

/* The SQL function crc32c(...): over type and content of all arguments. */
void statedb_sql_crc32c(sqlite3_context *context, int n, sqlite3_value **values);

/* Set the error for an SQLite result and return its code. what: the statement, or its name. */
int statedb_sql_failed(struct statedb *store, int rc, const char *what);

/* The caller finalizes the statement. */
RLV_MUST_CHECK int statedb_sql_prepare(struct statedb *store, const char *sql,
				       sqlite3_stmt **stmt_out);

/* Advances it. 1: a row. Else the statement is finalized; 0: it ended. */
RLV_MUST_CHECK int statedb_sql_step(struct statedb *store, sqlite3_stmt *stmt);

/* The first step of a statement without bound values. 1: a row, the caller finalizes it. */
RLV_MUST_CHECK int statedb_sql_first(struct statedb *store, const char *sql,
				     sqlite3_stmt **stmt_out);

/* Run statements without bound values or rows. what: for messages. */
RLV_MUST_CHECK int statedb_sql_script(struct statedb *store, const char *what, const char *sql);

/* -EBADMSG: its length differs from len. */
RLV_MUST_CHECK int statedb_sql_column_blob(sqlite3_stmt *stmt, int column, void *out, size_t len);

/* rows.c: store_ops of the database; and the crc of each row of all tables. */
RLV_MUST_CHECK int statedb_put(struct catalog_store *store, enum store_rows rows,
			       const void *record);
RLV_MUST_CHECK int statedb_remove(struct catalog_store *store, enum store_rows rows,
				  const void *record, uint32_t n_keys);
RLV_MUST_CHECK int statedb_find(struct catalog_store *store, enum store_rows rows, void *record,
				bool *found_out);
RLV_MUST_CHECK int statedb_each(struct catalog_store *store, enum store_rows rows,
				int (*fn)(void *ctx, const void *record), void *ctx);
RLV_MUST_CHECK int statedb_check_rows(struct statedb *store);

#endif

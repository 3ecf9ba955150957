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

/* The SQL function crc32c(...): the CRC-32C over the type and content of all n arguments. */
void statedb_sql_crc32c(sqlite3_context *context, int n, sqlite3_value **values);

/* Sets error_last() for the SQLite result rc and returns the negative errno for it. what: the
   statement, or its name. */
int statedb_sql_failed(struct statedb *store, int rc, const char *what);

/* Prepares the statement sql, which the caller finalizes. After an error there is none. */
RLV_MUST_CHECK int statedb_sql_prepare(struct statedb *store, const char *sql,
				       sqlite3_stmt **stmt_out);

/* Advances the statement. 1: it has a row. Else the statement is finalized; 0: no more rows. */
RLV_MUST_CHECK int statedb_sql_step(struct statedb *store, sqlite3_stmt *stmt);

/* Prepares a statement without bound values and takes its first step. 1: it has a row, the caller
   finalizes it. Else it is finalized; 0: no row. */
RLV_MUST_CHECK int statedb_sql_first(struct statedb *store, const char *sql,
				     sqlite3_stmt **stmt_out);

/* Runs the statements in sql, which have no bound values; rows are ignored. what: name for the
   error message. */
RLV_MUST_CHECK int statedb_sql_script(struct statedb *store, const char *what, const char *sql);

/* Copies the blob in that column of the row to out. -EBADMSG: it does not have len bytes. */
RLV_MUST_CHECK int statedb_sql_column_blob(sqlite3_stmt *stmt, int column, void *out, size_t len);

/* In rows.c: the row operations of struct store_ops (catalog/store.h), and a check of each row's
   crc in all tables. put replaces the row with the record's keys. */
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

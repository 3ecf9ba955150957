/*
 * rows.c - the records of catalog/store.h as rows of SQLite tables.
 */
#include "server/statedb/sql.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

#define SQL_BYTES 512

enum column_kind {
	COLUMN_INT,
	COLUMN_TEXT,
	COLUMN_BYTES,
	COLUMN_DESC, /* a pointer, and its length in the member behind it */
};

/* A column of a table, and the member of its record. */
struct column {
	const char *name;
	size_t off, size;
	enum column_kind kind;
	bool is_key;
};

#define COLUMN(column, kind, record, member) \
	{ \
		column, offsetof(struct record, member), sizeof(((struct record *)NULL)->member), \
			COLUMN_##kind, false \
	}
#define KEY(column, kind, record, member) \
	{ \
		column, offsetof(struct record, member), sizeof(((struct record *)NULL)->member), \
			COLUMN_##kind, true \
	}

/* All columns in the order of the schema, which is that of a row's crc. */
static const struct column numbers[] = {
	KEY("key", TEXT, store_number, key),
	COLUMN("value", INT, store_number, value),
};

static const struct column objects[] = {
	COLUMN("kind", INT, store_object, kind),
	KEY("object", INT, store_object, object),
	COLUMN("name", TEXT, store_object, name),
	COLUMN("state", INT, store_object, state),
	COLUMN("desc", DESC, store_object, desc),
	COLUMN("control", INT, store_object, control),
	COLUMN("auto_parts", INT, store_object, auto_parts),
};

static const struct column parts[] = {
	COLUMN("kind", INT, store_part, kind),
	KEY("object", INT, store_part, object),
	KEY("part", INT, store_part, part),
	COLUMN("node", TEXT, store_part, node),
	COLUMN("incarnation", INT, store_part, incarnation),
	COLUMN("tree", INT, store_part, regions[REGION_TREE]),
	COLUMN("rows", INT, store_part, regions[REGION_ROWS]),
	COLUMN("state", INT, store_part, state),
	COLUMN("slots", INT, store_part, regions[REGION_SLOTS]),
	COLUMN("pages", INT, store_part, regions[REGION_PAGES]),
};

static const struct column laps[] = {
	KEY("table_id", INT, store_lap, table_id),
	KEY("shard", INT, store_lap, shard),
	COLUMN("first", INT, store_lap, first),
};

static const struct column makings[] = {
	KEY("node", TEXT, store_making, node),     COLUMN("kind", INT, store_making, kind),
	KEY("object", INT, store_making, object),  KEY("part", INT, store_making, part),
	COLUMN("uuid", BYTES, store_making, uuid),
};

static const struct column leftovers[] = {
	KEY("node", TEXT, store_leftover, node),
	KEY("region", INT, store_leftover, region),
	COLUMN("uuid", BYTES, store_leftover, uuid),
};

static const struct column nodes[] = {
	KEY("name", TEXT, store_node, name),
	COLUMN("uri", TEXT, store_node, uri),
	COLUMN("incarnation", INT, store_node, incarnation),
	COLUMN("persistent", INT, store_node, persistent),
	COLUMN("draining", INT, store_node, draining),
	COLUMN("lost", INT, store_node, lost),
	COLUMN("pool", BYTES, store_node, pool),
};

static const struct column clients[] = {
	KEY("id", INT, store_client, id),
	COLUMN("pid", INT, store_client, process.pid),
	COLUMN("start_time", INT, store_client, process.start_time),
	COLUMN("boot_id", BYTES, store_client, process.boot_id),
	COLUMN("secret", BYTES, store_client, secret),
};

union record {
	struct store_number number;
	struct store_object object;
	struct store_part part;
	struct store_node node;
	struct store_client client;
};

static const struct table {
	const char *name;
	const struct column *columns;
	uint32_t n;
} tables[STORE_ROWS] = {
	[STORE_NUMBERS] = { "meta", numbers, ARRAY_LEN(numbers) },
	[STORE_OBJECTS] = { "objects", objects, ARRAY_LEN(objects) },
	[STORE_PARTS] = { "parts", parts, ARRAY_LEN(parts) },
	[STORE_LAPS] = { "laps", laps, ARRAY_LEN(laps) },
	[STORE_MAKINGS] = { "provisionings", makings, ARRAY_LEN(makings) },
	[STORE_LEFTOVERS] = { "leftovers", leftovers, ARRAY_LEN(leftovers) },
	[STORE_NODES] = { "nodes", nodes, ARRAY_LEN(nodes) },
	[STORE_CLIENTS] = { "clients", clients, ARRAY_LEN(clients) },
};

/* -------- statements -------- */

static void append(char sql[SQL_BYTES], const char *word, const char *after)
{
	size_t len = strlen(sql);

	snprintf(sql + len, SQL_BYTES - len, "%s%s", word, after);
}

enum { ALL = UINT32_MAX };

/* Appends the names of the first n keys, or of all columns, with words after each and between two. */
static void append_columns(char sql[SQL_BYTES], const struct table *table, uint32_t n_keys,
			   const char *after, const char *between)
{
	bool first = true;

	for (uint32_t i = 0; i < table->n && n_keys; i++) {
		if (n_keys != ALL && !table->columns[i].is_key)
			continue;
		if (!first)
			append(sql, between, "");
		append(sql, table->columns[i].name, after);
		first = false;
		n_keys -= n_keys != ALL;
	}
}

/* Integers of 1, 4 and 8 bytes. Hosts are little-endian (wire/region.h). */
static sqlite3_int64 load_int(const uint8_t *member, size_t size)
{
	uint64_t value = 0;

	memcpy(&value, member, size);
	return (sqlite3_int64)value;
}

static int bind_column(sqlite3_stmt *stmt, int at, const struct column *column, const void *record)
{
	const uint8_t *member = (const uint8_t *)record + column->off;
	const void *desc;
	size_t len;

	switch (column->kind) {
	case COLUMN_TEXT:
		return sqlite3_bind_text(stmt, at, (const char *)member, -1, SQLITE_STATIC);
	case COLUMN_BYTES:
		return sqlite3_bind_blob(stmt, at, member, (int)column->size, SQLITE_STATIC);
	case COLUMN_DESC:
		memcpy(&desc, member, sizeof(desc));
		memcpy(&len, member + sizeof(desc), sizeof(len));
		return sqlite3_bind_blob(stmt, at, desc, (int)len, SQLITE_STATIC);
	default:
		return sqlite3_bind_int64(stmt, at, load_int(member, column->size));
	}
}

/* The members of a record that a statement has: the first n keys, or ALL. */
struct bound {
	const struct table *table;
	const void *record;
	uint32_t n_keys;
};

static int prepare(struct catalog_store *store, const char *sql, struct bound bound,
		   sqlite3_stmt **stmt_out)
{
	const struct table *table = bound.table;
	uint32_t n_keys = bound.n_keys;
	int rc = SQLITE_OK, at = 1, ret = statedb_sql_prepare(statedb_of(store), sql, stmt_out);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < table->n && n_keys && rc == SQLITE_OK; i++) {
		if (n_keys != ALL && !table->columns[i].is_key)
			continue;
		rc = bind_column(*stmt_out, at++, &table->columns[i], bound.record);
		n_keys -= n_keys != ALL;
	}
	if (rc == SQLITE_OK)
		return 0;
	ret = statedb_sql_failed(statedb_of(store), rc, sql);
	sqlite3_finalize(*stmt_out);
	return ret;
}

static int read_column(sqlite3_stmt *stmt, int at, const struct column *column, void *record)
{
	uint8_t *member = (uint8_t *)record + column->off;
	uint64_t value;
	const void *desc;
	size_t len;

	switch (column->kind) {
	case COLUMN_TEXT:
		statedb_sql_column_text(stmt, at, (char *)member, column->size);
		return 0;
	case COLUMN_BYTES:
		return statedb_sql_column_blob(stmt, at, member, column->size);
	case COLUMN_DESC:
		desc = sqlite3_column_blob(stmt, at);
		len = (size_t)sqlite3_column_bytes(stmt, at);
		memcpy(member, &desc, sizeof(desc));
		memcpy(member + sizeof(desc), &len, sizeof(len));
		return 0;
	default:
		value = (uint64_t)sqlite3_column_int64(stmt, at);
		memcpy(member, &value, column->size);
		return 0;
	}
}

static int read_row(sqlite3_stmt *stmt, const struct table *table, void *record)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < table->n; i++)
		ret = read_column(stmt, (int)i, &table->columns[i], record);
	return ret;
}

/* -------- operations -------- */

int statedb_put(struct catalog_store *store, enum store_rows rows, const void *record)
{
	static const char numbers_of[] = "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10";
	const struct table *table = &tables[rows];
	int n = table->n < 10 ? (int)table->n * 4 - 2 : (int)sizeof(numbers_of) - 1;
	char sql[SQL_BYTES] = "INSERT OR REPLACE INTO ";
	sqlite3_stmt *stmt;
	size_t len;
	int ret;

	append(sql, table->name, " (");
	append_columns(sql, table, ALL, "", ", ");
	len = strlen(sql);
	snprintf(sql + len, sizeof(sql) - len, ", crc) VALUES (%.*s, crc32c(%.*s))", n, numbers_of,
		 n, numbers_of);
	ret = prepare(store, sql, (struct bound){ table, record, ALL }, &stmt);
	return ret ? ret : statedb_sql_finish(statedb_of(store), stmt, sql);
}

int statedb_remove(struct catalog_store *store, enum store_rows rows, const void *record,
		   uint32_t n_keys)
{
	const struct table *table = &tables[rows];
	char sql[SQL_BYTES] = "DELETE FROM ";
	sqlite3_stmt *stmt;
	int ret;

	append(sql, table->name, " WHERE ");
	append_columns(sql, table, n_keys, " = ?", " AND ");
	ret = prepare(store, sql, (struct bound){ table, record, n_keys }, &stmt);
	return ret ? ret : statedb_sql_finish(statedb_of(store), stmt, sql);
}

static void append_select(char sql[SQL_BYTES], const struct table *table)
{
	append(sql, "SELECT ", "");
	append_columns(sql, table, ALL, "", ", ");
	append(sql, " FROM ", table->name);
}

int statedb_find(struct catalog_store *store, enum store_rows rows, void *record, bool *found_out)
{
	const struct table *table = &tables[rows];
	char sql[SQL_BYTES] = "";
	sqlite3_stmt *stmt;
	int rc, ret;

	append_select(sql, table);
	append(sql, " WHERE ", "");
	append_columns(sql, table, table->n, " = ?", " AND ");
	ret = prepare(store, sql, (struct bound){ table, record, table->n }, &stmt);
	if (ret)
		return ret;
	rc = sqlite3_step(stmt);
	*found_out = rc == SQLITE_ROW;
	if (rc == SQLITE_ROW)
		ret = read_row(stmt, table, record);
	else if (rc != SQLITE_DONE)
		ret = statedb_sql_failed(statedb_of(store), rc, sql);
	sqlite3_finalize(stmt);
	return ret;
}

struct visit {
	const struct table *table;
	int (*fn)(void *ctx, const void *record);
	void *ctx;
};

static int visit_row(void *ctx, sqlite3_stmt *stmt)
{
	const struct visit *visit = ctx;
	union record record;
	int ret;

	memset(&record, 0, sizeof(record));
	ret = read_row(stmt, visit->table, &record);
	return ret ? ret : visit->fn(visit->ctx, &record);
}

int statedb_each(struct catalog_store *store, enum store_rows rows,
		 int (*fn)(void *ctx, const void *record), void *ctx)
{
	struct visit visit = { &tables[rows], fn, ctx };
	char sql[SQL_BYTES] = "";

	append_select(sql, visit.table);
	append(sql, " ORDER BY ", "");
	append_columns(sql, visit.table, visit.table->n, "", ", ");
	return statedb_sql_each(statedb_of(store), sql, visit_row, &visit);
}

static int damaged_row(void *ctx, sqlite3_stmt *stmt)
{
	const char *key = (const char *)sqlite3_column_text(stmt, 0);

	(void)ctx;
	return error_set(-EBADMSG,
			 "state database: damaged: the crc of a row is wrong, its %s is \"%.64s\"",
			 sqlite3_column_name(stmt, 0), key ? key : "");
}

int statedb_check_rows(struct statedb *store)
{
	int ret = 0;

	for (uint32_t rows = 0; ret == 0 && rows < STORE_ROWS; rows++) {
		char sql[SQL_BYTES] = "SELECT ";

		append_columns(sql, &tables[rows], 1, "", "");
		append(sql, " FROM ", tables[rows].name);
		append(sql, " WHERE crc IS NOT crc32c(", "");
		append_columns(sql, &tables[rows], ALL, "", ", ");
		append(sql, ")", "");
		ret = statedb_sql_each(store, sql, damaged_row, NULL);
	}
	return ret;
}

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
	const char *parameter; /* of statements: ':' and its name */
	size_t off, size;
	enum column_kind kind;
	bool is_key;
};

#define MEMBER(column, kind, record, member, is_key) \
	{ \
		":" column, offsetof(struct record, member), \
			sizeof(((struct record *)NULL)->member), COLUMN_##kind, is_key \
	}
#define COLUMN(column, kind, record, member) MEMBER(column, kind, record, member, false)
#define KEY(column, kind, record, member) MEMBER(column, kind, record, member, true)

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
enum form { NAMES, PARAMETERS, CONDITIONS };

/* Appends to sql the first n_keys key columns, or ALL columns, as names, as parameters (:NAME), or
   as conditions (NAME = :NAME) joined by AND. */
static void append_columns(char sql[SQL_BYTES], const struct table *table, uint32_t n_keys,
			   enum form form)
{
	const char *between = "";

	for (uint32_t i = 0; i < table->n && n_keys; i++) {
		const char *parameter = table->columns[i].parameter;

		if (n_keys != ALL && !table->columns[i].is_key)
			continue;
		append(sql, between, form == PARAMETERS ? "" : parameter + 1);
		append(sql, form == CONDITIONS ? " = " : "", form == NAMES ? "" : parameter);
		between = form == CONDITIONS ? " AND " : ", ";
		n_keys -= n_keys != ALL;
	}
}

/* Prepares sql and binds the members of record to the parameters of their names. The caller
   finalizes the statement, and keeps record until then. */
static int prepare(struct catalog_store *store, const char *sql, const struct table *table,
		   const void *record, sqlite3_stmt **stmt_out)
{
	int rc = SQLITE_OK, ret = statedb_sql_prepare(statedb_of(store), sql, stmt_out);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < table->n && rc == SQLITE_OK; i++) {
		const struct column *column = &table->columns[i];
		const uint8_t *member = (const uint8_t *)record + column->off;
		int at = sqlite3_bind_parameter_index(*stmt_out, column->parameter);
		uint64_t value = 0;
		const void *desc;
		size_t len;

		if (at == 0)
			continue;
		switch (column->kind) {
		case COLUMN_TEXT:
			rc = sqlite3_bind_text(*stmt_out, at, (const char *)member, -1,
					       SQLITE_STATIC);
			break;
		case COLUMN_BYTES:
			rc = sqlite3_bind_blob(*stmt_out, at, member, (int)column->size,
					       SQLITE_STATIC);
			break;
		case COLUMN_DESC:
			memcpy(&desc, member, sizeof(desc));
			memcpy(&len, member + sizeof(desc), sizeof(len));
			rc = sqlite3_bind_blob(*stmt_out, at, desc, (int)len, SQLITE_STATIC);
			break;
		default: /* of 1, 4 or 8 bytes. Hosts are little-endian (wire/region.h) */
			memcpy(&value, member, column->size);
			rc = sqlite3_bind_int64(*stmt_out, at, (sqlite3_int64)value);
		}
	}
	if (rc == SQLITE_OK)
		return 0;
	ret = statedb_sql_failed(statedb_of(store), rc, sql);
	sqlite3_finalize(*stmt_out);
	return ret;
}

static int run(struct catalog_store *store, const char *sql, const struct table *table,
	       const void *record)
{
	sqlite3_stmt *stmt;
	int ret = prepare(store, sql, table, record, &stmt);

	return ret ? ret : statedb_sql_step(statedb_of(store), stmt);
}

static int read_row(sqlite3_stmt *stmt, const struct table *table, void *record)
{
	for (int i = 0; i < (int)table->n; i++) {
		const struct column *column = &table->columns[i];
		uint8_t *member = (uint8_t *)record + column->off;
		const void *bytes;
		uint64_t value;
		size_t len;
		int ret = 0;

		switch (column->kind) {
		case COLUMN_TEXT:
			bytes = sqlite3_column_text(stmt, i);
			snprintf((char *)member, column->size, "%s", bytes ? (char *)bytes : "");
			break;
		case COLUMN_BYTES:
			ret = statedb_sql_column_blob(stmt, i, member, column->size);
			break;
		case COLUMN_DESC:
			bytes = sqlite3_column_blob(stmt, i);
			len = (size_t)sqlite3_column_bytes(stmt, i);
			memcpy(member, &bytes, sizeof(bytes));
			memcpy(member + sizeof(bytes), &len, sizeof(len));
			break;
		default:
			value = (uint64_t)sqlite3_column_int64(stmt, i);
			memcpy(member, &value, column->size);
		}
		if (ret)
			return ret;
	}
	return 0;
}

/* -------- operations -------- */

int statedb_put(struct catalog_store *store, enum store_rows rows, const void *record)
{
	const struct table *table = &tables[rows];
	char sql[SQL_BYTES] = "INSERT OR REPLACE INTO ";

	append(sql, table->name, " (");
	append_columns(sql, table, ALL, NAMES);
	append(sql, ", crc) VALUES (", "");
	append_columns(sql, table, ALL, PARAMETERS);
	append(sql, ", crc32c(", "");
	append_columns(sql, table, ALL, PARAMETERS);
	append(sql, "))", "");
	return run(store, sql, table, record);
}

int statedb_remove(struct catalog_store *store, enum store_rows rows, const void *record,
		   uint32_t n_keys)
{
	const struct table *table = &tables[rows];
	char sql[SQL_BYTES] = "DELETE FROM ";

	append(sql, table->name, " WHERE ");
	append_columns(sql, table, n_keys, CONDITIONS);
	return run(store, sql, table, record);
}

int statedb_find(struct catalog_store *store, enum store_rows rows, void *record, bool *found_out)
{
	const struct table *table = &tables[rows];
	char sql[SQL_BYTES] = "SELECT ";
	sqlite3_stmt *stmt;
	int ret;

	append_columns(sql, table, ALL, NAMES);
	append(sql, " FROM ", table->name);
	append(sql, " WHERE ", "");
	append_columns(sql, table, table->n, CONDITIONS);
	ret = prepare(store, sql, table, record, &stmt);
	if (ret == 0)
		ret = statedb_sql_step(statedb_of(store), stmt);
	*found_out = ret > 0;
	if (ret > 0) {
		ret = read_row(stmt, table, record);
		sqlite3_finalize(stmt);
	}
	return ret;
}

int statedb_each(struct catalog_store *store, enum store_rows rows,
		 int (*fn)(void *ctx, const void *record), void *ctx)
{
	const struct table *table = &tables[rows];
	char sql[SQL_BYTES] = "SELECT ";
	union record record;
	sqlite3_stmt *stmt;
	int ret;

	append_columns(sql, table, ALL, NAMES);
	append(sql, " FROM ", table->name);
	append(sql, " ORDER BY ", "");
	append_columns(sql, table, table->n, NAMES);
	ret = statedb_sql_first(statedb_of(store), sql, &stmt);
	while (ret > 0) {
		memset(&record, 0, sizeof(record));
		ret = read_row(stmt, table, &record);
		if (ret == 0)
			ret = fn(ctx, &record);
		if (ret) {
			sqlite3_finalize(stmt);
			return ret;
		}
		ret = statedb_sql_step(statedb_of(store), stmt);
	}
	return ret;
}

int statedb_check_rows(struct statedb *store)
{
	int ret = 0;

	for (uint32_t rows = 0; ret == 0 && rows < STORE_ROWS; rows++) {
		char sql[SQL_BYTES] = "SELECT ";
		sqlite3_stmt *stmt;

		append_columns(sql, &tables[rows], 1, NAMES);
		append(sql, " FROM ", tables[rows].name);
		append(sql, " WHERE crc IS NOT crc32c(", "");
		append_columns(sql, &tables[rows], ALL, NAMES);
		append(sql, ")", "");
		ret = statedb_sql_first(store, sql, &stmt);
		if (ret > 0) {
			const char *key = (const char *)sqlite3_column_text(stmt, 0);

			ret = error_set(-EBADMSG,
					"state database: damaged: the crc of a row is wrong, its "
					"%s is \"%.64s\"",
					sqlite3_column_name(stmt, 0), key ? key : "");
			sqlite3_finalize(stmt);
		}
	}
	return ret;
}

/*
 * record.h - prints structs of the library as JSON and as text by one table of their fields.
 */
#ifndef RLV_CLI_RECORD_H
#define RLV_CLI_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"
#include "base/json.h"
#include "program/text_table.h"

/* Type of the member, and how it is written. */
enum field_kind {
	FIELD_TEXT,     /* char[]; in text - if empty */
	FIELD_U32,      /* uint32_t */
	FIELD_PERMILLE, /* uint32_t; in text 12.5% */
	FIELD_BOOL,     /* uint32_t, written as true or false, yes or no */
	FIELD_NAME,     /* uint32_t, index in names */
	FIELD_U64,      /* uint64_t */
	FIELD_BYTES,    /* uint64_t; in text 1.50 GiB */
	FIELD_NS,       /* uint64_t; in text 1.5 s, 20.0 ms */
	FIELD_I64,      /* int64_t */
	FIELD_DOUBLE,   /* double */
	FIELD_OWN,      /* the function put writes the member to json, or the cell to row */
};

struct field {
	const char *key;     /* in JSON and in lines of text; NULL: a column of text only */
	const char *heading; /* of the column, as in text_table.h; NULL: no column */
	enum field_kind kind;
	size_t offset;
	const char *const *names; /* of FIELD_NAME: ends with NULL */
	void (*put)(const void *record, struct json *json, struct text_table *row);
};

/* A member that is written by its kind. */
#define FIELD(type, member, kind, key, heading) \
	{ \
		key, heading, kind, offsetof(struct type, member), NULL, NULL \
	}

struct record {
	size_t size; /* of one struct */
	size_t n_fields;
	const struct field *fields;
};

/* A record of the fields in an array. */
#define RECORD(type, fields) \
	{ \
		sizeof(struct type), ARRAY_LEN(fields), fields \
	}

/* Writes the members of the record `at` into the open object of json. */
void record_members(const struct record *type, const void *at, struct json *json);

/* Prints the record `at` on stdout: a line "key value" for each member but those of FIELD_OWN. */
void record_lines(const struct record *type, const void *at);

/* record_table begins a text table with the headings of a type; record_row adds the record `at`. */
void record_table(const struct record *type, struct text_table *table_out);
void record_row(const struct record *type, const void *at, struct text_table *table);

/*
 * Writes n records as an array to json, or, if json is NULL, as a table on stdout. CLI_OK, or
 * CLI_FAILURE if the table could not be printed.
 */
int record_list(const struct record *type, const void *array, size_t n, struct json *json);

#endif

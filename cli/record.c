#include "cli/record.h"

#include <stdio.h>
#include <string.h>

#include "base/os/clock.h"
#include "cli/cli.h"
#include "program/units.h"

enum { TEXT_BYTES = 64 };

static const void *record_member(const struct field *field, const void *at)
{
	return (const char *)at + field->offset;
}

static uint64_t number_of(const struct field *field, const void *at)
{
	if (field->kind <= FIELD_NAME)
		return *(const uint32_t *)record_member(field, at);
	return *(const uint64_t *)record_member(field, at);
}

static const char *name_of(const struct field *field, const void *at)
{
	uint64_t index = number_of(field, at), n = 0;

	while (field->names[n])
		n++;
	return index < n ? field->names[index] : "?";
}

void record_members(const struct record *type, const void *at, struct json *json)
{
	for (const struct field *field = type->fields; field < type->fields + type->n_fields;
	     field++) {
		if (!field->key)
			continue;
		if (field->kind == FIELD_OWN)
			field->put(at, json, NULL);
		else if (field->kind == FIELD_TEXT)
			json_put_string(json, field->key, record_member(field, at));
		else if (field->kind == FIELD_NAME)
			json_put_string(json, field->key, name_of(field, at));
		else if (field->kind == FIELD_BOOL)
			json_put_bool(json, field->key, number_of(field, at) != 0);
		else if (field->kind == FIELD_I64)
			json_put_i64(json, field->key, *(const int64_t *)record_member(field, at));
		else if (field->kind == FIELD_DOUBLE)
			json_put_double(json, field->key,
					*(const double *)record_member(field, at));
		else
			json_put_u64(json, field->key, number_of(field, at));
	}
}

static const char *text_of(const struct field *field, const void *at, char text[TEXT_BYTES])
{
	const char *string;
	double seconds;

	switch (field->kind) {
	case FIELD_TEXT:
		string = record_member(field, at);
		return *string ? string : "-";
	case FIELD_NAME:
		return name_of(field, at);
	case FIELD_BOOL:
		return number_of(field, at) ? "yes" : "no";
	case FIELD_PERMILLE:
		snprintf(text, TEXT_BYTES, "%.1f%%", (double)number_of(field, at) / 10);
		break;
	case FIELD_BYTES:
		return units_format_bytes(number_of(field, at), text);
	case FIELD_NS:
		seconds = (double)number_of(field, at) / (double)CLOCK_NS_PER_S;
		if (seconds < 1)
			snprintf(text, TEXT_BYTES, "%.1f ms", seconds * 1e3);
		else
			snprintf(text, TEXT_BYTES, "%.1f s", seconds);
		break;
	case FIELD_DOUBLE:
		snprintf(text, TEXT_BYTES, "%.6g", *(const double *)record_member(field, at));
		break;
	case FIELD_I64:
		snprintf(text, TEXT_BYTES, "%lld", *(const long long *)record_member(field, at));
		break;
	case FIELD_U32:
	case FIELD_U64:
	case FIELD_OWN:
		snprintf(text, TEXT_BYTES, "%llu", (unsigned long long)number_of(field, at));
		break;
	}
	return text;
}

void record_lines(const struct record *type, const void *at)
{
	char text[TEXT_BYTES];

	for (size_t i = 0; i < type->n_fields; i++)
		if (type->fields[i].key && type->fields[i].kind != FIELD_OWN)
			printf("%-18s  %s\n", type->fields[i].key,
			       text_of(&type->fields[i], at, text));
}

void record_table(const struct record *type, struct text_table *table_out)
{
	char headings[256] = "";
	size_t len = 0;

	for (size_t i = 0; i < type->n_fields; i++)
		if (type->fields[i].heading)
			len += (size_t)snprintf(headings + len, sizeof(headings) - len, "%s%s",
						len ? "|" : "", type->fields[i].heading);
	text_table_init(table_out, headings);
}

void record_row(const struct record *type, const void *at, struct text_table *table)
{
	char text[TEXT_BYTES];

	for (size_t i = 0; i < type->n_fields; i++) {
		if (type->fields[i].heading && type->fields[i].kind == FIELD_OWN)
			type->fields[i].put(at, NULL, table);
		else if (type->fields[i].heading)
			text_table_cell(table, "%s", text_of(&type->fields[i], at, text));
	}
	text_table_row(table);
}

int record_list(const struct record *type, const void *array, size_t n, struct json *json)
{
	const char *at = array;
	struct text_table table;
	int ret;

	if (json) {
		json_array_begin(json);
		for (size_t i = 0; i < n; i++) {
			json_object_begin(json);
			record_members(type, at + i * type->size, json);
			json_object_end(json);
		}
		json_array_end(json);
		return CLI_OK;
	}
	record_table(type, &table);
	for (size_t i = 0; i < n; i++)
		record_row(type, at + i * type->size, &table);
	ret = text_table_print(&table, stdout);
	text_table_fini(&table);
	return ret ? CLI_FAILURE : CLI_OK;
}

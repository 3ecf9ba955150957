#include "program/text_table.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/mem/alloc.h"

#define CELL_BYTES 256

/* Width of a text on a terminal, in columns: its number of UTF-8 characters. */
static size_t columns_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

static void add_cell(struct text_table *table, const char *text)
{
	size_t column, width = columns_of(text);
	char *copy;

	if (table->error || table->n_columns == 0)
		return;
	if (table->n_cells == table->capacity) {
		size_t capacity = table->capacity ? 2 * table->capacity : 64;
		char **cells = mem_resize(table->cells, capacity * sizeof(*cells));

		if (!cells) {
			table->error = -ENOMEM;
			return;
		}
		table->cells = cells;
		table->capacity = capacity;
	}
	copy = mem_strdup(text);
	if (!copy) {
		table->error = -ENOMEM;
		return;
	}
	column = table->n_cells % table->n_columns;
	table->cells[table->n_cells++] = copy;
	if (width > table->width[column])
		table->width[column] = width;
}

void text_table_init(struct text_table *table, const char *headings)
{
	char text[CELL_BYTES];

	memset(table, 0, sizeof(*table));
	for (const char *at = headings; at && table->n_columns < TEXT_TABLE_MAX_COLUMNS;) {
		bool right = *at == '>';
		const char *end = strchrnul(at, '|');

		table->right[table->n_columns++] = right;
		snprintf(text, sizeof(text), "%.*s", (int)(end - at) - right, at + right);
		add_cell(table, text);
		at = *end ? end + 1 : NULL;
	}
}

void text_table_fini(struct text_table *table)
{
	for (size_t i = 0; i < table->n_cells; i++)
		mem_free(table->cells[i]);
	mem_free(table->cells);
	memset(table, 0, sizeof(*table));
}

void text_table_cell(struct text_table *table, const char *fmt, ...)
{
	char text[CELL_BYTES];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	add_cell(table, text);
}

void text_table_row(struct text_table *table)
{
	while (!table->error && table->n_columns && table->n_cells % table->n_columns)
		add_cell(table, "");
}

int text_table_print(const struct text_table *table, FILE *file)
{
	if (table->error)
		return table->error;
	for (size_t i = 0; i < table->n_cells; i++) {
		size_t column = i % table->n_columns;
		bool last = column + 1 == table->n_columns;
		int space = (int)(table->width[column] - columns_of(table->cells[i]));

		fprintf(file, "%*s%s%*s%s", table->right[column] ? space : 0, "", table->cells[i],
			last || table->right[column] ? 0 : space, "", last ? "\n" : "  ");
	}
	return fflush(file) || ferror(file) ? -EIO : 0;
}

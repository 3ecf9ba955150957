/*
 * text_table.h - prints a table of text; each column is as wide as its widest cell.
 *
 *   text_table_init(&t, "case|role|>items/s"); text_table_cell(&t, "%s", name); ...
 *   text_table_row(&t); text_table_print(&t, stdout); text_table_fini(&t);
 *
 * A heading that starts with '>' right-aligns its column. The first error is kept and returned by
 * text_table_print.
 */
#ifndef RLV_PROGRAM_TEXT_TABLE_H
#define RLV_PROGRAM_TEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

#define TEXT_TABLE_MAX_COLUMNS 20

struct text_table {
	size_t n_columns;
	bool right[TEXT_TABLE_MAX_COLUMNS];
	size_t width[TEXT_TABLE_MAX_COLUMNS];
	char **cells; /* n_columns per row; the first row is the heading */
	size_t n_cells;
	size_t capacity;
	int error;
};

/*
 * Begins a table with headings separated by |; one that begins with > is of a column aligned right.
 * Those beyond TEXT_TABLE_MAX_COLUMNS are dropped. Thread: owner.
 */
void text_table_init(struct text_table *table, const char *headings);
void text_table_fini(struct text_table *table);

/* Adds the next cell of the row. A failure is reported by text_table_print. */
void text_table_cell(struct text_table *table, const char *fmt, ...) RLV_PRINTF(2, 3);

/* Ends the row; missing cells are empty. */
void text_table_row(struct text_table *table);

/*
 * Prints the table with aligned columns. -ENOMEM: a cell could not be added; -EIO: the stream
 * failed.
 */
int text_table_print(const struct text_table *table, FILE *file) RLV_MUST_CHECK;

#endif

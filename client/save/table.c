/* The header of a saved table: what may stand in it. */
#include "client/save/format.h"

#include "base/bits.h"
#include "base/column_name.h"

#include <errno.h>
#include <string.h>

#define ROW_BYTES_MAX ((uint64_t)1 << 30)

static int check_column(struct save_table *table, uint32_t c)
{
	const struct save_column *column = &table->columns[c];
	uint64_t bytes = dtype_bytes(column->dtype);

	if (!memchr(column->name, 0, sizeof(column->name)) ||
	    !column_name_is_valid(column->name, TABLE_NAME_BYTES))
		return error_set(-EPROTO, "saved table: the name of column %u is not one", c);
	if (!bytes || column->role > ROLE_NEXT || column->ndim > TABLE_MAX_DIMS)
		return error_set(-EPROTO,
				 "saved table: column %s has dtype %u, role %u and %u dimensions",
				 column->name, column->dtype, column->role, column->ndim);
	for (uint32_t d = 0; d < column->ndim; d++) {
		bytes *= column->shape[d];
		if (bytes == 0 || bytes > ROW_BYTES_MAX)
			return error_set(-EPROTO, "saved table: the shape of column %s is not one",
					 column->name);
	}
	table->column_bytes[c] = (uint32_t)bytes;
	table->row_bytes += bytes;
	return 0;
}

int save_table_check(struct save_table *table)
{
	const struct save_header *head = &table->head;

	if (head->n_columns == 0 || head->n_columns > TABLE_MAX_COLUMNS || head->n_views == 0 ||
	    head->n_views > RING_MAX_VIEWS)
		return error_set(-EPROTO, "saved table: it has %u columns and %u views",
				 head->n_columns, head->n_views);
	if (!memchr(head->name, 0, sizeof(head->name)) || head->window == 0 ||
	    !bits_all_zero(head->reserved, sizeof(head->reserved)))
		return error_set(-EPROTO, "saved table: its header has fields that cannot be");
	table->row_bytes = sizeof(struct save_row);
	for (uint32_t c = 0; c < head->n_columns; c++) {
		int ret = check_column(table, c);

		if (ret)
			return ret;
	}
	if (table->row_bytes > ROW_BYTES_MAX)
		return error_set(-EPROTO, "saved table: a row has %llu bytes",
				 (unsigned long long)table->row_bytes);
	table->leaf_bytes = 0;
	for (uint32_t v = 0; v < head->n_views; v++) {
		if (table->views[v].scale == 0)
			return error_set(-EPROTO, "saved table: the scale of view %u is 0", v);
		table->leaf_bytes += table->views[v].max_times_sampled > 1 ? 12 : 8;
	}
	return 0;
}

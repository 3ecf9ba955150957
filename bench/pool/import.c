#include "bench/pool/import.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "bench/pool/lines.h"

#define SECONDS_MOST 1e10
#define ROWS_MOST 100000u

/* Columns of openb by name. */
enum { OPENB_NAME, OPENB_GPUS, OPENB_MILLI, OPENB_CREATED, OPENB_DELETED, OPENB_SCHEDULED };
static const char *const openb_columns[] = { "name",          "num_gpu",       "gpu_milli",
					     "creation_time", "deletion_time", "scheduled_time" };

static const double of_seconds[] = { 0, SECONDS_MOST };

static int table_add(struct job_table *table, const struct job_row *row)
{
	if (table->n == ROWS_MOST)
		return error_set(-EINVAL, "a table of more than %u jobs", ROWS_MOST);
	if (table->n == table->room) {
		uint32_t room = table->room ? 2 * table->room : 256;

		if (!mem_grow(&table->rows, table->room, room, sizeof(*table->rows)))
			return error_set(-ENOMEM, "no memory for %u jobs", room);
		table->room = room;
	}
	table->rows[table->n++] = *row;
	return 0;
}

static int read_salus(struct lines *lines, struct job_table *table)
{
	struct job_row row = { .demand = 1 };
	double mb = 0, iterations = 0;
	int ret = lines_number(lines, 1, "seconds", (double[]){ 1e-3, SECONDS_MOST },
			       &row.duration_s);

	if (ret == 0)
		ret = lines_number(lines, 2, "peak MB", (double[]){ 0, 1e9 }, &mb);
	if (ret == 0)
		ret = lines_number(lines, 3, "iterations", (double[]){ 1, 1e12 }, &iterations);
	row.peak_bytes = mb * 1024 * 1024;
	row.iterations = (uint64_t)iterations;
	return ret ? ret : table_add(table, &row);
}

static int openb_header(const struct lines *lines, uint32_t at[ARRAY_LEN(openb_columns)])
{
	for (size_t i = 0; i < ARRAY_LEN(openb_columns); i++) {
		at[i] = 0;
		while (at[i] < lines->n && strcmp(lines->fields[at[i]], openb_columns[i]) != 0)
			at[i]++;
		if (at[i] == lines->n)
			return lines_error(lines, "the header has no column %s", openb_columns[i]);
	}
	return 0;
}

static int read_openb(struct lines *lines, const uint32_t at[ARRAY_LEN(openb_columns)],
		      const struct import_opts *opts, struct job_table *table)
{
	double gpus = 0, milli = 0, deleted = 0, scheduled = 0;
	struct job_row row = { .demand = 1 };
	int ret = lines_number(lines, at[OPENB_GPUS], "num_gpu", (double[]){ 0, 1e6 }, &gpus);

	if (ret == 0)
		ret = lines_number(lines, at[OPENB_MILLI], "gpu_milli", (double[]){ 0, 1e6 },
				   &milli);
	if (ret == 0)
		ret = lines_number(lines, at[OPENB_CREATED], "creation_time", of_seconds,
				   &row.arrival_s);
	if (ret)
		return ret;
	if (gpus < 1 || gpus > 1 || milli <= 0 || at[OPENB_SCHEDULED] >= lines->n ||
	    !*lines->fields[at[OPENB_SCHEDULED]]) {
		table->left_out++;
		return 0;
	}
	ret = lines_number(lines, at[OPENB_SCHEDULED], "scheduled_time", of_seconds, &scheduled);
	if (ret == 0)
		ret = lines_number(lines, at[OPENB_DELETED], "deletion_time",
				   (double[]){ scheduled, SECONDS_MOST }, &deleted);
	if (ret)
		return ret;
	if (milli > 1000)
		return lines_error(lines, "gpu_milli %g of one GPU", milli);
	row.duration_s = deleted - scheduled;
	row.demand = milli / 1000;
	row.peak_bytes = row.demand * opts->device_bytes;
	if (row.duration_s <= 0) {
		table->left_out++;
		return 0;
	}
	return table_add(table, &row);
}

static int read_philly(struct lines *lines, const struct import_opts *opts, struct job_table *table)
{
	struct job_row row = { .demand = 1, .peak_bytes = opts->peak_bytes };
	double steps = 0, gpus = 0;
	int ret = lines_number(lines, 3, "steps", (double[]){ 1, 1e12 }, &steps);

	if (ret == 0)
		ret = lines_number(lines, 4, "arrival", of_seconds, &row.arrival_s);
	if (ret == 0)
		ret = lines_number(lines, 5, "GPUs", (double[]){ 0, 1e6 }, &gpus);
	if (ret)
		return ret;
	row.iterations = (uint64_t)steps;
	row.duration_s = steps * opts->step_s;
	if (gpus < 1 || gpus > 1) {
		table->left_out++;
		return 0;
	}
	return table_add(table, &row);
}

static int compare_rows(const void *a, const void *b)
{
	const struct job_row *x = a, *y = b;

	return (x->arrival_s > y->arrival_s) - (x->arrival_s < y->arrival_s);
}

/* Sorts by arrival, the first at 0. */
static int table_finish(const char *path, struct job_table *table)
{
	double first;

	if (table->n == 0)
		return error_set(-ENODATA, "%s: no job for one GPU, %u left out", path,
				 table->left_out);
	qsort(table->rows, table->n, sizeof(*table->rows), compare_rows);
	first = table->rows[0].arrival_s;
	for (uint32_t i = 0; i < table->n; i++)
		table->rows[i].arrival_s -= first;
	return 0;
}

int job_table_read(const char *path, const struct import_opts *opts, struct job_table *table_out)
{
	uint32_t columns[ARRAY_LEN(openb_columns)] = { 0 };
	bool header = opts->format == IMPORT_OPENB;
	struct lines lines;
	int ret = lines_open(&lines, path, opts->format == IMPORT_PHILLY ? '\t' : ',');

	memset(table_out, 0, sizeof(*table_out));
	while (ret == 0) {
		ret = lines_next(&lines);
		if (ret <= 0)
			break;
		if (header)
			ret = openb_header(&lines, columns);
		else if (opts->format == IMPORT_OPENB)
			ret = read_openb(&lines, columns, opts, table_out);
		else if (opts->format == IMPORT_SALUS)
			ret = read_salus(&lines, table_out);
		else
			ret = read_philly(&lines, opts, table_out);
		header = false;
	}
	lines_close(&lines);
	return ret ? ret : table_finish(path, table_out);
}

void job_table_free(struct job_table *table)
{
	mem_free(table->rows);
	memset(table, 0, sizeof(*table));
}

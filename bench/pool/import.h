/*
 * import.h - job tables that others have published, as they come.
 *
 *   salus    NAME,SECONDS,PEAK_MB,ITERATIONS,COMMAND        no header; all arrive at 0
 *   openb    Alibaba's openb_pod_list: a header names the columns, of which name, num_gpu,
 *            gpu_milli, creation_time, deletion_time and scheduled_time are used. Memory and demand
 *            are the share of the device that gpu_milli says.
 *   philly   the shape that Gavel made of Philly's: TYPE, COMMAND, ARGUMENT, STEPS, ARRIVAL, GPUS
 *            between tabs. It has neither the time of a step nor memory: both are options.
 *
 * Rows without a GPU, with several, or that never ran are left out and counted.
 */
#ifndef RLV_BENCH_POOL_IMPORT_H
#define RLV_BENCH_POOL_IMPORT_H

#include <stdint.h>

#include "base/error.h"

enum import_format { IMPORT_SALUS, IMPORT_OPENB, IMPORT_PHILLY };

struct import_opts {
	enum import_format format;
	double device_bytes; /* of which openb's jobs have shares */
	double step_s;       /* philly: of a step */
	double peak_bytes;   /* philly: of each job */
};

struct job_row {
	double arrival_s, duration_s, peak_bytes, demand;
	uint64_t iterations; /* 0: the table does not say */
};

struct job_table {
	struct job_row *rows; /* by arrival; the first arrives at 0 */
	uint32_t n, room, left_out;
};

/*
 * Reads a table. -EINVAL: the message names file, line and field; -ENODATA: no job is left; -ENOMEM,
 * and codes of open(2). job_table_free in any case.
 */
RLV_MUST_CHECK int job_table_read(const char *path, const struct import_opts *opts,
				  struct job_table *table_out);
void job_table_free(struct job_table *table);

#endif

/*
 * Metrics: a page in Prometheus' text format (version 0.0.4), as it is written.
 *
 *   metrics_family(m, "relive_tables", METRICS_GAUGE, "Tables of the store.");
 *   metrics_u64(m, n, NULL);
 *
 * Every family has its HELP and TYPE lines, and its samples follow them. Names of counters end in
 * _total, units stand in names, and the number of a label's values is bounded by what the store bounds:
 * tables, views, shard states, memory nodes.
 */
#ifndef RLV_SERVER_NET_METRICS_H
#define RLV_SERVER_NET_METRICS_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics {
	FILE *file; /* grows text */
	char *text;
	size_t bytes;
	const char *name; /* of the family */
};

enum metrics_kind { METRICS_GAUGE, METRICS_COUNTER };

/* A list of them ends with a key of NULL. Values are escaped. */
struct metrics_label {
	const char *key;
	const char *value;
};

RLV_MUST_CHECK int metrics_open(struct metrics *m);
/* text is the page, the caller's to free() (it is of open_memstream). -ENOMEM: there is none. */
RLV_MUST_CHECK int metrics_close(struct metrics *m);

/* name and help are literals. */
void metrics_family(struct metrics *m, const char *name, enum metrics_kind kind, const char *help);
/* One sample of the family. labels may be NULL. */
void metrics_u64(struct metrics *m, uint64_t value, const struct metrics_label *labels);
void metrics_seconds(struct metrics *m, uint64_t ns, const struct metrics_label *labels);

/* Families of any process: process_cpu_seconds_total and the like. */
void metrics_process(struct metrics *m);

#endif

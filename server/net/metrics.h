/*
 * Metrics: writes a page in Prometheus' text format (version 0.0.4).
 *
 *   metrics_family(m, "relive_tables", METRICS_GAUGE, "Tables of the store.");
 *   metrics_u64(m, n, NULL);
 *
 * Each family has HELP and TYPE lines, followed by its samples. Counter names end in _total, units
 * are part of names, and the number of label values is bounded by limits of the store: tables,
 * views, shard states, memory nodes.
 */
#ifndef RLV_SERVER_NET_METRICS_H
#define RLV_SERVER_NET_METRICS_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics {
	FILE *file; /* writes text */
	char *text;
	size_t bytes;
	const char *name; /* current family */
};

enum metrics_kind { METRICS_GAUGE, METRICS_COUNTER };

/* Labels; the last key is NULL. Values are escaped. */
struct metrics_label {
	const char *key;
	const char *value;
};

RLV_MUST_CHECK int metrics_open(struct metrics *m);
/* Completes the page, m->text; the caller frees that with free() (from open_memstream), also after
   an error. -ENOMEM: the page is not complete. */
RLV_MUST_CHECK int metrics_close(struct metrics *m);

/* Begins a family of samples: writes its HELP and TYPE lines. name and help are literals. */
void metrics_family(struct metrics *m, const char *name, enum metrics_kind kind, const char *help);
/* Adds a sample of the family begun last. labels may be NULL. */
void metrics_u64(struct metrics *m, uint64_t value, const struct metrics_label *labels);
void metrics_milli(struct metrics *m, uint64_t milli, const struct metrics_label *labels);
void metrics_seconds(struct metrics *m, uint64_t ns, const struct metrics_label *labels);

/* Adds metrics of this process: CPU seconds, resident memory, open descriptors. */
void metrics_process(struct metrics *m);

#endif

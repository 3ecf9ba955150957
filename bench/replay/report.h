/*
 * report.h - the figures of cases, as a table for people or as JSON lines for programs.
 */
#ifndef RLV_BENCH_REPLAY_REPORT_H
#define RLV_BENCH_REPLAY_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/json.h"
#include "bench/replay/case.h"

/* Best of a series: the largest, or the smallest where less is better. */
struct bench_spread {
	double best, median, min, max;
};
struct bench_spread bench_spread_of(const struct bench_series *series, bool higher_is_better);

/* A row for each operation of each case, and the yardsticks below. -ENOMEM, -EIO. */
int bench_report_text(const struct bench_case *cases, uint32_t n, FILE *file) RLV_MUST_CHECK;

/* Errors stick in json. */
void bench_report_json(const struct bench_case *c, const char *store, struct json *json);

#endif

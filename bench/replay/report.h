/*
 * report.h - prints the results of cases, as a table or as JSON lines.
 */
#ifndef RLV_BENCH_REPLAY_REPORT_H
#define RLV_BENCH_REPLAY_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/json.h"
#include "bench/replay/case.h"

/* Prints a table: one row per operation of each case, then the yardsticks. -ENOMEM, -EIO. */
int replay_report_text(const struct replay_case *cases, uint32_t n, FILE *file) RLV_MUST_CHECK;

/* Prints how the second of two cases compares with the first: of each operation the median of the
   ratios of its items/s, and the interval of series_interval; as text if json is NULL. */
void replay_report_ratio(const struct replay_case cases[2], const char *store, FILE *file,
			 struct json *json);

/* Prints all metrics, counters and yardsticks of a case as JSON objects; store: its name there.
   json keeps the first error. */
void replay_report_json(const struct replay_case *c, const char *store, struct json *json);

#endif

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

/* A row for each operation of each case, and the yardsticks below. -ENOMEM, -EIO. */
int replay_report_text(const struct replay_case *cases, uint32_t n, FILE *file) RLV_MUST_CHECK;

/* Errors stick in json. */
void replay_report_json(const struct replay_case *c, const char *store, struct json *json);

#endif

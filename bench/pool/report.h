/*
 * report.h - results of simulated cases, as rows of text or JSON lines ("bench":"pool_simulate").
 */
#ifndef RLV_BENCH_POOL_REPORT_H
#define RLV_BENCH_POOL_REPORT_H

#include "base/json.h"
#include "bench/harness/series.h"
#include "bench/pool/sim.h"

#define REPORT_METRICS 7u

struct report {
	struct json *json; /* NULL: text on stdout */
	const char *bench; /* NULL: pool_simulate */
};

struct report_case {
	const char *set, *policy, *trace; /* trace: or NULL */
	double sigma, budget, gain;       /* budget in bytes; sigma 0: none */
	uint32_t jobs;
	uint64_t seed;    /* the first */
	double published; /* ratio to compare with, or 0 */
};

/* avg_jct_s p99_jct_s makespan_s stall_s utilisation violations speedup_over_serial: by seed. */
struct report_values {
	struct series series[REPORT_METRICS];
};

void report_add(struct report_values *values, const struct sim_result *result,
		double serial_makespan_s);

/* A line of its own: with JSON on stderr. */
void report_note(const struct report *report, const char *fmt, ...) RLV_PRINTF(2, 3);

/* A heading above the rows of a set. */
void report_heading(const struct report *report, const char *text);
void report_case(const struct report *report, const struct report_case *c,
		 const struct report_values *values);

/* Median, p10 and p90 of n ratios, which it sorts. */
void report_ratio(const struct report *report, const struct report_case *c, const char *metric,
		  double *ratios, uint32_t n);

/* A single value. */
void report_value(const struct report *report, const struct report_case *c, const char *metric,
		  double value);

#endif

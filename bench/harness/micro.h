/*
 * micro.h - the main of a micro bench: options, windows, a table or JSON lines.
 *
 *   micro_init -> micro_run (or windows of one's own) -> micro_print .. -> micro_finish
 *
 * Every bench prints the machine's own yardsticks beside its figures.
 */
#ifndef RLV_BENCH_HARNESS_MICRO_H
#define RLV_BENCH_HARNESS_MICRO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "bench/harness/result.h"
#include "bench/harness/series.h"
#include "bench/harness/time.h"
#include "bench/harness/yardstick.h"
#include "program/progress.h"

struct micro {
	const char *name;
	const char *help; /* what it measures, for --help */
	bool json;
	bool full;
	uint64_t seed;
	uint32_t windows;  /* of each case, >= 5 */
	const char *only;  /* measure only cases whose row contains this; NULL = all */
	const char *store; /* --store URI, for benches that set it to a default before */

	struct json out;
	struct progress progress;
	struct yardstick copy; /* of micro_memcpy_gbps */
	uint32_t printed;      /* rows of the table */
};

/*
 * Reads --json --full --seed --windows --only --store --help. True = go on; false = *exit_out is the
 * exit status. m holds name, help and store, nothing else.
 */
bool micro_init(struct micro *m, int argc, char **argv, int *exit_out);

/* Ends the output; the exit status. */
int micro_finish(struct micro *m, bool ok);

/* Does --only ask for it? Its text is the metric and the parameters as in a row of the table. */
bool micro_wants(const struct micro *m, const struct result *result);

/* Prints one JSON object on a line, or a row of the table. */
void micro_print(struct micro *m, const struct result *result, const struct series *series);

/* run(ctx, 0) .. run(ctx, cases - 1) once a window, under a progress bar. The first error. */
struct micro_cases {
	const char *what; /* beside the bar */
	uint32_t n;
	int (*run)(void *ctx, uint32_t index);
	void *ctx;
};
int micro_run(struct micro *m, const struct micro_cases *cases) RLV_MUST_CHECK;

/* GB/s of memcpy of 64 MiB, which no cache holds. The buffers are made at the first call. */
double micro_memcpy_gbps(struct micro *m);

#endif

/*
 * micro.h - the main program of a micro bench: options, windows, a table or JSON lines.
 *
 *   micro_init -> micro_run (or own windows) -> micro_print .. -> micro_finish
 *
 * Each bench prints the machine's yardsticks beside its results.
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
	const char *help; /* description for --help */
	bool json;
	bool full;
	uint64_t seed;
	uint32_t windows;  /* per case, >= 5 */
	const char *only;  /* measure only cases whose row contains this; NULL = all */
	const char *store; /* --store URI; the bench sets a default before */

	struct json out;
	struct progress progress;
	struct yardstick copy; /* of micro_memcpy_gbps */
	uint32_t printed;      /* number of table rows printed */
};

/*
 * Parses --json --full --seed --windows --only --store --help. True = continue; false = *exit_out
 * is the exit status. The caller has set name, help and store, and zeroed the others.
 */
bool micro_init(struct micro *m, int argc, char **argv, int *exit_out);

/* End the output; returns the exit status. */
int micro_finish(struct micro *m, bool ok);

/* True if --only selects the row: its text is in the metric and parameters as printed in the
   table. */
bool micro_wants(const struct micro *m, const struct result *result);

/* Print one JSON object on a line, or a row of the table. */
void micro_print(struct micro *m, const struct result *result, const struct series *series);

/* Call run(ctx, 0) .. run(ctx, cases - 1) once per window, with a progress bar. Returns the
   first error. */
struct micro_cases {
	const char *what; /* text beside the bar */
	uint32_t n;
	int (*run)(void *ctx, uint32_t index);
	void *ctx;
};
int micro_run(struct micro *m, const struct micro_cases *cases) RLV_MUST_CHECK;

/* GB/s of memcpy of 64 MiB, more than any cache. The first call allocates the buffers. */
double micro_memcpy_gbps(struct micro *m);

#endif

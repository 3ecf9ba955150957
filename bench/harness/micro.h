/*
 * micro.h - the main program of a micro bench: options, cases, windows, a table or JSON lines.
 *
 *   micro_init -> (micro_add .. -> micro_run) .. -> micro_finish
 *
 * A case is a row of the output and the function that measures it once. Cases that are added
 * together alternate their windows.
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
#include "program/args.h"
#include "program/progress.h"

#define MICRO_CASES 128u
#define MICRO_OPTIONS 4u

struct micro;

struct micro_case {
	/* Measures one window: adds a value to the series. 0 or an error that was printed. */
	int (*run)(struct micro_case *c);
	void *ctx; /* of run */
	struct result result;
	struct micro *micro; /* set by micro_add */
};

struct micro {
	const char *name;
	const char *help;                 /* description for --help */
	const char *store;                /* --store URI; the bench sets a default before */
	const struct arg_option *options; /* of the bench's own, at most MICRO_OPTIONS; or NULL */
	size_t n_options;
	bool json;
	bool full;
	uint64_t seed;
	uint32_t windows; /* per case, >= 5 */
	const char *only; /* measure only cases whose row contains this; NULL = all */

	const char *what; /* text beside the progress bar */
	uint32_t n;
	struct micro_case cases[MICRO_CASES];
	struct json out;
	struct progress progress;
	const void *memory; /* of random loads */
	uint64_t memory_bytes;
	struct yardstick copy; /* of memcpy_gbps */
	uint32_t printed;      /* number of table rows printed */
};

/*
 * Parses --json --full --seed --windows --only --store --help and the bench's own options. True = continue;
 * false = *exit_out is the exit status. The caller has set name, help, store and its options, and zeroed the others.
 */
bool micro_init(struct micro *m, int argc, char **argv, int *exit_out);

/* Ends the output and frees the yardsticks; returns the exit status: failure if ok is false or
   the JSON output failed. */
int micro_finish(struct micro *m, bool ok);

/* Adds a copy of a case. False: it was not added, since --only is not in its row (metric and
   parameters, as in the table), or there are MICRO_CASES already. */
bool micro_add(struct micro *m, const struct micro_case *c);

/*
 * Adds the yardsticks of the machine, whatever --only says: random loads over the memory, and memcpy
 * of 64 MiB, which is more than any cache. params end with one without a key.
 */
void micro_add_yardsticks(struct micro *m, const void *memory, uint64_t bytes,
			  const struct param *params);

/* Measures the added cases, m->windows windows of each in turn, prints and then removes them;
   what: text beside the progress bar. Returns the first error. */
int micro_run(struct micro *m, const char *what) RLV_MUST_CHECK;

#endif

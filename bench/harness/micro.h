/*
 * micro.h - what the micro-benches share: arguments, windows, results, yardsticks.
 *
 * A bench measures cases, each in several windows. Windows of all cases alternate, so that a slow
 * second of the machine hits all of them and not one. The best window is what the machine can
 * do; median and spread say how much to trust it. Every run prints the machine's own yardsticks.
 */
#ifndef RLV_BENCH_HARNESS_MICRO_H
#define RLV_BENCH_HARNESS_MICRO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

#define BENCH_WINDOWS_MAX 64u

struct bench {
	const char *name;
	const char *help; /* what it measures, printed by --help */
	bool json;
	bool full;
	uint64_t seed;
	uint32_t windows;  /* of each case, >= 5 */
	const char *only;  /* measure only what contains this; NULL = all */
	const char *store; /* --store URI, for benches that set it to a default before */

	struct json out;
	bool tty;         /* stderr is a terminal: show progress */
	uint32_t shown;   /* length of the progress line on it */
	uint32_t printed; /* rows of the table */
};

/*
 * Reads --json --full --help --seed N --windows N --only TEXT --store URI. True = go on; false =
 * *exit_out is the exit status. b holds name and help, nothing else.
 */
bool bench_init(struct bench *b, int argc, char **argv, int *exit_out);

/* Ends the output; the exit status. */
int bench_finish(struct bench *b, bool ok);

/* The values of a case's windows. */
struct bench_windows {
	uint32_t n;
	double value[BENCH_WINDOWS_MAX];
	double cpu_ns, wall_ns; /* of all windows: below 1 together, somebody else was running */
};

void bench_windows_add(struct bench_windows *w, double value);

/* A parameter of a case. text NULL = number. */
struct bench_param {
	const char *key;
	const char *text;
	uint64_t number;
	bool flag; /* the number is true or false */
};

/* One result. higher: larger values are better. */
struct bench_result {
	const char *metric;
	const char *unit;
	bool higher;
	const struct bench_param *params;
	uint32_t n_params;
};

/* Does --only ask for it? Its text is the metric and the parameters as in a row of the table. */
bool bench_wants(const struct bench *b, const struct bench_result *result);

/* Prints one JSON object on a line, or a row of the table. */
void bench_print(struct bench *b, const struct bench_result *result, struct bench_windows *w);

/* A bar on stderr if that is a terminal. */
void bench_progress(struct bench *b, uint32_t done, uint32_t of, const char *what);

/* -------- time -------- */

uint64_t bench_now_ns(void);
uint64_t bench_cpu_ns(void); /* of this thread */

/* -------- yardsticks -------- */

/* ns of a load of a random 64 B line of the footprint; independent loads. */
double bench_line_ns(const void *memory, uint64_t bytes, uint64_t seed);

/* GB/s of memcpy between two buffers that no cache holds. They are made at the first call. */
double bench_memcpy_gbps(void);

/* Reads bytes that evict the L2 cache. */
void bench_evict(void);

/* Keeps a value from being optimised away. */
void bench_use(uint64_t value);

#endif

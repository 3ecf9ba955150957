/*
 * bench_group.h - cases whose windows alternate, so that a slow second of the machine hits all of
 * them and not one; with the store they need.
 */
#ifndef RLV_CLI_BENCH_GROUP_H
#define RLV_CLI_BENCH_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/bench_config.h"
#include "cli/progress.h"

#define BENCH_GROUP_MAX 8

struct bench_group {
	const char *title;
	uint32_t n_cases;
	struct bench_config cases[BENCH_GROUP_MAX]; /* all local, or all of processes */
};

struct bench_output {
	struct json *json; /* NULL = text on stdout */
	struct progress *progress;
	double from, to; /* part of the progress that the group is */
};

/*
 * Runs and reports a group. 0 also when a check failed, which *ok_out says; errors have been
 * printed. Thread: setup.
 */
int bench_group_run(const struct bench_group *group, const struct bench_output *output,
		    bool *ok_out) RLV_MUST_CHECK;

#endif

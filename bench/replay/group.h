/*
 * group.h - cases whose windows alternate, so that a slow second of the machine hits all of
 * them and not one; with the store they need.
 */
#ifndef RLV_BENCH_REPLAY_GROUP_H
#define RLV_BENCH_REPLAY_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "bench/replay/config.h"
#include "program/progress.h"

#define BENCH_GROUP_MAX 8
#define BENCH_URI_BYTES 256

struct bench_group {
	const char *title;
	uint32_t n_cases;
	struct bench_config cases[BENCH_GROUP_MAX]; /* all local, or all of processes */
};

/* A store that cases of processes get where they name none. */
struct bench_place {
	/* The URI of one with pools of `bytes` in all. */
	int (*open)(void *ctx, uint64_t bytes, char uri_out[BENCH_URI_BYTES]);
	void (*close)(void *ctx); /* also after a failed open */
	void *ctx;
};

struct bench_output {
	struct json *json; /* NULL = text on stdout */
	struct progress *progress;
	double from, to; /* part of the progress that the group is */
	const struct bench_place *place;
};

/*
 * Runs and reports a group. 0 also when a check failed: then *ok_out is false. Thread: setup.
 */
int bench_group_run(const struct bench_group *group, const struct bench_output *output,
		    bool *ok_out) RLV_MUST_CHECK;

#endif

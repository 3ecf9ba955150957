/*
 * group.h - cases with alternating windows, so that a slow second of the machine affects all of
 * them equally; and their store.
 */
#ifndef RLV_BENCH_REPLAY_GROUP_H
#define RLV_BENCH_REPLAY_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "bench/replay/config.h"
#include "program/progress.h"

#define REPLAY_GROUP_MAX 8
#define REPLAY_URI_BYTES 256

struct replay_group {
	const char *title;
	uint32_t n_cases;
	struct replay_config
		cases[REPLAY_GROUP_MAX]; /* of the same rows; all local, or all of processes */
};

struct replay_output {
	struct json *json; /* NULL = text on stdout */
	struct progress *progress;
	double from, to; /* section of the progress bar for the group */
	/* Starts a store with pools of `bytes` in total, and gives its URI; for cases of
	   processes that name no store. Whoever runs the group closes it. */
	int (*start_store)(void *ctx, uint64_t bytes, char uri_out[REPLAY_URI_BYTES]);
	void *ctx;
};

/* Runs the cases of a group and prints their results. Returns 0 also if a check failed: then
   *ok_out becomes false. Thread: setup. */
int replay_group_run(const struct replay_group *group, const struct replay_output *output,
		     bool *ok_out) RLV_MUST_CHECK;

#endif

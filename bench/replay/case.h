/*
 * case.h - one case of the replay bench: a table, its roles, and the windows measured on it.
 *
 *   replay_case_open (data, roles) -> replay_case_start (table, rows, handles) ->
 *   replay_case_window ..
 *   -> replay_table_check -> replay_case_close
 *
 * Between windows all roles sleep, so that windows of several cases alternate.
 */
#ifndef RLV_BENCH_REPLAY_CASE_H
#define RLV_BENCH_REPLAY_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "bench/harness/series.h"
#include "bench/replay/config.h"
#include "bench/replay/data.h"
#include "bench/replay/role.h"
#include "bench/replay/chi_square.h"
#include "program/progress.h"

enum replay_metric {
	REPLAY_ITEMS,       /* 1/s, of all roles */
	REPLAY_BYTES,       /* B/s */
	REPLAY_CALLS,       /* 1/s */
	REPLAY_P50,         /* us */
	REPLAY_P99,         /* us */
	REPLAY_ROUND_TRIPS, /* per call */
	REPLAY_MOVED,       /* B per call */
	REPLAY_CPU,         /* of wall, mean of the roles */
	REPLAY_METRICS,
};

struct replay_case {
	struct replay_config config;
	const struct replay_data *data;
	struct replay_data patterned; /* --check: the shape with a column more */
	struct replay_data vector;    /* --envs */
	struct role_shared *shared;
	size_t shared_bytes;
	uint32_t n_roles;
	struct role roles[WORKERS_MAX];
	struct workers workers;    /* the roles as such: run, look at and pause them */
	struct progress *progress; /* shown meanwhile, or NULL */
	double progress_from;

	struct rlv_store *store;
	struct rlv_table *table;
	uint64_t footprint_bytes; /* rows and trees */
	uint64_t batch_bytes;     /* written by one sample */
	double priority_alpha, priority_eps;

	struct series series[ROLE_OPS][REPLAY_METRICS];
	struct series line_ns, memcpy_gbps; /* yardsticks, beside the windows */
	uint64_t limiter_waits, limiter_wait_ns, stale_updates, redraws, timeouts;
	uint64_t items_checked, items_wrong;
	bool ok; /* of the checks */
};

/* data is borrowed until close. Forks or prepares the roles. Thread: setup. */
int replay_case_open(struct replay_case *c, const struct replay_config *config,
		     const struct replay_data *data) RLV_MUST_CHECK;

/* Creates the table in the store and fills it; the roles open it. */
int replay_case_start(struct replay_case *c, const char *uri) RLV_MUST_CHECK;

/* Runs for ns and adds the figures to the series. */
int replay_case_window(struct replay_case *c, int64_t ns) RLV_MUST_CHECK;

/* The same without the figures: caches, pages and the size of a batch. */
int replay_case_warm(struct replay_case *c, int64_t ns) RLV_MUST_CHECK;

/* Adds the figures of the window that workers_run and workers_pause made. */
int replay_case_gather(struct replay_case *c) RLV_MUST_CHECK;

/* Items of one operation so far, over all roles. */
uint64_t replay_case_live(const struct replay_case *c, enum role_op_kind op);

/* Ends the roles and drops the table: the first error of the two last steps. */
int replay_case_close(struct replay_case *c);

#endif

/*
 * case.h - one case of the replay bench: a table, its roles, and the measured windows.
 *
 *   replay_case_open (data, roles) -> replay_case_start (table, rows, handles) ->
 *   replay_case_window ..
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
	REPLAY_ITEMS,       /* 1/s, sum of all roles */
	REPLAY_BYTES,       /* B/s */
	REPLAY_CALLS,       /* 1/s */
	REPLAY_P50,         /* us */
	REPLAY_P99,         /* us */
	REPLAY_ROUND_TRIPS, /* per call */
	REPLAY_MOVED,       /* B per call */
	REPLAY_CPU,         /* fraction of wall time, mean of the roles */
	REPLAY_METRICS,
};

struct replay_case {
	struct replay_config config;
	const struct replay_data *data;
	struct replay_data patterned; /* --check: the shape with the column `seq` */
	struct replay_data vector;    /* --envs */
	struct role_shared *shared;
	size_t shared_bytes;
	uint32_t n_roles;
	struct role roles[WORKERS_MAX];
	struct workers workers;    /* the workers of the roles */
	struct progress *progress; /* progress bar, or NULL */
	double progress_from;
	/* Called at least every 100 ms of a window, instead of the progress bar; spent: ns of
	   the window so far. Or NULL. */
	void (*tick)(void *ctx, double spent);
	void *tick_ctx;

	struct rlv_store *store;
	struct rlv_table *table;
	uint64_t footprint_bytes; /* size of rows and trees */
	uint64_t batch_bytes;     /* written by one sample */
	double priority_alpha, priority_eps;

	struct series series[ROLE_OPS][REPLAY_METRICS];
	struct series line_ns, memcpy_gbps; /* yardsticks of the same windows */
	uint64_t limiter_waits, limiter_wait_ns, stale_updates, redraws, timeouts;
	uint64_t items_checked, items_wrong;
	bool ok; /* result of the checks */
};

/* Prepares a case; roles that are processes are forked now. data is borrowed until close, which
   is called after an error, too. Thread: setup. */
int replay_case_open(struct replay_case *c, const struct replay_config *config,
		     const struct replay_data *data) RLV_MUST_CHECK;

/* Opens the store at uri, creates and fills the table, starts roles that are threads; then all
   roles open the table. */
int replay_case_start(struct replay_case *c, const char *uri) RLV_MUST_CHECK;

/* Lets the roles run for ns and adds their results to the series and totals of the case. */
int replay_case_window(struct replay_case *c, int64_t ns) RLV_MUST_CHECK;

/* Lets the roles run for ns without results: warms caches and pages, and learns the batch size. */
int replay_case_warm(struct replay_case *c, int64_t ns) RLV_MUST_CHECK;

/* Items of one operation so far, sum of all roles. */
uint64_t replay_case_live(const struct replay_case *c, enum role_op_kind op);

/* Ends the roles, drops the table and closes the store. Returns the first error of the last two. */
int replay_case_close(struct replay_case *c);

#endif

/*
 * case.h - one case of the replay bench: a table, its roles, and the windows measured on it.
 *
 *   bench_case_open (data, roles) -> bench_case_start (table, rows, handles) ->
 *   bench_case_window ..
 *   -> bench_table_check -> bench_case_close
 *
 * Between windows all roles sleep, so that windows of several cases alternate.
 */
#ifndef RLV_BENCH_REPLAY_CASE_H
#define RLV_BENCH_REPLAY_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "bench/replay/config.h"
#include "bench/replay/data.h"
#include "bench/replay/role.h"
#include "bench/replay/chi_square.h"
#include "program/progress.h"

/* One figure over the windows. */
struct bench_series {
	uint32_t n;
	double value[BENCH_MAX_WINDOWS];
};

enum bench_metric {
	BENCH_ITEMS,       /* 1/s, of all roles */
	BENCH_BYTES,       /* B/s */
	BENCH_CALLS,       /* 1/s */
	BENCH_P50,         /* us */
	BENCH_P99,         /* us */
	BENCH_ROUND_TRIPS, /* per call */
	BENCH_MOVED,       /* B per call */
	BENCH_CPU,         /* of wall, mean of the roles */
	BENCH_METRICS,
};

struct bench_case {
	struct bench_config config;
	const struct bench_data *data;
	struct bench_data patterned; /* --check: the shape with a column more */
	struct bench_data vector;    /* --envs */
	struct role_shared *shared;
	size_t shared_bytes;
	uint32_t n_roles;
	struct role roles[BENCH_MAX_ROLES];
	bool may_die;              /* a role that was killed is no failure */
	struct progress *progress; /* shown meanwhile, or NULL */
	double progress_from;

	struct rlv_store *store;
	struct rlv_table *table;
	uint64_t footprint_bytes; /* rows and trees */
	uint64_t batch_bytes;     /* written by one sample */
	double priority_alpha, priority_eps;

	struct bench_series series[ROLE_OPS][BENCH_METRICS];
	struct bench_series line_ns, memcpy_gbps; /* yardsticks, beside the windows */
	uint64_t limiter_waits, limiter_wait_ns, stale_updates, redraws, timeouts;
	uint64_t items_checked, items_wrong;
	bool ok; /* of the checks */
};

/* data is borrowed until close. Forks or prepares the roles. Thread: setup. */
int bench_case_open(struct bench_case *c, const struct bench_config *config,
		    const struct bench_data *data) RLV_MUST_CHECK;

/* Creates the table in the store and fills it; the roles open it. */
int bench_case_start(struct bench_case *c, const char *uri) RLV_MUST_CHECK;

/* Runs for ns and adds the figures to the series. */
int bench_case_window(struct bench_case *c, int64_t ns) RLV_MUST_CHECK;

/* The same without the figures: caches, pages and the size of a batch. */
int bench_case_warm(struct bench_case *c, int64_t ns) RLV_MUST_CHECK;

/* Its parts, for who wants to do something in between: run, look now and then, pause, gather. */
int bench_case_run(struct bench_case *c) RLV_MUST_CHECK;
int bench_case_pause(struct bench_case *c) RLV_MUST_CHECK;
int bench_case_gather(struct bench_case *c) RLV_MUST_CHECK;

/* Has a role failed, or ended before its time? */
int bench_case_look(struct bench_case *c) RLV_MUST_CHECK;

/* Items of one operation so far, over all roles. */
uint64_t bench_case_live(const struct bench_case *c, enum role_op_kind op);

/* Ends the roles and drops the table: the first error of the two last steps. */
int bench_case_close(struct bench_case *c);

#endif

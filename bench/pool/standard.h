/*
 * standard.h - the standard runs of the simulator, with the assumptions of parameters.h.
 */
#ifndef RLV_BENCH_POOL_STANDARD_H
#define RLV_BENCH_POOL_STANDARD_H

#include "bench/pool/jobs.h"
#include "bench/pool/report.h"

/* What orders and shares, as the command line names it. */
struct pool_policy {
	const char *name;
	enum gate_order order;
	enum gate_sharing sharing;
	enum sim_remaining remaining;
};

#define POOL_POLICIES \
	"fifo|srtf|srtf-declared|srtf-attained|fair|priority|round-robin|peaks|curves|pack|" \
	"pack+srtf|pack+srtf-declared|pack+srtf-attained"

/* NULL: there is none of that name. */
const struct pool_policy *pool_policy_find(const char *name);

/* One set of jobs under one policy. opts_out: as sim_run had them. */
struct pool_run {
	double budget, gain;
	uint64_t seed;
	uint32_t devices; /* 0: 1 */
	uint32_t patience;
	void (*watch)(void *ctx, double at, uint32_t job, uint64_t bytes); /* or NULL */
	void *ctx;
};
RLV_MUST_CHECK int pool_run(const struct pool_run *run, const struct pool_policy *policy,
			    struct job_set *set, struct sim_result *result_out);

#define STANDARD_SETS "all|salus|search|services|zico|phases"

/* Runs a set of STANDARD_SETS with that many seeds and reports it. */
RLV_MUST_CHECK int standard_run(const char *set, const struct traces *traces, uint32_t seeds,
				const struct report *report);

#endif

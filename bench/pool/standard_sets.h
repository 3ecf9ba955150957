/*
 * standard_sets.h - standard runs with models of their own.
 */
#ifndef RLV_BENCH_POOL_STANDARD_SETS_H
#define RLV_BENCH_POOL_STANDARD_SETS_H

#include "bench/pool/jobs.h"
#include "bench/pool/report.h"

/* 42 services: devices needed one each, by static shares, in the pool; latency with each. */
RLV_MUST_CHECK int run_services(const struct traces *traces, uint32_t seeds,
				const struct report *report);
/* Equal jobs at budgets below the sum of their peaks: gate by curves, by peaks, unified memory. */
RLV_MUST_CHECK int run_zico(const struct traces *traces, uint32_t seeds,
			    const struct report *report);
/* Rollout and train phases: cost of a pair of pools for each job, for each group, of co-location. */
RLV_MUST_CHECK int run_phases(const struct traces *traces, uint32_t seeds,
			      const struct report *report);

#endif

/*
 * corun_job.h - the processes of corun.h: a broker, and jobs that begin together.
 */
#ifndef RLV_BENCH_POOL_CORUN_JOB_H
#define RLV_BENCH_POOL_CORUN_JOB_H

#include <stdbool.h>

#include "base/error.h"
#include "device/curve.h"

#define CORUN_JOBS 4u
#define CORUN_EXTENT ((uint64_t)256 << 10)

struct corun_job {
	const char *name; /* of its trace */
	struct curve curve;
	uint64_t persistent;
	uint32_t iterations;
	uint32_t products; /* matrix products of an iteration */
	uint32_t acts;     /* and before it */
	bool reserves; /* it keeps its peak for all the time, as admission by the sum of peaks has it */
	double jct_s; /* result */
};

/* Extents that a job may hold beside the persistent ones. */
uint64_t corun_peak(const struct corun_job *job);

/* Starts a broker with that budget, runs n jobs together from their first iterations on, and ends all. */
RLV_MUST_CHECK int corun_jobs(struct corun_job *jobs, uint32_t n, uint64_t budget);

#endif

/*
 * corun_job.h - the processes of corun.h: a broker, and jobs that begin together.
 */
#ifndef RLV_BENCH_POOL_CORUN_JOB_H
#define RLV_BENCH_POOL_CORUN_JOB_H

#include <stdbool.h>

#include "base/error.h"
#include "bench/pool/memory_group.h"
#include "device/curve.h"

#define CORUN_JOBS 4u
#define CORUN_WARM 2u
#define CORUN_EXTENT ((uint64_t)256 << 10)

struct corun_job {
	const char *name; /* of its trace */
	struct curve curve;
	uint64_t persistent;
	uint32_t iterations; /* more than CORUN_WARM */
	uint32_t products;   /* matrix products of an iteration */
	uint32_t acts;       /* and before it */
	bool reserves; /* it keeps its peak for all the time, as admission by the sum of peaks has it */
	/* Results: until its end, and of an iteration on average, but the first CORUN_WARM. */
	double jct_s, iteration_s;
	uint64_t address_space; /* bytes, the most that its process had */
};

/* Where they run. */
struct corun_place {
	uint64_t budget;                  /* of the broker */
	const struct memory_group *group; /* of the jobs, not of the broker; or NULL: no limit */
};

/* Bytes that a job may hold beside the persistent ones, and of those: multiples of CORUN_EXTENT. */
uint64_t corun_peak(const struct corun_job *job);
uint64_t corun_persistent(const struct corun_job *job);

/*
 * Starts a broker, runs n jobs together from their first iterations on, and ends all. -ECHILD: a job was
 * killed; -ENOENT: there is no relive-poold beside this program.
 */
RLV_MUST_CHECK int corun_jobs(struct corun_job *jobs, uint32_t n, const struct corun_place *place);

#endif

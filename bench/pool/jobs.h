/*
 * jobs.h - sets of jobs for the simulator: those of the standard runs (parameters.h), or of a table.
 */
#ifndef RLV_BENCH_POOL_JOBS_H
#define RLV_BENCH_POOL_JOBS_H

#include "bench/pool/import.h"
#include "bench/pool/sim.h"
#include "bench/pool/trace.h"

struct job_set {
	struct sim_job *jobs;
	uint32_t n;
	struct curve *curves;         /* SIM_STAGES of each job */
	double *requests, *latencies; /* of all jobs, or NULL */
};

void job_set_free(struct job_set *set);

/*
 * Each makes a set from a seed: the same one each time. -ENOMEM; job_set_free in any case.
 *
 *   salus     n jobs of lognormal lengths with sigma that add up to PAR_SALUS_SUM_S by 100
 *   search    n small jobs at once
 *   services  n services with requests
 *   equal     n jobs of one trace, at once
 *   phases    n jobs with rollout on device 0 and train on device 1
 *   table     the rows of a table, in iterations of iteration_s
 */
RLV_MUST_CHECK int jobs_salus(struct job_set *set_out, const struct traces *traces, uint32_t n,
			      double sigma, uint64_t seed);
RLV_MUST_CHECK int jobs_search(struct job_set *set_out, const struct traces *traces, uint32_t n,
			       uint64_t seed);
RLV_MUST_CHECK int jobs_services(struct job_set *set_out, const struct traces *traces, uint32_t n,
				 uint64_t seed);
RLV_MUST_CHECK int jobs_equal(struct job_set *set_out, const struct trace *trace, uint32_t n);
RLV_MUST_CHECK int jobs_phases(struct job_set *set_out, uint32_t n, uint64_t seed);
RLV_MUST_CHECK int jobs_of_table(struct job_set *set_out, const struct traces *traces,
				 const struct job_table *table, double iteration_s);

/* The most that a job needs at a time: persistent and dynamic. */
double job_peak(const struct sim_job *job);

#endif

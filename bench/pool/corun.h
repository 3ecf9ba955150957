/*
 * corun.h - real jobs under the gate of a broker (relive-poold), beside what the simulator says of them.
 *
 * A job is a process that replays a recorded trace: it takes tensors from the pool, writes them, computes,
 * and frees them, as the trace says; a learner acts between its iterations. In each round jobs are measured
 * alone, then two of a further trace together, for the gain; then the simulator knows all that it needs, and
 * the jobs run together. Rounds follow each other, so that load of the machine is in all of them alike.
 */
#ifndef RLV_BENCH_POOL_CORUN_H
#define RLV_BENCH_POOL_CORUN_H

#include "bench/pool/corun_job.h"
#include "bench/pool/report.h"
#include "bench/pool/trace.h"

#define CORUN_SETS "all|two|tight|three|learners"
#define CORUN_LIMITS "auto|cgroup|address-space"
enum corun_limit {
	CORUN_AUTO,          /* a cgroup, or where none can be made, address space */
	CORUN_CGROUP,        /* of both learners */
	CORUN_ADDRESS_SPACE, /* RLIMIT_AS of each */
};
#define CORUN_ROUNDS SERIES_MAX /* at most */

struct corun {
	const char *set; /* of CORUN_SETS */
	uint32_t rounds; /* 1 .. CORUN_ROUNDS */
	uint32_t limit;  /* of learners: enum corun_limit */
	bool quick;      /* a few short iterations: it shows that all works, and no times */
	const struct traces *traces;
	const struct report *report;
};

/*
 * Reports jct_s and predicted_jct_s of each job, and predicted_over_measured of each and of their means.
 * -ENOENT: no relive-poold beside this program, or no such trace.
 */
RLV_MUST_CHECK int corun_run(const struct corun *corun);

/* corun_learners.c: the set "learners". -ENOTSUP, not with CORUN_AUTO: no cgroup with a limit of memory can be made
   here, or processes need so much beside the pool that the group has no room for it. */
RLV_MUST_CHECK int corun_learners(const struct corun *corun);

/* A job of that trace and so many iterations, of 48 MiB at its peak. */
RLV_MUST_CHECK int corun_job_make(const struct corun *corun, const char *name, uint32_t iterations,
				  struct corun_job *job_out);
/* Bytes for all persistent tensors, and so many iterations at a time. */
uint64_t corun_budget(const struct corun_job *jobs, uint32_t n, uint32_t iterations);

#endif

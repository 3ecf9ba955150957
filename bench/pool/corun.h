/*
 * corun.h - real jobs under the gate of a broker (relive-poold), beside what the simulator says of them.
 *
 * A job is a process that replays a recorded trace: it takes tensors from the pool, writes them, computes,
 * and frees them, as the trace says; a learner acts between its iterations. Jobs are measured alone
 * first, and two of them together for the gain; then the simulator knows all that it needs.
 */
#ifndef RLV_BENCH_POOL_CORUN_H
#define RLV_BENCH_POOL_CORUN_H

#include "bench/pool/report.h"
#include "bench/pool/trace.h"

#define CORUN_SETS "all|two|tight|three|learners"

/*
 * Runs a set of CORUN_SETS and reports jct_s of each job: measured, predicted and the error; of learners
 * makespan_s of three ways to run them. -ENOENT: no relive-poold beside this program, or no such trace.
 */
RLV_MUST_CHECK int corun_run(const char *set, const struct traces *traces,
			     const struct report *report);

#endif

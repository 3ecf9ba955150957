/*
 * sim.h - jobs on devices under the gate (device/gate.h), on a virtual clock.
 *
 * An iteration of a job has one or more stages, each on a device; a stage without a device only takes
 * time. Jobs that run together on a device progress alike: demand d is the sum of what each would keep
 * busy alone; up to 1 all run as if alone, beyond it they share sim_capacity(gain, d). Memory is
 * checked at the begin of each stage over all the time that the running ones take.
 *
 * Times are ns of the virtual clock, as doubles that hold whole numbers exactly where nothing is
 * shared unevenly. The same options and jobs give the same result on every machine.
 */
#ifndef RLV_BENCH_POOL_SIM_H
#define RLV_BENCH_POOL_SIM_H

#include "device/gate.h"

#define SIM_STAGES 3u
#define SIM_DEVICES 64u
#define SIM_NOWHERE UINT32_MAX /* a stage without a device */

enum sim_remaining {
	SIM_GIVEN,    /* GATE_SRTF knows what is left */
	SIM_DECLARED, /* it knows sim_job.declared iterations, and measures their time */
	SIM_ATTAINED, /* it knows only how long a job has run */
};

struct sim_stage {
	uint32_t device;
	uint64_t persistent;
	const struct curve *curve; /* borrowed, also its period; not NULL */
};

struct sim_job {
	double arrival;
	uint32_t iterations, n_stages;
	struct sim_stage stages[SIM_STAGES];
	double jitter; /* sigma of the lognormal factor of the time of stage 0 */
	double demand; /* 0 < demand <= 1 */
	const double
		*requests; /* when each iteration is asked for, rising; NULL: all at the arrival */
	uint64_t declared; /* iterations, for SIM_DECLARED */
	double weight;
	int priority;
	/* Results */
	double begin, end, stall;
	double *latencies; /* of each iteration with requests, or NULL; room for all */
};

struct sim_opts {
	struct gate_opts gate; /* of each device */
	uint32_t devices;
	double gain;       /* of two jobs of demand 1, at least 1 */
	bool gain_unknown; /* the gate is not told the gain */
	enum sim_remaining remaining;
	unsigned dilate;           /* bins, of the curves that the gate sees */
	uint32_t marks;            /* of an iteration, where waiting ones are asked again; 0: 16 */
	double unified_per_s;      /* > 0: no gate; bytes over the budget move at this rate */
	uint64_t unified_capacity; /* bytes of a device, with unified_per_s */
	uint64_t seed;
	/* If not NULL: called when the memory of a job may have changed. */
	void (*watch)(void *ctx, double at, uint32_t job, uint64_t bytes);
	void *ctx;
};

struct sim_result {
	double makespan_s, avg_jct_s, p99_jct_s; /* of jobs; with requests, of those */
	double stall_s;                          /* mean of a job: ready, begun, but not running */
	double utilisation;                      /* work done by time; over 1 by gain */
	uint64_t violations, iterations;
};

/* Progress a device makes with jobs of that demand together; 1 for demand <= 1. */
double sim_capacity(double gain, double demand);

/*
 * Runs n jobs, in order of arrival, to their ends. -EINVAL, -ENOMEM; -ENOSPC: a job does not fit;
 * -ENODATA: jobs are left that never begin.
 */
RLV_MUST_CHECK int sim_run(const struct sim_opts *opts, struct sim_job *jobs, uint32_t n,
			   struct sim_result *result_out);

/* The smallest of n > 0 values that share q of them do not exceed; sorts them. */
double sim_quantile(double *values, size_t n, double q);

#endif

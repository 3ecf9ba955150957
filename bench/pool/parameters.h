/*
 * parameters.h - what the standard runs of `relive pool simulate` assume.
 *
 * They were fixed before the first result and are not fitted to one. "Assumed" numbers were not
 * measured by anybody we could read; the results hold for them only.
 */
#ifndef RLV_BENCH_POOL_PARAMETERS_H
#define RLV_BENCH_POOL_PARAMETERS_H

#define PAR_GIB (1024.0 * 1024 * 1024)
#define PAR_SEEDS 20u

/*
 * Jobs that use the whole device alone make progress g together when two run; each further one adds
 * half as much as the one before: 1.4, 1.6, 1.7 .. for g = 1.4. Assumed; g is swept.
 */
#define PAR_GAIN 1.4
#define PAR_GAINS \
	{ \
		1.0, 1.2, 1.4 \
	}

/*
 * Salus: 100 jobs whose lengths add up to 303.4 minutes, as its evaluation had, arriving uniformly
 * within an hour, on a device of 16 GB of which 300 MB are CUDA's. Lengths are lognormal; sigma is
 * swept. Peaks are lognormal around the median of its table of workloads, within its range. The
 * shape of each job's memory is one of the recorded traces. A fifth of a peak is persistent
 * (assumed).
 */
#define PAR_SALUS_JOBS 100u
#define PAR_SALUS_SUM_S (303.4 * 60)
#define PAR_SALUS_ARRIVALS_S 3600.0
#define PAR_SALUS_SIGMAS \
	{ \
		1.0, 1.25, 1.5 \
	}
#define PAR_SALUS_BUDGET (15.7 * PAR_GIB)
#define PAR_SALUS_PEAK_MEDIAN (4563 * 1024.0 * 1024)
#define PAR_SALUS_PEAK_LEAST (687 * 1024.0 * 1024)
#define PAR_SALUS_PEAK_MOST (12726 * 1024.0 * 1024)
#define PAR_SALUS_PEAK_SIGMA 0.7
#define PAR_PERSISTENT 0.2
/* What the gate decides about at once: several real iterations (assumed). */
#define PAR_SALUS_ITERATION_S 4.0
/* Declared numbers of iterations are wrong by a lognormal factor of this sigma (assumed). */
#define PAR_ESTIMATE_SIGMA 0.5

/*
 * A search over hyper-parameters: 300 small jobs at once on the same device. One alone keeps 15 % to
 * 45 % of the device busy (assumed; what comes out depends on it).
 */
#define PAR_SEARCH_JOBS 300u
#define PAR_SEARCH_MEAN_S 60.0
#define PAR_SEARCH_SIGMA 0.5
#define PAR_SEARCH_DEMAND_LEAST 0.15
#define PAR_SEARCH_DEMAND_MOST 0.45
#define PAR_SEARCH_PEAK_LEAST (0.3 * PAR_GIB)
#define PAR_SEARCH_PEAK_MOST (1.5 * PAR_GIB)
#define PAR_SEARCH_ITERATION_S 1.0

/*
 * Inference: 42 services (14 models, 3 of each) with Poisson requests, which together keep a device
 * busy for PAR_SERVICE_LOAD of its time (assumed: low load, as is the point of sharing).
 */
#define PAR_SERVICE_JOBS 42u
#define PAR_SERVICE_REQUESTS 200u
#define PAR_SERVICE_LOAD 0.4
#define PAR_SERVICE_LEAST_S 0.004
#define PAR_SERVICE_MOST_S 0.040
#define PAR_SERVICE_PERSISTENT_LEAST (0.05 * PAR_GIB)
#define PAR_SERVICE_PERSISTENT_MOST (0.5 * PAR_GIB)
#define PAR_SERVICE_PEAK_LEAST (0.2 * PAR_GIB)
#define PAR_SERVICE_PEAK_MOST (2.5 * PAR_GIB)

/*
 * Zico: equal jobs of one trace, its peak scaled to 6 GiB and its iteration to 250 ms (of the order
 * of a large network on a data centre's card), at budgets of 0.5 to 1.0 of the sum of the peaks, under
 * GATE_FAIR (GATE_FIFO at first: its last job runs alone at the end, which no shift can mend).
 *
 * The one number of the comparison with unified memory: a byte over the budget is moved out and back
 * in once an iteration, at 4 GB/s by faults. Assumed, to be measured on a card.
 */
#define PAR_ZICO_PEAK (6 * PAR_GIB)
#define PAR_ZICO_ITERATION_S 0.25
#define PAR_ZICO_ITERATIONS 100u
#define PAR_ZICO_BUDGETS \
	{ \
		0.5, 0.6, 0.7, 0.8, 0.9, 1.0 \
	}
#define PAR_ZICO_JOBS \
	{ \
		2, 3, 4, 8 \
	}
#define PAR_UNIFIED_BYTES_PER_S 4e9

/*
 * RollMux: phases rollout (on an H20) and train (on an H800), then a sync on neither. Prices a GPU
 * hour as it gives them. Rollouts are bound by the memory's bandwidth, 4.0 and 3.35 TB/s by the data
 * sheets, so on an H800 alone (co-located) they take 1.19 times as long. Assumed: means of rollout and
 * train are within a factor of 2 of each other, log-uniform; single rollouts vary by sigma 0.2;
 * syncs, and the switch between phases on one card, take 5 % of an iteration.
 *
 * Groups: each job has a bound on how much longer an iteration may take than alone, uniform from 1 to 2. In
 * order of arrival it joins the fullest group whose bounds all hold with it, by rollouts that 9 of 10 do not
 * exceed; else it gets a pair of pools of its own. A host keeps the states of four jobs at most. All three
 * are assumed, and were fixed before their results; before, groups of two and of three stood here.
 */
#define PAR_PHASES_POPULATION 120u
#define PAR_PHASES_GROUP_MOST 4u
#define PAR_PHASES_BOUND_MOST 2.0
#define PAR_PHASES_LONG 1.2816 /* standard deviations of a rollout that 9 of 10 do not exceed */
#define PAR_PHASES_ITERATIONS 100u
#define PAR_PHASES_MEAN_S 200.0
#define PAR_PHASES_RATIO 2.0
#define PAR_PHASES_SIGMA 0.2
#define PAR_PHASES_SYNC 0.05
#define PAR_PRICE_ROLLOUT 1.85
#define PAR_PRICE_TRAIN 5.28
#define PAR_COLOCATED_ROLLOUT (4.0 / 3.35)

#endif

#include "bench/pool/standard.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "bench/pool/parameters.h"
#include "bench/pool/standard_sets.h"

static const struct pool_policy policies[] = {
	{ "fifo", GATE_FIFO, GATE_ALONE, SIM_GIVEN },
	{ "srtf", GATE_SRTF, GATE_ALONE, SIM_GIVEN },
	{ "srtf-declared", GATE_SRTF, GATE_ALONE, SIM_DECLARED },
	{ "srtf-attained", GATE_SRTF, GATE_ALONE, SIM_ATTAINED },
	{ "fair", GATE_FAIR, GATE_ALONE, SIM_GIVEN },
	{ "priority", GATE_PRIORITY, GATE_ALONE, SIM_GIVEN },
	{ "round-robin", GATE_ROUND_ROBIN, GATE_ALONE, SIM_GIVEN },
	{ "peaks", GATE_FIFO, GATE_PEAKS, SIM_GIVEN },
	{ "curves", GATE_FIFO, GATE_CURVES, SIM_GIVEN },
	{ "pack", GATE_PACK, GATE_CURVES, SIM_GIVEN },
	{ "pack+srtf", GATE_SRTF, GATE_CURVES, SIM_GIVEN },
	{ "pack+srtf-declared", GATE_SRTF, GATE_CURVES, SIM_DECLARED },
	{ "pack+srtf-attained", GATE_SRTF, GATE_CURVES, SIM_ATTAINED },
};

const struct pool_policy *pool_policy_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
		if (strcmp(policies[i].name, name) == 0)
			return &policies[i];
	}
	return NULL;
}

int pool_run(const struct pool_run *run, const struct pool_policy *policy, struct job_set *set,
	     struct sim_result *result_out)
{
	const struct sim_opts opts = {
		.gate = { .order = policy->order,
			  .sharing = policy->sharing,
			  .budget = (uint64_t)run->budget,
			  .aging = GATE_AGING,
			  .patience = run->patience,
			  .resident = policy->sharing == GATE_ALONE || set->requests
					      ? 0
					      : 2 * GATE_RUNNING },
		.devices = run->devices ? run->devices : 1,
		.gain = run->gain,
		.remaining = policy->remaining,
		.seed = run->seed,
		.watch = run->watch,
		.ctx = run->ctx,
	};

	return sim_run(&opts, set->jobs, set->n, result_out);
}

/* -------- the same jobs under several policies -------- */

#define COMPARED_MOST 8u

struct compared {
	const char *set, *metric;    /* of the ratio to the first policy */
	const char *const *policies; /* the first is serial */
	uint32_t n;
	struct pool_run run;
	double sigma;
	uint32_t jobs;
	const double *published;      /* by policy */
	uint32_t over[COMPARED_MOST]; /* a second ratio, to that policy; 0: none */
	bool by_makespan;
	int (*make)(struct job_set *set_out, const struct traces *traces, double sigma,
		    uint64_t seed);
};

static int make_salus(struct job_set *set_out, const struct traces *traces, double sigma,
		      uint64_t seed)
{
	return jobs_salus(set_out, traces, PAR_SALUS_JOBS, sigma, seed);
}

static int make_search(struct job_set *set_out, const struct traces *traces, double sigma,
		       uint64_t seed)
{
	(void)sigma;
	return jobs_search(set_out, traces, PAR_SEARCH_JOBS, seed);
}

static int compare_seed(const struct compared *compared, const struct traces *traces, uint64_t seed,
			struct report_values *values, double *ratios)
{
	struct job_set set;
	double serial = 0, serial_jct = 0;
	int ret = compared->make(&set, traces, compared->sigma, seed);

	for (uint32_t i = 0; ret == 0 && i < compared->n; i++) {
		struct sim_result result;
		struct pool_run run = compared->run;

		run.seed = seed;
		ret = pool_run(&run, pool_policy_find(compared->policies[i]), &set, &result);
		if (ret)
			break;
		if (i == 0) {
			serial = result.makespan_s;
			serial_jct = result.avg_jct_s;
		}
		report_add(&values[i], &result, serial);
		ratios[i] = compared->by_makespan ? serial / result.makespan_s
						  : serial_jct / result.avg_jct_s;
	}
	job_set_free(&set);
	return ret;
}

static struct report_case compared_case(const struct compared *compared, uint32_t policy)
{
	return (struct report_case){
		.set = compared->set,
		.policy = compared->policies[policy],
		.sigma = compared->sigma,
		.budget = compared->run.budget,
		.gain = compared->run.gain,
		.jobs = compared->jobs,
		.seed = 1,
		.published = compared->published[policy],
	};
}

static int compare_all(const struct compared *compared, const struct traces *traces, uint32_t seeds,
		       const struct report *report)
{
	struct report_values *values = mem_array(COMPARED_MOST, sizeof(*values));
	double ratios[COMPARED_MOST][SERIES_MAX] = { { 0 } }, of_seed[COMPARED_MOST] = { 0 };
	double over[SERIES_MAX];
	int ret = values ? 0 : error_set(-ENOMEM, "simulate: no memory");

	for (uint32_t seed = 0; ret == 0 && seed < seeds; seed++) {
		ret = compare_seed(compared, traces, seed + 1, values, of_seed);
		for (uint32_t i = 0; i < compared->n; i++)
			ratios[i][seed] = of_seed[i];
	}
	for (uint32_t i = 0; ret == 0 && i < compared->n; i++) {
		struct report_case c = compared_case(compared, i);

		c.published = 0;
		report_case(report, &c, &values[i]);
		for (uint32_t seed = 0; seed < seeds; seed++)
			over[seed] = ratios[i][seed] / ratios[compared->over[i]][seed];
		if (compared->over[i])
			report_ratio(report, &c, "avg_jct_over_srtf", over, seeds);
	}
	for (uint32_t i = 1; ret == 0 && i < compared->n; i++) {
		const struct report_case c = compared_case(compared, i);

		report_ratio(report, &c, compared->metric, ratios[i], seeds);
	}
	mem_free(values);
	return ret;
}

static int run_salus(const struct traces *traces, uint32_t seeds, const struct report *report)
{
	static const char *const names[] = {
		"fifo", "srtf", "pack+srtf", "srtf-declared", "pack+srtf-declared", "fair"
	};
	const double sigmas[] = PAR_SALUS_SIGMAS, gains[] = PAR_GAINS;
	int ret = 0;

	report_heading(report, "Salus: 100 jobs on a device, beside FIFO alone (medians of seeds)");
	for (size_t i = 0; i < ARRAY_LEN(sigmas); i++) {
		for (size_t j = 0; ret == 0 && j < ARRAY_LEN(gains); j++) {
			bool all = gains[j] >= PAR_GAIN; /* the others do not share */
			const double published[COMPARED_MOST] = {
				0, sigmas[i] > 1.2 && sigmas[i] < 1.3 ? 3.19 : 0
			};
			const struct compared compared = {
				.set = "salus",
				.metric = "avg_jct_over_fifo",
				.policies = names,
				.n = all ? ARRAY_LEN(names) : 3,
				.run = { .budget = PAR_SALUS_BUDGET, .gain = gains[j] },
				.sigma = sigmas[i],
				.jobs = PAR_SALUS_JOBS,
				.published = published,
				.over = { [2] = 1, [4] = 3 },
				.make = make_salus,
			};

			ret = compare_all(&compared, traces, seeds, report);
		}
	}
	return ret;
}

static int run_search(const struct traces *traces, uint32_t seeds, const struct report *report)
{
	static const char *const names[] = { "fifo", "peaks", "pack", "pack+srtf" };
	const double published[] = { 0, 0, 2.38, 0 };
	const struct compared compared = {
		.set = "search",
		.metric = "makespan_over_fifo",
		.policies = names,
		.n = ARRAY_LEN(names),
		.run = { .budget = PAR_SALUS_BUDGET, .gain = PAR_GAIN },
		.jobs = PAR_SEARCH_JOBS,
		.published = published,
		.by_makespan = true,
		.make = make_search,
	};

	report_heading(report, "Search: 300 small jobs on a device, beside one at a time");
	return compare_all(&compared, traces, seeds, report);
}

int standard_run(const char *set, const struct traces *traces, uint32_t seeds,
		 const struct report *report)
{
	static const struct {
		const char *name;
		int (*run)(const struct traces *traces, uint32_t seeds,
			   const struct report *report);
	} sets[] = {
		{ "salus", run_salus }, { "search", run_search }, { "services", run_services },
		{ "zico", run_zico },   { "phases", run_phases },
	};
	int ret = 0;

	if (seeds == 0 || seeds > SERIES_MAX)
		return error_set(-EINVAL, "seeds %u: 1 to %u", seeds, SERIES_MAX);
	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(sets); i++) {
		if (strcmp(set, "all") == 0 || strcmp(set, sets[i].name) == 0)
			ret = sets[i].run(traces, seeds, report);
	}
	return ret;
}

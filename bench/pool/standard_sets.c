#include "bench/pool/standard_sets.h"

#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "bench/pool/offline.h"
#include "bench/pool/parameters.h"
#include "bench/pool/standard.h"

/* -------- services -------- */

/* Places the services on the first device that has room, by Salus' condition or by peaks. */
static uint32_t place_services(struct job_set *set, bool shared)
{
	double persistent[SIM_DEVICES] = { 0 }, dynamic[SIM_DEVICES] = { 0 };
	uint32_t used = 0;

	for (uint32_t i = 0; i < set->n; i++) {
		struct sim_stage *stage = &set->jobs[i].stages[0];
		double peak = (double)stage->curve->peak, need;
		uint32_t device = 0;

		for (;; device++) {
			need = shared ? fmax(dynamic[device], peak) : dynamic[device] + peak;
			if (persistent[device] + (double)stage->persistent + need <=
			    PAR_SALUS_BUDGET)
				break;
		}
		persistent[device] += (double)stage->persistent;
		dynamic[device] = need;
		stage->device = device;
		used = device + 1 > used ? device + 1 : used;
	}
	return used;
}

int run_services(const struct traces *traces, uint32_t seeds, const struct report *report)
{
	static const char *const names[] = { "one each", "static shares", "pool" };
	struct report_values values[3] = { { { { 0 } } } };
	double devices[3][SERIES_MAX];
	int ret = 0;

	for (uint32_t seed = 0; ret == 0 && seed < seeds; seed++) {
		struct job_set set;

		ret = jobs_services(&set, traces, PAR_SERVICE_JOBS, seed + 1);
		for (uint32_t i = 0; ret == 0 && i < 3; i++) {
			struct pool_run run = { .budget = PAR_SALUS_BUDGET, .gain = PAR_GAIN };
			struct sim_result result;

			run.devices = i ? place_services(&set, i == 2) : set.n;
			for (uint32_t j = 0; i == 0 && j < set.n; j++)
				set.jobs[j].stages[0].device = j;
			devices[i][seed] = run.devices;
			ret = pool_run(&run, pool_policy_find("curves"), &set, &result);
			if (ret == 0)
				report_add(&values[i], &result, result.makespan_s);
		}
		job_set_free(&set);
	}
	report_heading(report, "Services: 42 with requests; JCT is a request's latency");
	for (uint32_t i = 0; ret == 0 && i < 3; i++) {
		const struct report_case c = { .set = "services",
					       .policy = names[i],
					       .budget = PAR_SALUS_BUDGET,
					       .gain = PAR_GAIN,
					       .jobs = PAR_SERVICE_JOBS,
					       .seed = 1,
					       .published = i == 2 ? 1 : 0 };

		report_case(report, &c, &values[i]);
		report_ratio(report, &c, "devices", devices[i], seeds);
	}
	return ret;
}

/* -------- equal jobs -------- */

enum { ZICO_SERIAL, ZICO_PEAKS, ZICO_CURVES, ZICO_UNIFIED, ZICO_MODES };

/* Runs the jobs in one of the modes. unaware: the gate does not know the gain. */
static int zico_run(struct job_set *set, int mode, const struct report_case *c, bool unaware,
		    struct sim_result *result_out)
{
	static const enum gate_sharing sharing[] = { GATE_ALONE, GATE_PEAKS, GATE_CURVES,
						     GATE_PEAKS };
	double all = set->n * job_peak(&set->jobs[0]);
	struct sim_opts opts = {
		.gate = { .order = GATE_FAIR,
			  .sharing = sharing[mode],
			  .budget = (uint64_t)(mode == ZICO_UNIFIED ? all : c->budget),
			  .aging = GATE_AGING },
		.devices = 1,
		.marks = CURVE_BINS / 4,
		.gain = c->gain,
		.gain_unknown = unaware || mode == ZICO_UNIFIED,
		.unified_per_s = mode == ZICO_UNIFIED ? PAR_UNIFIED_BYTES_PER_S : 0,
		.unified_capacity = (uint64_t)c->budget,
	};

	return sim_run(&opts, set->jobs, set->n, result_out);
}

/* The least gain with which sharing is as fast as one after the other, to 0.01; NaN: over 2. */
static int zico_break_even(struct job_set *set, int mode, struct report_case c, double serial,
			   double *gain_out)
{
	int low = 99, high = 201; /* percent: too little, enough */

	while (high - low > 1) {
		int middle = low == 99 && high == 201 ? 100 : (low + high) / 2;
		struct sim_result result;
		int ret;

		c.gain = middle / 100.0;
		ret = zico_run(set, mode, &c, true, &result);
		if (ret)
			return ret;
		if (result.makespan_s <= serial * (1 + 1e-9))
			high = middle;
		else
			low = middle;
	}
	*gain_out = high > 200 ? NAN : high / 100.0;
	return 0;
}

static int zico_case(struct job_set *set, const struct report *report, struct report_case c)
{
	static const char *const names[] = { "serial", "peaks", "curves", "unified memory" };
	struct sim_result results[ZICO_MODES];
	double persistent = set->n * (double)set->jobs[0].stages[0].persistent;
	double room = c.budget - persistent, best = 1;
	int ret = 0;

	for (int mode = 0; ret == 0 && mode < ZICO_MODES; mode++) {
		struct report_values values = { { { 0 } } };

		ret = zico_run(set, mode, &c, false, &results[mode]);
		if (ret)
			return ret;
		report_add(&values, &results[mode], results[ZICO_SERIAL].makespan_s);
		c.policy = names[mode];
		if (mode != ZICO_SERIAL)
			report_case(report, &c, &values);
	}
	c.policy = names[ZICO_CURVES];
	for (unsigned together = 2; together <= set->n && c.gain > 1; together++)
		best = fmax(best, offline_best(set->jobs[0].stages[0].curve, together,
					       (uint64_t)room, c.gain));
	report_value(report, &c, "best_offline_shift", best);
	report_value(report, &c, "of_best_offline_shift",
		     results[ZICO_SERIAL].makespan_s / results[ZICO_CURVES].makespan_s / best);
	if (c.gain > 1)
		return 0;
	for (int mode = ZICO_CURVES; ret == 0 && mode <= ZICO_UNIFIED; mode++) {
		double gain = NAN;

		ret = zico_break_even(set, mode, c, results[ZICO_SERIAL].makespan_s, &gain);
		c.policy = names[mode];
		report_value(report, &c, "break_even_gain", gain);
	}
	return ret;
}

int run_zico(const struct traces *traces, uint32_t seeds, const struct report *report)
{
	static const char *const wanted[] = { "resnet-50", "nature-cnn", "lstm" };
	const uint32_t counts[] = PAR_ZICO_JOBS;
	const double budgets[] = PAR_ZICO_BUDGETS, gains[] = PAR_GAINS;
	size_t per_trace = ARRAY_LEN(budgets) * ARRAY_LEN(gains);
	int ret = 0;

	(void)seeds;
	for (size_t i = 0; i < ARRAY_LEN(counts) * ARRAY_LEN(wanted); i++) {
		const struct trace *trace = traces_find(traces, wanted[i % ARRAY_LEN(wanted)]);
		uint32_t n = counts[i / ARRAY_LEN(wanted)];
		char heading[64];
		struct job_set set;

		if (!trace)
			continue;
		snprintf(heading, sizeof(heading), "Zico: %u equal jobs, beside serial", n);
		report_heading(report, heading);
		ret = jobs_equal(&set, trace, n);
		for (size_t j = 0; ret == 0 && j < per_trace; j++) {
			double share = budgets[j % ARRAY_LEN(budgets)];
			const struct report_case c = { .set = "zico",
						       .trace = trace->name,
						       .budget = ceil(share * n *
								      job_peak(&set.jobs[0])),
						       .gain = gains[j / ARRAY_LEN(budgets)],
						       .jobs = n };

			ret = zico_case(&set, report, c);
		}
		job_set_free(&set);
		if (ret)
			break;
	}
	return ret;
}

/* -------- phases -------- */

static double phases_cycle(const struct sim_job *job)
{
	double cycle = 0;

	for (uint32_t i = 0; i < job->n_stages; i++)
		cycle += (double)job->stages[i].curve->period_ns;
	return cycle;
}

/* What a job would take on a card that trains, in s. */
static double phases_colocated(const struct sim_job *job)
{
	double rollout = (double)job->stages[0].curve->period_ns;

	/* The mean of a lognormal factor. */
	return job->iterations * exp(PAR_PHASES_SIGMA * PAR_PHASES_SIGMA / 2) *
	       (phases_cycle(job) + rollout * (PAR_COLOCATED_ROLLOUT - 1)) / 1e9;
}

/* Costs of a group: each job on pools of its own, all on one pair, each on its own training card. */
static int phases_group(uint32_t n, uint64_t seed, struct report_values values[2], double costs[3])
{
	const double price = PAR_PRICE_ROLLOUT + PAR_PRICE_TRAIN;
	struct pool_run run = { .budget = 1, .gain = 1, .seed = seed, .devices = 2 };
	const struct pool_policy *policy = pool_policy_find("round-robin");
	struct sim_result result;
	double mean = 0, alone = 0;
	struct job_set set;
	int ret = jobs_phases(&set, n, seed);

	costs[0] = costs[2] = 0;
	for (uint32_t i = 0; ret == 0 && i < set.n; i++)
		mean += phases_cycle(&set.jobs[i]) / set.n;
	for (uint32_t i = 0; ret == 0 && i < set.n; i++) {
		struct job_set one = { .jobs = &set.jobs[i], .n = 1 };

		/* Jobs of the same length alone, so that they share all the time. */
		set.jobs[i].iterations =
			(uint32_t)round(PAR_PHASES_ITERATIONS * mean / phases_cycle(&set.jobs[i]));
		ret = pool_run(&run, policy, &one, &result);
		if (ret)
			break;
		alone += result.makespan_s;
		costs[0] += price * result.makespan_s;
		costs[2] += PAR_PRICE_TRAIN * phases_colocated(&set.jobs[i]);
		report_add(&values[0], &result, result.makespan_s);
	}
	if (ret == 0)
		ret = pool_run(&run, policy, &set, &result);
	if (ret == 0) {
		costs[1] = price * result.makespan_s;
		report_add(&values[1], &result, alone);
	}
	job_set_free(&set);
	return ret;
}

static int phases_groups(uint32_t n, const struct report *report)
{
	struct report_values values[2] = { { { { 0 } } } };
	double over_own[PAR_PHASES_GROUPS], over_colocated[PAR_PHASES_GROUPS];
	struct report_case c = {
		.set = "phases", .policy = "own pools", .gain = 1, .jobs = n, .seed = 1
	};
	char heading[80];

	for (uint32_t i = 0; i < PAR_PHASES_GROUPS; i++) {
		double costs[3] = { 1, 1, 1 };
		int ret = phases_group(n, i + 1, values, costs);

		if (ret)
			return ret;
		over_own[i] = costs[0] / costs[1];
		over_colocated[i] = costs[2] / costs[1];
	}
	snprintf(heading, sizeof(heading), "RollMux: phases of %u jobs on one pair of pools", n);
	report_heading(report, heading);
	report_case(report, &c, &values[0]);
	c.policy = "round-robin";
	report_case(report, &c, &values[1]);
	c.published = 1.84;
	report_ratio(report, &c, "cost_over_own_pools", over_own, PAR_PHASES_GROUPS);
	c.published = 1.38;
	report_ratio(report, &c, "cost_over_colocated", over_colocated, PAR_PHASES_GROUPS);
	return 0;
}

int run_phases(const struct traces *traces, uint32_t seeds, const struct report *report)
{
	const uint32_t counts[] = PAR_PHASES_JOBS;
	int ret = 0;

	(void)traces;
	(void)seeds;
	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(counts); i++)
		ret = phases_groups(counts[i], report);
	return ret;
}

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

#include "bench/pool/corun.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "bench/pool/corun_job.h"

#define PEAK (48.0 * 1024 * 1024)
#define PERSISTENT 0.2
#define PRODUCTS 512u
#define ALONE_ITERATIONS 10u

/* What has been measured of a job alone. */
struct measured {
	struct corun_job job;
	double iteration_s;
};

struct corun {
	const struct traces *traces;
	const struct report *report;
	double gain;
};

static int job_make(const struct corun *corun, const char *name, uint32_t iterations, uint32_t acts,
		    struct corun_job *job_out)
{
	const struct trace *trace = traces_find(corun->traces, name);

	if (!trace)
		return error_set(-ENOENT, "corun: no trace %s", name);
	*job_out = (struct corun_job){ .name = trace->name,
				       .persistent = (uint64_t)(PEAK * PERSISTENT),
				       .iterations = iterations,
				       .products = PRODUCTS,
				       .acts = acts };
	trace_scaled(trace, 1e9, PEAK * (1 - PERSISTENT), &job_out->curve);
	return 0;
}

/* Bytes for all persistent tensors, the witness's nothing, and so many iterations at a time. */
static uint64_t budget_for(const struct measured *jobs, uint32_t n, uint32_t iterations)
{
	uint64_t sum = 0, peak = 0;

	for (uint32_t i = 0; i < n; i++) {
		sum += jobs[i].job.persistent + CORUN_EXTENT;
		peak = max_u64(peak, corun_peak(&jobs[i].job));
	}
	return sum + iterations * peak;
}

static int measure_alone(struct measured *m)
{
	struct corun_job alone = m->job;
	int ret;

	alone.iterations = ALONE_ITERATIONS;
	ret = corun_jobs(&alone, 1, budget_for(m, 1, 1));
	m->iteration_s = alone.jct_s / ALONE_ITERATIONS;
	return ret;
}

/* Two jobs together, of a trace that no set has, beside one of them alone. */
static int measure_gain(struct corun *corun)
{
	struct measured two[2];
	struct corun_job jobs[2];
	int ret = job_make(corun, "mlp", ALONE_ITERATIONS, 0, &two[0].job);

	if (ret == 0)
		ret = measure_alone(&two[0]);
	if (ret)
		return ret;
	two[1] = two[0];
	jobs[0] = two[0].job;
	jobs[1] = two[1].job;
	ret = corun_jobs(jobs, 2, budget_for(two, 2, 2));
	corun->gain = fmax(1, 2 * two[0].iteration_s * ALONE_ITERATIONS /
				      fmax(jobs[0].jct_s, jobs[1].jct_s));
	return ret;
}

static int predict(const struct corun *corun, const struct measured *jobs, uint32_t n,
		   uint64_t budget, double jct_s[CORUN_JOBS])
{
	const struct sim_opts opts = { .gate = { .order = GATE_FAIR,
						 .sharing = GATE_PEAKS,
						 .budget = budget,
						 .aging = GATE_AGING },
				       .devices = 1,
				       .gain = corun->gain,
				       .gain_unknown = true };
	static struct curve curves[CORUN_JOBS];
	struct sim_job sim[CORUN_JOBS];
	struct sim_result result;
	int ret;

	for (uint32_t i = 0; i < n; i++) {
		const struct measured *m = &jobs[i];

		curves[i] = m->job.curve;
		curves[i].period_ns = (uint64_t)(m->iteration_s * 1e9);
		curves[i].peak = corun_peak(&m->job);
		sim[i] = (struct sim_job){ .iterations = m->job.iterations,
					   .n_stages = 1,
					   .stages = { { 0, m->job.persistent + CORUN_EXTENT,
							 &curves[i] } },
					   .demand = 1,
					   .weight = 1 };
	}
	ret = sim_run(&opts, sim, n, &result);
	for (uint32_t i = 0; i < n; i++)
		jct_s[i] = sim[i].end / 1e9;
	return ret;
}

/* Jobs together, room for that many iterations at a time. */
static int corun_case(const struct corun *corun, const char *set, const struct measured *jobs,
		      uint32_t n, uint32_t iterations)
{
	uint64_t budget = budget_for(jobs, n, iterations);
	struct report_case c = { .set = set,
				 .policy = "fair",
				 .budget = (double)budget,
				 .gain = corun->gain,
				 .jobs = n };
	double predicted[CORUN_JOBS], sums[2] = { 0, 0 };
	struct corun_job run[CORUN_JOBS];
	int ret = predict(corun, jobs, n, budget, predicted);

	for (uint32_t i = 0; i < n; i++)
		run[i] = jobs[i].job;
	if (ret == 0)
		ret = corun_jobs(run, n, budget);
	if (ret)
		return ret;
	report_heading(corun->report, set);
	for (uint32_t i = 0; i < n; i++) {
		c.trace = run[i].name;
		report_value(corun->report, &c, "jct_s", run[i].jct_s);
		report_value(corun->report, &c, "predicted_jct_s", predicted[i]);
		sums[0] += run[i].jct_s / n;
		sums[1] += predicted[i] / n;
	}
	c.trace = NULL;
	report_value(corun->report, &c, "avg_jct_s", sums[0]);
	report_value(corun->report, &c, "predicted_over_measured", sums[1] / sums[0]);
	return 0;
}

static int run_traces(struct corun *corun, const char *set)
{
	static const struct {
		const char *name;
		uint32_t iterations;
	} specs[] = { { "nature-cnn", 60 }, { "lstm", 40 }, { "resnet-18", 50 } };
	static const struct {
		const char *set;
		uint32_t jobs, together;
	} cases[] = { { "two", 2, 2 }, { "tight", 2, 1 }, { "three", 3, 2 } };
	static struct measured jobs[ARRAY_LEN(specs)];
	int ret = measure_gain(corun);

	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(specs); i++) {
		ret = job_make(corun, specs[i].name, specs[i].iterations, 0, &jobs[i].job);
		if (ret == 0)
			ret = measure_alone(&jobs[i]);
	}
	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(cases); i++) {
		if (strcmp(set, "all") == 0 || strcmp(set, cases[i].set) == 0)
			ret = corun_case(corun, cases[i].set, jobs, cases[i].jobs,
					 cases[i].together);
	}
	return ret;
}

/*
 * Two learners, which act for half as long as they learn, where there is room for 1.3 of one: one after the
 * other, by the sum of peaks, and under the gate.
 */
static int run_learners(const struct corun *corun)
{
	static const char *const ways[] = { "serial", "sum of peaks", "gate" };
	struct corun_job learner, jobs[2];
	struct report_case c = { .set = "learners", .trace = "nature-cnn", .jobs = 2 };
	double serial = 0, makespan = 0;
	int ret = job_make(corun, "nature-cnn", 30, PRODUCTS / 2, &learner);

	c.budget = ceil(1.3 * PEAK) + 6 * (double)CORUN_EXTENT;
	report_heading(corun->report, "learners");
	for (uint32_t way = 0; ret == 0 && way < ARRAY_LEN(ways); way++) {
		jobs[0] = jobs[1] = learner;
		jobs[0].reserves = jobs[1].reserves = way == 1;
		if (way > 0)
			ret = corun_jobs(jobs, 2, (uint64_t)c.budget);
		for (uint32_t i = 0; way == 0 && ret == 0 && i < 2; i++)
			ret = corun_jobs(&jobs[i], 1, (uint64_t)c.budget);
		if (ret)
			break;
		makespan = way ? fmax(jobs[0].jct_s, jobs[1].jct_s) : jobs[0].jct_s + jobs[1].jct_s;
		serial = way ? serial : makespan;
		c.policy = ways[way];
		report_value(corun->report, &c, "makespan_s", makespan);
	}
	if (ret == 0)
		report_value(corun->report, &c, "speedup_over_serial", serial / makespan);
	return ret;
}

int corun_run(const char *set, const struct traces *traces, const struct report *report)
{
	struct corun corun = { .traces = traces, .report = report, .gain = 1 };
	int ret = 0;

	if (strcmp(set, "learners") != 0)
		ret = run_traces(&corun, set);
	if (ret == 0 && (strcmp(set, "all") == 0 || strcmp(set, "learners") == 0))
		ret = run_learners(&corun);
	return ret;
}

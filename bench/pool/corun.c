#include "bench/pool/corun.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/bits.h"

#define PEAK (48.0 * 1024 * 1024)
#define PERSISTENT 0.2
#define PRODUCTS 128u
#define ALONE_ITERATIONS 48u /* about as long as a co-run: the same noise in both */
#define JOBS 3u

/* Jobs together, with room for so many iterations at a time. */
static const struct scenario {
	const char *set;
	uint32_t jobs, together;
} scenarios[] = { { "two", 2, 2 }, { "tight", 2, 1 }, { "three", 3, 2 } };

/* What the rounds of a scenario gave, of each job and, behind them, of their means. */
struct outcome {
	double measured[JOBS + 1][CORUN_ROUNDS], predicted[JOBS + 1][CORUN_ROUNDS];
};

struct calibration {
	double iteration_s[JOBS]; /* alone */
	double gain;
};

struct bench {
	const struct corun *corun;
	struct corun_job jobs[JOBS];
	struct calibration last;
	double gains[CORUN_ROUNDS];
};

int corun_job_make(const struct corun *corun, const char *name, uint32_t iterations,
		   struct corun_job *job_out)
{
	const struct trace *trace = traces_find(corun->traces, name);

	if (!trace)
		return error_set(-ENOENT, "corun: no trace %s", name);
	*job_out = (struct corun_job){ .name = trace->name,
				       .persistent = (uint64_t)(PEAK * PERSISTENT),
				       .iterations = corun->quick ? CORUN_WARM + 1 : iterations,
				       .products = corun->quick ? 1 : PRODUCTS };
	trace_scaled(trace, 1e9, PEAK * (1 - PERSISTENT), &job_out->curve);
	return 0;
}

uint64_t corun_budget(const struct corun_job *jobs, uint32_t n, uint32_t iterations)
{
	uint64_t sum = 0, peak = 0;

	for (uint32_t i = 0; i < n; i++) {
		sum += corun_persistent(&jobs[i]);
		peak = max_u64(peak, corun_peak(&jobs[i]));
	}
	return sum + iterations * peak;
}

/* -------- measuring -------- */

static int run_together(struct corun_job *jobs, uint32_t n, uint32_t iterations)
{
	const struct corun_place place = { .budget = corun_budget(jobs, n, iterations) };

	return corun_jobs(jobs, n, &place);
}

static int measure_alone(const struct corun_job *job, double *iteration_s_out)
{
	struct corun_job alone = *job;
	int ret;

	alone.iterations = alone.iterations < ALONE_ITERATIONS ? alone.iterations
							       : ALONE_ITERATIONS;
	ret = run_together(&alone, 1, 2); /* extents that it gives back are free a moment later */
	*iteration_s_out = alone.iteration_s;
	return ret;
}

/* Two jobs together beside one of them alone, of a trace that no scenario has. */
static int measure_gain(const struct corun *corun, double *gain_out)
{
	struct corun_job jobs[2];
	double iteration_s;
	int ret = corun_job_make(corun, "mlp", ALONE_ITERATIONS, &jobs[0]);

	if (ret == 0)
		ret = measure_alone(&jobs[0], &iteration_s);
	if (ret)
		return ret;
	jobs[1] = jobs[0];
	ret = run_together(jobs, 2, 2);
	*gain_out =
		fmax(1, 2 * iteration_s * ALONE_ITERATIONS / fmax(jobs[0].jct_s, jobs[1].jct_s));
	return ret;
}

static int predict(const struct bench *bench, const struct calibration *measured,
		   const struct scenario *scenario, double jct_s[JOBS])
{
	const struct sim_opts opts = {
		.gate = { .order = GATE_FAIR,
			  .sharing = GATE_PEAKS,
			  .budget = corun_budget(bench->jobs, scenario->jobs, scenario->together),
			  .aging = GATE_AGING },
		.devices = 1,
		.gain = measured->gain,
		.gain_unknown = true,
	};
	struct curve curves[JOBS];
	struct sim_job sim[JOBS];
	struct sim_result result;
	int ret;

	for (uint32_t i = 0; i < scenario->jobs; i++) {
		const struct corun_job *job = &bench->jobs[i];

		curves[i] = job->curve;
		curves[i].period_ns = (uint64_t)(measured->iteration_s[i] * 1e9);
		curves[i].peak = corun_peak(job);
		sim[i] = (struct sim_job){ .iterations = job->iterations,
					   .n_stages = 1,
					   .stages = { { 0, corun_persistent(job), &curves[i] } },
					   .demand = 1,
					   .weight = 1 };
	}
	ret = sim_run(&opts, sim, scenario->jobs, &result);
	for (uint32_t i = 0; i < scenario->jobs; i++)
		jct_s[i] = sim[i].end / 1e9;
	return ret;
}

/* -------- rounds -------- */

static int calibrate(const struct bench *bench, struct calibration *out)
{
	int ret = measure_gain(bench->corun, &out->gain);

	for (uint32_t i = 0; ret == 0 && i < JOBS; i++)
		ret = measure_alone(&bench->jobs[i], &out->iteration_s[i]);
	return ret;
}

/* Runs jobs together; the prediction is of what was measured before and after it. */
static int run_scenario(struct bench *bench, const struct scenario *scenario, uint32_t number,
			struct outcome *outcome)
{
	struct calibration after, mean;
	struct corun_job run[JOBS];
	double predicted[JOBS];
	int ret;

	memcpy(run, bench->jobs, sizeof(run));
	ret = run_together(run, scenario->jobs, scenario->together);
	if (ret == 0)
		ret = calibrate(bench, &after);
	if (ret)
		return ret;
	mean.gain = (bench->last.gain + after.gain) / 2;
	for (uint32_t i = 0; i < JOBS; i++)
		mean.iteration_s[i] = (bench->last.iteration_s[i] + after.iteration_s[i]) / 2;
	bench->last = after;
	bench->gains[number] = after.gain;
	ret = predict(bench, &mean, scenario, predicted);
	for (uint32_t i = 0; ret == 0 && i < scenario->jobs; i++) {
		outcome->measured[i][number] = run[i].jct_s;
		outcome->predicted[i][number] = predicted[i];
		outcome->measured[JOBS][number] += run[i].jct_s / scenario->jobs;
		outcome->predicted[JOBS][number] += predicted[i] / scenario->jobs;
	}
	return ret;
}

static void report_outcome(const struct bench *bench, double gain, const struct scenario *scenario,
			   struct outcome *outcome)
{
	const struct corun *corun = bench->corun;
	struct report_case c = {
		.set = scenario->set, .policy = "fair", .gain = gain, .jobs = scenario->jobs
	};

	c.budget = (double)corun_budget(bench->jobs, scenario->jobs, scenario->together);
	report_heading(corun->report, scenario->set);
	for (uint32_t i = 0; i <= JOBS; i++) {
		double ratios[CORUN_ROUNDS];

		if (i >= scenario->jobs && i < JOBS)
			continue;
		for (uint32_t k = 0; k < corun->rounds; k++)
			ratios[k] = outcome->predicted[i][k] / outcome->measured[i][k];
		c.trace = i < JOBS ? bench->jobs[i].name : NULL;
		report_ratio(corun->report, &c, i < JOBS ? "jct_s" : "avg_jct_s",
			     outcome->measured[i], corun->rounds);
		report_ratio(corun->report, &c,
			     i < JOBS ? "predicted_jct_s" : "predicted_avg_jct_s",
			     outcome->predicted[i], corun->rounds);
		report_ratio(corun->report, &c, "predicted_over_measured", ratios, corun->rounds);
	}
}

static int bench_make(const struct corun *corun, struct bench *bench_out)
{
	static const struct {
		const char *name;
		uint32_t iterations;
	} specs[JOBS] = { { "nature-cnn", 60 }, { "lstm", 40 }, { "resnet-18", 50 } };
	int ret = 0;

	bench_out->corun = corun;
	for (uint32_t i = 0; ret == 0 && i < JOBS; i++)
		ret = corun_job_make(corun, specs[i].name, specs[i].iterations,
				     &bench_out->jobs[i]);
	return ret ? ret : calibrate(bench_out, &bench_out->last);
}

static bool in_set(const struct corun *corun, const char *name)
{
	return strcmp(corun->set, "all") == 0 || strcmp(corun->set, name) == 0;
}

static int run_scenarios(const struct corun *corun)
{
	static struct outcome outcomes[ARRAY_LEN(scenarios)];
	static struct bench bench;
	int ret = bench_make(corun, &bench);
	double gain;

	for (uint32_t k = 0; ret == 0 && k < corun->rounds; k++) {
		for (size_t i = 0; ret == 0 && i < ARRAY_LEN(scenarios); i++) {
			if (in_set(corun, scenarios[i].set))
				ret = run_scenario(&bench, &scenarios[i], k, &outcomes[i]);
		}
	}
	gain = sim_quantile(bench.gains, corun->rounds, 0.5);
	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(scenarios); i++) {
		if (in_set(corun, scenarios[i].set))
			report_outcome(&bench, gain, &scenarios[i], &outcomes[i]);
	}
	return ret;
}

int corun_run(const struct corun *corun)
{
	int ret = strcmp(corun->set, "learners") ? run_scenarios(corun) : 0;

	return ret == 0 && in_set(corun, "learners") ? corun_learners(corun) : ret;
}

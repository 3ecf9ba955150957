#include "bench/pool/jobs.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "bench/pool/draw.h"
#include "bench/pool/parameters.h"

void job_set_free(struct job_set *set)
{
	mem_free(set->jobs);
	mem_free(set->curves);
	mem_free(set->requests);
	mem_free(set->latencies);
	memset(set, 0, sizeof(*set));
}

double job_peak(const struct sim_job *job)
{
	return (double)job->stages[0].persistent + (double)job->stages[0].curve->peak;
}

static int set_make(struct job_set *set_out, uint32_t n)
{
	memset(set_out, 0, sizeof(*set_out));
	set_out->jobs = mem_array(n, sizeof(*set_out->jobs));
	set_out->curves = mem_array((size_t)n * SIM_STAGES, sizeof(*set_out->curves));
	if (!set_out->jobs || !set_out->curves)
		return error_set(-ENOMEM, "no memory for %u jobs", n);
	set_out->n = n;
	return 0;
}

/* A job of one stage; period in s, peak of all its memory. */
static struct sim_job *set_job(struct job_set *set, uint32_t i, const struct trace *trace,
			       double period_s, double peak)
{
	struct sim_job *job = &set->jobs[i];
	struct curve *curve = &set->curves[(size_t)i * SIM_STAGES];

	trace_scaled(trace, period_s * 1e9, peak * (1 - PAR_PERSISTENT), curve);
	job->n_stages = 1;
	job->stages[0] = (struct sim_stage){ 0, (uint64_t)(peak * PAR_PERSISTENT), curve };
	job->demand = 1;
	job->weight = 1;
	return job;
}

/* Iterations of a job of that length, at least one; its last one is not shortened. */
static void job_lasts(struct sim_job *job, double seconds, struct rng *rng)
{
	double iterations = fmax(1, round(seconds * 1e9 / (double)job->stages[0].curve->period_ns));

	job->iterations = (uint32_t)fmin(iterations, UINT32_MAX);
	job->declared =
		(uint64_t)fmax(1, round(iterations * exp(PAR_ESTIMATE_SIGMA * draw_normal(rng))));
}

static const struct trace *any_trace(const struct traces *traces, struct rng *rng)
{
	return &traces->traces[rng_uniform_u64(rng, traces->n)];
}

/* n numbers between 0 and most, rising. */
static void draw_rising(struct rng *rng, double *values, uint32_t n, double most)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		values[i] = sum += draw_exponential(rng, 1);
	sum += draw_exponential(rng, 1);
	for (uint32_t i = 0; i < n; i++)
		values[i] *= most / sum;
}

int jobs_salus(struct job_set *set_out, const struct traces *traces, uint32_t n, double sigma,
	       uint64_t seed)
{
	double *lengths = mem_array(n, 2 * sizeof(*lengths)), sum = 0;
	double *arrivals = lengths ? lengths + n : NULL;
	int ret = set_make(set_out, n);
	struct rng rng;

	if (!lengths || ret) {
		mem_free(lengths);
		return ret ? ret : error_set(-ENOMEM, "no memory for %u jobs", n);
	}
	rng_seed(&rng, seed, 0);
	for (uint32_t i = 0; i < n; i++)
		sum += lengths[i] = exp(sigma * draw_normal(&rng));
	draw_rising(&rng, arrivals, n, PAR_SALUS_ARRIVALS_S * n / PAR_SALUS_JOBS);
	for (uint32_t i = 0; i < n; i++) {
		double peak = PAR_SALUS_PEAK_MEDIAN * exp(PAR_SALUS_PEAK_SIGMA * draw_normal(&rng));
		struct sim_job *job;

		peak = fmin(fmax(peak, PAR_SALUS_PEAK_LEAST), PAR_SALUS_PEAK_MOST);
		job = set_job(set_out, i, any_trace(traces, &rng), PAR_SALUS_ITERATION_S, peak);
		job_lasts(job, lengths[i] / sum * PAR_SALUS_SUM_S * n / PAR_SALUS_JOBS, &rng);
		job->arrival = round(arrivals[i] * 1e9);
	}
	mem_free(lengths);
	return 0;
}

int jobs_search(struct job_set *set_out, const struct traces *traces, uint32_t n, uint64_t seed)
{
	int ret = set_make(set_out, n);
	struct rng rng;

	rng_seed(&rng, seed, 1);
	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		double seconds = PAR_SEARCH_MEAN_S * exp(PAR_SEARCH_SIGMA * draw_normal(&rng) -
							 PAR_SEARCH_SIGMA * PAR_SEARCH_SIGMA / 2);
		double peak = draw_between(&rng, PAR_SEARCH_PEAK_LEAST, PAR_SEARCH_PEAK_MOST);
		struct sim_job *job =
			set_job(set_out, i, any_trace(traces, &rng), PAR_SEARCH_ITERATION_S, peak);

		job_lasts(job, seconds, &rng);
		job->demand = draw_between(&rng, PAR_SEARCH_DEMAND_LEAST, PAR_SEARCH_DEMAND_MOST);
	}
	return ret;
}

int jobs_services(struct job_set *set_out, const struct traces *traces, uint32_t n, uint64_t seed)
{
	size_t all = (size_t)n * PAR_SERVICE_REQUESTS;
	int ret = set_make(set_out, n);
	struct rng rng;

	if (ret)
		return ret;
	set_out->requests = mem_array(all, sizeof(*set_out->requests));
	set_out->latencies = mem_array(all, sizeof(*set_out->latencies));
	if (!set_out->requests || !set_out->latencies)
		return error_set(-ENOMEM, "no memory for %zu requests", all);
	rng_seed(&rng, seed, 2);
	for (uint32_t i = 0; i < n; i++) {
		double *requests = &set_out->requests[(size_t)i * PAR_SERVICE_REQUESTS], at = 0;
		double seconds = draw_between(&rng, PAR_SERVICE_LEAST_S, PAR_SERVICE_MOST_S);
		double peak = draw_between(&rng, PAR_SERVICE_PEAK_LEAST, PAR_SERVICE_PEAK_MOST);
		struct sim_job *job = set_job(set_out, i, any_trace(traces, &rng), seconds,
					      peak / (1 - PAR_PERSISTENT));

		job->stages[0].persistent = (uint64_t)draw_between(
			&rng, PAR_SERVICE_PERSISTENT_LEAST, PAR_SERVICE_PERSISTENT_MOST);
		for (uint32_t j = 0; j < PAR_SERVICE_REQUESTS; j++) {
			at += draw_exponential(&rng, seconds * n / PAR_SERVICE_LOAD);
			requests[j] = round(at * 1e9);
		}
		job->iterations = PAR_SERVICE_REQUESTS;
		job->requests = requests;
		job->latencies = &set_out->latencies[(size_t)i * PAR_SERVICE_REQUESTS];
	}
	return 0;
}

int jobs_equal(struct job_set *set_out, const struct trace *trace, uint32_t n)
{
	int ret = set_make(set_out, n);

	for (uint32_t i = 0; ret == 0 && i < n; i++)
		set_job(set_out, i, trace, PAR_ZICO_ITERATION_S, PAR_ZICO_PEAK)->iterations =
			PAR_ZICO_ITERATIONS;
	return ret;
}

int jobs_phases(struct job_set *set_out, uint32_t n, uint64_t seed)
{
	const double most = log(PAR_PHASES_RATIO);
	int ret = set_make(set_out, n);
	struct rng rng;

	rng_seed(&rng, seed, 3);
	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		struct sim_job *job = &set_out->jobs[i];
		double ratio = exp(draw_between(&rng, -most, most)); /* of rollout by train */
		double both = 2 * PAR_PHASES_MEAN_S * exp(draw_between(&rng, -most, most) / 2);
		double seconds[] = { both * ratio / (1 + ratio), both / (1 + ratio),
				     both * PAR_PHASES_SYNC };

		for (uint32_t j = 0; j < SIM_STAGES; j++) {
			struct curve *curve = &set_out->curves[(size_t)i * SIM_STAGES + j];

			curve_begin(curve, (uint64_t)(seconds[j] * 1e9));
			job->stages[j] = (struct sim_stage){ j < 2 ? j : SIM_NOWHERE, 0, curve };
		}
		job->n_stages = SIM_STAGES;
		job->jitter = PAR_PHASES_SIGMA;
		job->iterations = PAR_PHASES_ITERATIONS;
		job->demand = job->weight = 1;
	}
	return ret;
}

int jobs_of_table(struct job_set *set_out, const struct traces *traces,
		  const struct job_table *table, double iteration_s)
{
	int ret = set_make(set_out, table->n);
	struct rng rng;

	rng_seed(&rng, 0, 4);
	for (uint32_t i = 0; ret == 0 && i < table->n; i++) {
		const struct job_row *row = &table->rows[i];
		struct sim_job *job = set_job(set_out, i, any_trace(traces, &rng),
					      fmin(iteration_s, row->duration_s), row->peak_bytes);

		job_lasts(job, row->duration_s, &rng);
		job->arrival = round(row->arrival_s * 1e9);
		job->demand = row->demand;
	}
	return ret;
}

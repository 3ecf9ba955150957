#include "bench/pool/report.h"

#include <stdarg.h>
#include <stdio.h>

#include "bench/harness/result.h"
#include "program/units.h"

static const struct {
	const char *name, *unit;
	bool higher;
} metrics[REPORT_METRICS] = {
	{ "avg_jct_s", "s", false },          { "p99_jct_s", "s", false },
	{ "makespan_s", "s", false },         { "stall_s", "s", false },
	{ "utilisation", "1", true },         { "violations", "1", false },
	{ "speedup_over_serial", "1", true },
};

void report_add(struct report_values *values, const struct sim_result *result,
		double serial_makespan_s)
{
	const double all[REPORT_METRICS] = { result->avg_jct_s,
					     result->p99_jct_s,
					     result->makespan_s,
					     result->stall_s,
					     result->utilisation,
					     (double)result->violations,
					     serial_makespan_s / result->makespan_s };

	for (uint32_t i = 0; i < REPORT_METRICS; i++)
		series_add(&values->series[i], all[i]);
}

void report_note(const struct report *report, const char *fmt, ...)
{
	FILE *file = report->json ? stderr : stdout;
	va_list args;

	va_start(args, fmt);
	vfprintf(file, fmt, args);
	va_end(args);
	fputc('\n', file);
}

void report_heading(const struct report *report, const char *text)
{
	if (report->json)
		return;
	printf("\n%s\n  %-22s %-12s %5s %5s %9s", text, "policy", "trace", "sigma", "gain",
	       "budget");
	printf(" %9s %9s %9s %8s %5s %5s %7s\n", "avg JCT", "p99 JCT", "makespan", "stall", "util",
	       "viol", "speedup");
}

static const char *report_bench(const struct report *report)
{
	return report->bench ? report->bench : "pool_simulate";
}

static struct result report_result(const struct report_case *c, const char *metric)
{
	return (struct result){
		.metric = metric,
		.unit = "1",
		.higher = true,
		.params = { { .key = "set", .text = c->set },
			    { .key = "policy", .text = c->policy },
			    { .key = "trace", .text = c->trace ? c->trace : "" },
			    { .key = "sigma", .real = c->sigma, .kind = PARAM_REAL },
			    { .key = "budget", .number = (uint64_t)c->budget },
			    { .key = "gain", .real = c->gain, .kind = PARAM_REAL },
			    { .key = "jobs", .number = c->jobs },
			    { .key = "seed", .number = c->seed } },
	};
}

static void report_head(const struct report_case *c)
{
	char budget[UNITS_TEXT_BYTES];

	printf("  %-22s %-12s %5.2f %5.2f %9s", c->policy, c->trace ? c->trace : "-", c->sigma,
	       c->gain, units_format_bytes((uint64_t)c->budget, budget));
}

void report_case(const struct report *report, const struct report_case *c,
		 const struct report_values *values)
{
	double medians[REPORT_METRICS];

	for (uint32_t i = 0; i < REPORT_METRICS; i++) {
		struct result result = report_result(c, metrics[i].name);

		medians[i] = series_spread(&values->series[i], false).median;
		result.unit = metrics[i].unit;
		result.higher = metrics[i].higher;
		result.series = values->series[i];
		if (report->json)
			result_json(report->json, report_bench(report), &result);
	}
	if (report->json)
		return;
	report_head(c);
	printf(" %9.4g %9.4g %9.4g %8.3g %5.2f %5.0f %7.3f\n", medians[0], medians[1], medians[2],
	       medians[3], medians[4], medians[5], medians[6]);
}

void report_ratio(const struct report *report, const struct report_case *c, const char *metric,
		  double *ratios, uint32_t n)
{
	struct result result = report_result(c, metric);
	double median = sim_quantile(ratios, n, 0.5), low = sim_quantile(ratios, n, 0.1);
	double high = sim_quantile(ratios, n, 0.9);

	if (report->json) {
		series_add(&result.series, median);
		result.params[8] = (struct param){ .key = "p10", .real = low, .kind = PARAM_REAL };
		result.params[9] = (struct param){ .key = "p90", .real = high, .kind = PARAM_REAL };
		result.params[10] = (struct param){ .key = "published",
						    .real = c->published,
						    .kind = PARAM_REAL };
		result_json(report->json, report_bench(report), &result);
		return;
	}
	report_head(c);
	printf("  %s: %.2f (p10 %.2f, p90 %.2f)", metric, median, low, high);
	if (c->published > 0)
		printf("; published %.2f, %s", c->published,
		       c->published >= low && c->published <= high ? "inside" : "outside");
	printf("\n");
}

void report_value(const struct report *report, const struct report_case *c, const char *metric,
		  double value)
{
	struct result result = report_result(c, metric);

	if (report->json) {
		series_add(&result.series, value);
		result_json(report->json, report_bench(report), &result);
		return;
	}
	report_head(c);
	printf("  %s: %.4g\n", metric, value);
}

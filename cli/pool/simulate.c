/*
 * relive pool simulate: jobs under the gate's policies, on a virtual clock.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "bench/pool/parameters.h"
#include "bench/pool/standard.h"
#include "cli/cli.h"
#include "cli/pool/memory_picture.h"
#include "cli/pool/pool.h"

/* The options write here. */
struct request {
	bool json;
	const char *set, *policy, *traces, *table, *png;
	uint32_t format, jobs, seeds, devices, patience;
	uint64_t budget, peak, seed;
	double sigma, gain;
	int64_t step_ns, iteration_ns;
};

static int make_jobs(const struct request *request, const struct traces *traces, uint64_t seed,
		     struct job_set *set_out)
{
	const struct import_opts opts = { .format = (enum import_format)request->format,
					  .device_bytes = (double)request->budget,
					  .step_s = (double)request->step_ns / 1e9,
					  .peak_bytes = (double)request->peak };
	struct job_table table;
	int ret;

	memset(set_out, 0, sizeof(*set_out));
	if (!request->table)
		return jobs_salus(set_out, traces, request->jobs, request->sigma, seed);
	ret = job_table_read(request->table, &opts, &table);
	if (ret == 0)
		ret = jobs_of_table(set_out, traces, &table, (double)request->iteration_ns / 1e9);
	if (ret == 0 && table.left_out && !request->json)
		printf("%" PRIu32 " rows left out: no GPU, several, or never run\n",
		       table.left_out);
	job_table_free(&table);
	return ret;
}

/* Runs the jobs once more, as they ran: now it is known how long they take. */
static int draw_memory(const struct request *request, const struct pool_run *as_run,
		       struct job_set *set, struct sim_result *result)
{
	struct pool_run run = *as_run;
	struct memory_picture picture;
	int ret = memory_picture_open(set->n, request->devices, result->makespan_s * 1e9, &picture);

	run.watch = memory_picture_watch;
	run.ctx = &picture;
	if (ret == 0)
		ret = pool_run(&run, pool_policy_find(request->policy), set, result);
	if (ret == 0)
		ret = memory_picture_write(&picture, run.budget, request->png);
	memory_picture_close(&picture);
	return ret;
}

static int run_seed(const struct request *request, const struct traces *traces, uint64_t seed,
		    struct report_values *values)
{
	struct pool_run run = { .budget = (double)request->budget,
				.gain = request->gain,
				.seed = seed,
				.devices = request->devices,
				.patience = request->patience };
	struct sim_result serial, result;
	struct job_set set;
	int ret = make_jobs(request, traces, seed, &set);

	for (uint32_t i = 0; ret == 0 && i < set.n; i++)
		set.jobs[i].stages[0].device = i % request->devices;
	if (ret == 0)
		ret = pool_run(&run, pool_policy_find("fifo"), &set, &serial);
	if (ret == 0)
		ret = pool_run(&run, pool_policy_find(request->policy), &set, &result);
	if (ret == 0 && request->png && seed == request->seed)
		ret = draw_memory(request, &run, &set, &result);
	if (ret == 0)
		report_add(values, &result, serial.makespan_s);
	job_set_free(&set);
	return ret;
}

static int run_case(const struct request *request, const struct traces *traces,
		    const struct report *report)
{
	const struct report_case c = { .set = request->table ? "table" : "salus",
				       .policy = request->policy,
				       .sigma = request->table ? 0 : request->sigma,
				       .budget = (double)request->budget,
				       .gain = request->gain,
				       .jobs = request->table ? 0 : request->jobs,
				       .seed = request->seed };
	struct report_values values = { { { 0 } } };
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < request->seeds; i++)
		ret = run_seed(request, traces, request->seed + i, &values);
	if (ret)
		return ret;
	report_heading(report, "Medians of seeds; serial: FIFO alone");
	report_case(report, &c, &values);
	return 0;
}

static int simulate(const struct request *request)
{
	static struct traces traces;
	char path[PATH_MAX];
	struct report report = { .json = NULL };
	struct json json;
	int ret;

	if (request->traces)
		ret = traces_read(request->traces, &traces);
	else if (cli_data_file("pool-traces.txt", path))
		ret = traces_read(path, &traces);
	else
		ret = error_set(-ENOENT, "no pool-traces.txt is installed: give --traces FILE");
	json_init(&json, stdout);
	report.json = request->json ? &json : NULL;
	if (ret == 0 && request->set)
		ret = standard_run(request->set, &traces, request->seeds, &report);
	else if (ret == 0)
		ret = run_case(request, &traces, &report);
	if (request->json && json_finish(&json) && ret == 0)
		ret = error_set(-EIO, "write the results");
	return ret ? cli_fail_local(ret, "pool simulate") : CLI_OK;
}

/* Checks what options say together and sets what they leave open. CLI_CONTINUE, CLI_USAGE. */
static int complete_request(struct request *request)
{
	if (request->seeds == 0 || request->seeds > SERIES_MAX || request->jobs == 0 ||
	    request->devices == 0 || request->devices > SIM_DEVICES || request->iteration_ns <= 0 ||
	    request->step_ns <= 0) {
		cli_error("pool simulate: --seeds 1 to %u, --jobs, --iteration and --step over 0, "
			  "--devices 1 to %u",
			  SERIES_MAX, SIM_DEVICES);
		return CLI_USAGE;
	}
	if (request->set && request->policy) {
		cli_error("pool simulate: --set %s and --policy %s: give one of them", request->set,
			  request->policy);
		return CLI_USAGE;
	}
	if (request->set && request->png) {
		cli_error(
			"pool simulate: --png draws a case of its own: give --policy, not --set %s",
			request->set);
		return CLI_USAGE;
	}
	if (request->png && !request->policy)
		request->policy = "pack+srtf";
	if (!request->policy && !request->set)
		request->set = "all";
	return CLI_CONTINUE;
}

int pool_simulate(int argc, char **argv)
{
	struct request request = { .jobs = PAR_SALUS_JOBS,
				   .devices = 1,
				   .seeds = PAR_SEEDS,
				   .seed = 1,
				   .sigma = 1.25,
				   .gain = PAR_GAIN,
				   .budget = (uint64_t)PAR_SALUS_BUDGET,
				   .peak = (uint64_t)PAR_SALUS_PEAK_MEDIAN,
				   .step_ns = 100000000,
				   .iteration_ns = (int64_t)(PAR_SALUS_ITERATION_S * 1e9) };
	const struct arg_option options[] = {
		{ NULL, NULL, "What is run", NULL, ARG_HEADING },
		{ "set", STANDARD_SETS, "standard runs (default all, if there is no --policy)",
		  &request.set, ARG_WORD },
		{ "policy", POOL_POLICIES,
		  "a case of its own, under this policy\n(pack+srtf, if there is a --png)",
		  &request.policy, ARG_WORD },
		{ NULL, NULL, "The case", NULL, ARG_HEADING },
		{ "jobs", "N", "jobs (default 100), of recorded traces", &request.jobs,
		  ARG_COUNT32 },
		{ "sigma", "X", "of their lognormal lengths (default 1.25)", &request.sigma,
		  ARG_NUMBER },
		{ "table", "FILE", "jobs of a published table instead", &request.table, ARG_TEXT },
		{ "format", "salus|openb|philly", "of the table (default salus)", &request.format,
		  ARG_CHOICE },
		{ "step", "TIME", "of a step in a philly table (default 100ms)", &request.step_ns,
		  ARG_DURATION },
		{ "peak", "BYTES", "of a job in a philly table (default 4.46 GiB)", &request.peak,
		  ARG_BYTES },
		{ "iteration", "TIME", "that a table's jobs are cut into (default 4s)",
		  &request.iteration_ns, ARG_DURATION },
		{ "budget", "BYTES", "of a device (default 15.7 GiB)", &request.budget, ARG_BYTES },
		{ "gain", "G", "progress of two jobs together (default 1.4)", &request.gain,
		  ARG_NUMBER },
		{ "devices", "N", "jobs in turn on so many (default 1)", &request.devices,
		  ARG_COUNT32 },
		{ "patience", "N",
		  "iterations of others that a ready job lets begin (default: any)",
		  &request.patience, ARG_COUNT32 },
		{ NULL, NULL, "Seeds, input and output", NULL, ARG_HEADING },
		{ "seed", "N", "the first (default 1)", &request.seed, ARG_COUNT },
		{ "seeds", "N", "how many (default 20)", &request.seeds, ARG_COUNT32 },
		{ "traces", "FILE", "memory traces of tools/record-trace", &request.traces,
		  ARG_TEXT },
		{ "png", "FILE", "draw the memory of each job over time, of the first seed",
		  &request.png, ARG_TEXT },
		{ "json", NULL, "print JSON: one object a line", &request.json, ARG_FLAG },
	};
	const struct args args = {
		.usage = "pool simulate [OPTIONS]",
		.summary =
			"Replays jobs under the gate's policies, on a virtual clock. The standard "
			"runs have fixed\nparameters (bench/pool/parameters.h).",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples = "relive pool simulate --set zico\n"
			    "relive pool simulate --policy pack+srtf --sigma 1.5 --gain 1.2\n"
			    "relive pool simulate --jobs 8 --png jobs.png",
	};
	int code = cli_parse(&args, argc, argv);

	if (code != CLI_CONTINUE)
		return code;
	code = complete_request(&request);
	return code == CLI_CONTINUE ? simulate(&request) : code;
}

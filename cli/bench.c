#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/json.h"
#include "base/os/clock.h"
#include "cli/bench.h"
#include "bench/replay/group.h"
#include "bench/replay/standard.h"
#include "cli/cli.h"
#include "cli/host/host_store.h"
#include "program/interrupt.h"

#define OPTION(name, value, help, field, kind) \
	{ \
		name, value, help, &config->field, kind \
	}

/* Options that define a case, in the order of --help. */
#define CASE_OPTIONS \
	{ NULL, NULL, "Data and table", NULL, ARG_HEADING }, \
		OPTION("trace", "FILE", "recorded experience (.rlvt), repeated", trace, ARG_TEXT), \
		OPTION("shape", "SHAPE", \
		       "cartpole (default), cartpole-next, atari, or\nNAME:dtype[dims],...", \
		       shape, ARG_TEXT), \
		OPTION("capacity", "N", "steps (default 2^20; 2^17 of rows over 1 KiB)", capacity, \
		       ARG_COUNT), \
		OPTION("prefill", "N", \
		       "steps inserted before the clock starts (default: a full table)", prefill, \
		       ARG_COUNT), \
		OPTION("view", "STACK,NSTEP", \
		       "frames stacked, steps of the return (default 1,1; atari 4,1)", view, \
		       ARG_TEXT), \
		OPTION("shards", "S", "shards of the table (default 1)", shards, ARG_COUNT32), \
		OPTION("block", "N", \
		       "rows that a stream claims at once (default: by the row size)", block, \
		       ARG_COUNT32), \
		OPTION("spi", "X", "samples per insert, kept by the rate limiter", spi, \
		       ARG_NUMBER), \
		{ NULL, NULL, "Processes", NULL, ARG_HEADING }, \
		OPTION("actors", "A", "inserting processes (default 1)", actors, ARG_COUNT32), \
		OPTION("learners", "L", "sampling processes (default 1)", learners, ARG_COUNT32), \
		OPTION("loop", NULL, "one thread inserts, samples and updates in turn", loop, \
		       ARG_FLAG), \
		OPTION("threads", NULL, "threads on an embed: store instead of processes", \
		       threads, ARG_FLAG), \
		OPTION("processes", NULL, "processes, even if there is only one", processes, \
		       ARG_FLAG), \
		OPTION("store", "NAME", \
		       "store to use, by name or URI (default: a private store, or\nembed:)", \
		       store, ARG_TEXT), \
		OPTION("pages", "auto|small|huge", "pages of an embed: store", pages, ARG_CHOICE), \
		OPTION("pin", NULL, "pin each role to a CPU", pin, ARG_FLAG), \
		{ NULL, NULL, "Operations", NULL, ARG_HEADING }, \
		OPTION("insert-batch", "N", "steps per append (default 64)", insert_batch, \
		       ARG_COUNT32), \
		OPTION("envs", "E", "append one step of each of E environments instead", envs, \
		       ARG_COUNT32), \
		OPTION("initial", "auto|max|given", \
		       "priority of a new item: the largest so far (max), or the\nrecorded " \
		       "one (given); auto: given with a trace", \
		       initial, ARG_CHOICE), \
		OPTION("rate", "R", "steps/s of all actors together (default: flat out)", rate, \
		       ARG_NUMBER), \
		OPTION("batch", "B", "items per sample (default 256)", batch, ARG_COUNT32), \
		OPTION("layout", "dense|window", "memory layout of a batch (default dense)", \
		       layout, ARG_CHOICE), \
		OPTION("learn", "both|sample", "sample and update (default), or only sample", \
		       learn, ARG_CHOICE), \
		OPTION("inflight", "D", "batches held at once (default 1)", inflight, \
		       ARG_COUNT32), \
		OPTION("defer", "K", "update upper tree levels every K calls only", defer, \
		       ARG_COUNT32), \
		OPTION("independent", NULL, "independent draws instead of stratified draws", \
		       independent, ARG_FLAG), \
		OPTION("check", NULL, \
		       "verify every byte of every batch, and the distribution\nof draws by a " \
		       "chi-square test; exit code 1 if one is wrong", \
		       check, ARG_FLAG)

int bench_parse(struct replay_config *config, int argc, char **argv, bool *given_out)
{
	static char store_uri[CLI_STORE_BYTES];
	uint64_t seen = 0;
	size_t n_case = 0;
	const struct arg_option options[] = {
		CASE_OPTIONS,
		{ NULL, NULL, "Duration and output", NULL, ARG_HEADING },
		OPTION("seconds", "T", "time of all windows together (default 5)", duration_ns,
		       ARG_DURATION),
		OPTION("windows", "N", "measuring windows per case (default 5)", windows,
		       ARG_COUNT32),
		OPTION("seed", "N", "seed of draws and priorities (default 1)", seed, ARG_COUNT),
		OPTION("json", NULL, "print one JSON object per metric and line", json, ARG_FLAG),
		OPTION("full", NULL, "longer windows and more standard cases", full, ARG_FLAG),
		OPTION("progress", NULL, "show progress even without a terminal", progress,
		       ARG_FLAG),
	};
	const struct args args = {
		.usage = "bench replay [OPTIONS]",
		.summary =
			"Measures a table: actors append experience while learners sample and update "
			"it.\nWithout case options it runs a set of standard cases, within two minutes.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.seen = &seen,
		.examples = "relive bench replay --shape atari --learners 2 --json",
		.notes =
			"Two yardsticks of the machine are measured beside each window: line, the ns "
			"to load a random\n64 B line of as much memory; memcpy, the GB/s to copy as many "
			"bytes as a batch has.",
	};
	int code;

	replay_config_init(config);
	code = cli_parse(&args, argc, argv);
	if (code == CLI_CONTINUE && config->store)
		config->store = cli_store_uri(config->store, store_uri);
	/* Options of the standard cases, after the last heading, do not define a case. */
	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		if (options[i].kind == ARG_HEADING)
			n_case = i;
	}
	*given_out = (seen & bits_mask((unsigned)n_case)) != 0;
	return code;
}

static int open_private(void *ctx, uint64_t bytes, char uri_out[REPLAY_URI_BYTES])
{
	struct host_store *store = ctx;
	int ret = host_store_private(bytes, store);

	if (ret)
		return error_set(ret, "start a private store: %s",
				 error_last_code() == ret ? error_last() : strerror(-ret));
	snprintf(uri_out, REPLAY_URI_BYTES, "%s", store->uri);
	return 0;
}

static void close_private(void *ctx)
{
	host_store_close(ctx);
}

/* Runs the case of the command line, or the standard cases. */
static int run_groups(struct replay_config *config, bool given, struct replay_output *output,
		      bool *ok_out)
{
	uint32_t n = given ? 1 : replay_standard_groups(config->full);
	struct replay_group *group = mem_zalloc(sizeof(*group));
	int ret = group ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n && ret == 0; i++) {
		output->from = (double)i / n;
		output->to = (double)(i + 1) / n;
		if (given) {
			group->title = config->trace ? config->trace : config->shape;
			group->n_cases = 1;
			group->cases[0] = *config;
		} else {
			replay_standard_group(i, config, group);
		}
		ret = replay_group_run(group, output, ok_out);
	}
	mem_free(group);
	return ret;
}

static int bench_replay(int argc, char **argv)
{
	struct host_store store = { .n_nodes = 0 };
	const struct replay_place place = { open_private, close_private, &store };
	struct replay_output output = { .place = &place };
	struct replay_config config;
	struct progress progress;
	struct json json;
	bool given = false, ok = true;
	int code = bench_parse(&config, argc, argv, &given), ret;

	if (code != CLI_CONTINUE)
		return code;
	if (replay_config_check(&config)) {
		cli_error("%s", error_last());
		cli_hint("relive bench replay --help");
		return CLI_USAGE;
	}
	interrupt_install();
	progress_begin(&progress, config.progress);
	json_init(&json, stdout);
	output.progress = &progress;
	output.json = config.json ? &json : NULL;
	if (config.loop)
		snprintf(config.label, sizeof(config.label), "loop");
	else
		snprintf(config.label, sizeof(config.label), "%u actor%s, %u learner%s",
			 config.actors, config.actors == 1 ? "" : "s", config.learners,
			 config.learners == 1 ? "" : "s");
	ret = run_groups(&config, given, &output, &ok);
	if (config.json && json_finish(&json) && ret == 0)
		ret = error_set(-EIO, "write the results");
	if (ret)
		cli_fail_local(ret, "bench");
	if (!ok)
		cli_error("a check failed");
	return ret || !ok ? CLI_FAILURE : CLI_OK;
}

int cmd_bench(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "replay") == 0)
		return bench_replay(argc - 1, argv + 1);
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
		return bench_replay(argc, argv);
	cli_error("bench: give the name of a bench: relive bench replay");
	return CLI_USAGE;
}

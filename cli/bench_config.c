#include "cli/bench_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "relive/relive.h"

#include "base/bits.h"
#include "cli/cli.h"

void bench_config_init(struct bench_config *config)
{
	*config = (struct bench_config){
		.shape = "cartpole",
		.actors = 1,
		.learners = 1,
		.shards = 1,
		.batch = 256,
		.insert_batch = 64,
		.envs = 1,
		.inflight = 1,
		.windows = 5,
		.prefill = BENCH_PREFILL_RING,
		.seed = 1,
		.duration_ns = 5000000000,
	};
}

#define OPTION(name, value, help, field, kind) \
	{ \
		name, value, help, &config->field, kind \
	}

/* Everything that makes a case of its own, in the order of --help. */
#define CASE_OPTIONS \
	{ NULL, NULL, "What is replayed", NULL, ARG_HEADING }, \
		OPTION("trace", "FILE", "recorded experience (.rlvt), round and round", trace, \
		       ARG_TEXT), \
		OPTION("shape", "SHAPE", \
		       "cartpole (default), cartpole-next, atari, or\nNAME:dtype[dims],...", \
		       shape, ARG_TEXT), \
		OPTION("capacity", "N", "steps (default 2^20; 2^17 of rows over 1 KiB)", capacity, \
		       ARG_COUNT), \
		OPTION("prefill", "N", "steps inserted first (default: the whole ring)", prefill, \
		       ARG_COUNT), \
		OPTION("view", "STACK,NSTEP", "frames stacked, steps of the return (atari 4,1)", \
		       view, ARG_TEXT), \
		OPTION("shards", "S", "parts of the table (default 1)", shards, ARG_COUNT32), \
		OPTION("block", "N", "rows that a stream claims at once (default: chosen)", block, \
		       ARG_COUNT32), \
		OPTION("spi", "X", "samples per insert that the limiter keeps", spi, ARG_NUMBER), \
		{ NULL, NULL, "Who does it", NULL, ARG_HEADING }, \
		OPTION("actors", "A", "inserting processes (default 1)", actors, ARG_COUNT32), \
		OPTION("learners", "L", "sampling processes (default 1)", learners, ARG_COUNT32), \
		OPTION("loop", NULL, "one thread that inserts, samples and updates in turn", loop, \
		       ARG_FLAG), \
		OPTION("threads", NULL, "threads over embed: instead of processes", threads, \
		       ARG_FLAG), \
		OPTION("processes", NULL, "processes, also where there is only one", processes, \
		       ARG_FLAG), \
		OPTION("store", "NAME", \
		       "use this store, by name or URI (default: a private one, or\nembed:)", \
		       store, ARG_TEXT), \
		OPTION("pages", "auto|small|huge", "of embed:", pages, ARG_CHOICE), \
		OPTION("pin", NULL, "pin each role to a CPU", pin, ARG_FLAG), \
		{ NULL, NULL, "How", NULL, ARG_HEADING }, \
		OPTION("insert-batch", "N", "steps of an append (default 64)", insert_batch, \
		       ARG_COUNT32), \
		OPTION("envs", "E", "append one step of each of E environments instead", envs, \
		       ARG_COUNT32), \
		OPTION("initial", "auto|max|given", \
		       "priority of a new item: the largest so far, or the one that\ncomes with " \
		       "it (auto: given with a trace)", \
		       initial, ARG_CHOICE), \
		OPTION("rate", "R", "steps/s of all actors together (default: flat out)", rate, \
		       ARG_NUMBER), \
		OPTION("batch", "B", "items of a sample (default 256)", batch, ARG_COUNT32), \
		OPTION("layout", "dense|window", "of the columns of a batch", layout, ARG_CHOICE), \
		OPTION("learn", "both|sample", "sample and update, or only sample", learn, \
		       ARG_CHOICE), \
		OPTION("inflight", "D", "batches held at once (default 1)", inflight, \
		       ARG_COUNT32), \
		OPTION("defer", "K", "add priorities to upper levels every K updates", defer, \
		       ARG_COUNT32), \
		OPTION("independent", NULL, "independent draws instead of stratified ones", \
		       independent, ARG_FLAG), \
		OPTION("check", NULL, \
		       "verify every byte of every batch, and the distribution\nby a chi-square " \
		       "test; exit 1 when one is wrong", \
		       check, ARG_FLAG)

int bench_config_parse(struct bench_config *config, int argc, char **argv, bool *given_out)
{
	static char store_uri[CLI_STORE_BYTES];
	uint64_t seen = 0;
	size_t n_case = 0;
	const struct arg_option options[] = {
		CASE_OPTIONS,
		{ NULL, NULL, "How long, and what is printed", NULL, ARG_HEADING },
		OPTION("seconds", "T", "of all windows together (default 5)", duration_ns,
		       ARG_DURATION),
		OPTION("windows", "N", "windows to find best, median and spread (default 5)",
		       windows, ARG_COUNT32),
		OPTION("seed", "N", "of draws and priorities (default 1)", seed, ARG_COUNT),
		OPTION("json", NULL, "one JSON object a line and metric", json, ARG_FLAG),
		OPTION("full", NULL, "without case options: longer, and more cases", full,
		       ARG_FLAG),
		OPTION("progress", NULL, "show progress without a terminal, too", progress,
		       ARG_FLAG),
	};
	const struct args args = {
		.usage = "bench replay [OPTIONS]",
		.summary =
			"Replays experience into a table while learners sample and update it, and "
			"says how fast.\nWithout options: a set of standard cases, within two "
			"minutes.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.seen = &seen,
		.examples = "relive bench replay --shape atari --learners 2 --json",
		.notes =
			"Yardsticks of the same run stand beside the figures: line ns = a load of a "
			"random 64 B line\nof the same footprint; memcpy = the bytes of a batch from "
			"that memory in sequence.",
	};
	int code;

	bench_config_init(config);
	code = cli_parse(&args, argc, argv);
	if (code == CLI_CONTINUE && config->store)
		config->store = cli_store_uri(config->store, store_uri);
	/* What says how to run the standard cases, behind the last heading, makes no case. */
	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		if (options[i].kind == ARG_HEADING)
			n_case = i;
	}
	*given_out = (seen & bits_mask((unsigned)n_case)) != 0;
	return code;
}

static int parse_view(struct bench_config *config)
{
	char *end;
	unsigned long stack, n_step = 1;

	if (!config->view)
		return 0;
	stack = strtoul(config->view, &end, 10);
	if (end != config->view && *end == ',')
		n_step = strtoul(end + 1, &end, 10);
	if (*end || stack == 0 || stack > 64 || n_step == 0 || n_step > 256)
		return error_set(-EINVAL, "--view %s: want STACK,NSTEP, like 4,1", config->view);
	config->stack = (uint32_t)stack;
	config->n_step = (uint32_t)n_step;
	return 0;
}

static int check_sizes(const struct bench_config *config)
{
	if (config->windows == 0 || config->windows > BENCH_MAX_WINDOWS)
		return error_set(-EINVAL, "--windows %u: 1 to %d", config->windows,
				 BENCH_MAX_WINDOWS);
	if (config->duration_ns / config->windows < 1000000)
		return error_set(-EINVAL, "--seconds: under 1 ms for each of %u windows",
				 config->windows);
	if (config->batch == 0 || config->insert_batch == 0 || config->envs == 0 ||
	    config->inflight == 0 || config->shards == 0)
		return error_set(-EINVAL, "--batch, --insert-batch, --envs, --inflight, --shards: "
					  "at least 1");
	if (config->insert_batch > 1u << 20 || config->envs > 1u << 14 || config->inflight > 64)
		return error_set(-EINVAL,
				 "--insert-batch at most 2^20, --envs 2^14, --inflight 64");
	if (config->rate < 0 || config->spi < 0)
		return error_set(-EINVAL, "--rate, --spi: not negative");
	return 0;
}

int bench_config_check(struct bench_config *config)
{
	uint32_t roles = config->actors + config->learners;
	int ret = parse_view(config);

	if (ret == 0)
		ret = check_sizes(config);
	if (ret)
		return ret;
	if (config->actors > BENCH_MAX_ROLES || config->learners > BENCH_MAX_ROLES ||
	    roles > BENCH_MAX_ROLES || roles == 0)
		return error_set(-EINVAL, "--actors + --learners: 1 to %d", BENCH_MAX_ROLES);
	if (config->loop && (config->actors != 1 || config->learners != 1))
		return error_set(-EINVAL, "--loop: one thread is actor and learner");
	if (config->layout == RLV_WINDOW && config->n_step > 1)
		return error_set(-EINVAL, "--layout window is for returns of one step");
	if (config->check && config->initial == BENCH_INITIAL_MAX)
		return error_set(-EINVAL, "--check gives priorities: leave --initial max out");
	if (config->trace && config->check)
		return error_set(-EINVAL, "--check writes rows of its own: use --shape");
	if (config->check && config->envs > 1)
		return error_set(-EINVAL, "--check appends steps of one stream: leave --envs out");
	if (config->threads && config->store && strncmp(config->store, "embed:", 6) != 0)
		return error_set(-EINVAL, "--threads is for embed:, not %s", config->store);
	if (config->threads && config->processes)
		return error_set(-EINVAL, "--threads, --processes: give one of them");
	return 0;
}

bool bench_config_is_local(const struct bench_config *config)
{
	if (config->store)
		return strncmp(config->store, "embed:", 6) == 0;
	return config->threads || (bench_config_roles(config) == 1 && !config->processes);
}

bool bench_config_gives_priorities(const struct bench_config *config)
{
	if (config->initial == BENCH_INITIAL_AUTO)
		return config->trace || config->check;
	return config->initial == BENCH_INITIAL_GIVEN;
}

uint32_t bench_config_roles(const struct bench_config *config)
{
	return config->loop ? 1 : config->actors + config->learners;
}

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/json.h"
#include "base/os/clock.h"
#include "cli/bench.h"
#include "bench/replay/group.h"
#include "cli/cli.h"
#include "cli/host/host_store.h"
#include "program/interrupt.h"

/* The options write here. */
static struct replay_config parsed;

/* The options above this heading describe a case to measure. */
static const char how_to_run[] = "Duration and output";

static const struct arg_option options[] = {
	{ NULL, NULL, "Data and table", NULL, ARG_HEADING },
	{ "trace", "FILE", "recorded experience (.rlvt), repeated", &parsed.trace, ARG_TEXT },
	{ "shape", "SHAPE", "cartpole (default), cartpole-next, atari, or\nNAME:dtype[dims],...",
	  &parsed.shape, ARG_TEXT },
	{ "capacity", "N", "steps (default 2^20; 2^17 of rows over 1 KiB)", &parsed.capacity,
	  ARG_COUNT },
	{ "prefill", "N", "steps inserted before the clock starts (default: a full table)",
	  &parsed.prefill, ARG_COUNT },
	{ "view", "STACK,NSTEP", "frames stacked, steps of the return (default 1,1; atari 4,1)",
	  &parsed.view, ARG_TEXT },
	{ "shards", "S", "shards of the table (default 1)", &parsed.shards, ARG_COUNT32 },
	{ "block", "N", "rows that a stream claims at once (default: by the row size)",
	  &parsed.block, ARG_COUNT32 },
	{ "spi", "X", "samples per insert, kept by the rate limiter", &parsed.spi, ARG_NUMBER },
	{ NULL, NULL, "Processes", NULL, ARG_HEADING },
	{ "actors", "A", "inserting processes (default 1)", &parsed.actors, ARG_COUNT32 },
	{ "learners", "L", "sampling processes (default 1)", &parsed.learners, ARG_COUNT32 },
	{ "loop", NULL, "one thread inserts, samples and updates in turn", &parsed.loop, ARG_FLAG },
	{ "threads", NULL, "threads on an embed: store instead of processes", &parsed.threads,
	  ARG_FLAG },
	{ "processes", NULL, "processes, even if there is only one", &parsed.processes, ARG_FLAG },
	{ "store", "NAME", "store to use, by name or URI (default: a private store, or\nembed:)",
	  &parsed.store, ARG_TEXT },
	{ "pages", "auto|small|huge", "pages of an embed: store", &parsed.pages, ARG_CHOICE },
	{ "pin", NULL, "pin each role to a CPU", &parsed.pin, ARG_FLAG },
	{ NULL, NULL, "Operations", NULL, ARG_HEADING },
	{ "insert-batch", "N", "steps per append (default 64)", &parsed.insert_batch, ARG_COUNT32 },
	{ "envs", "E", "append one step of each of E environments instead", &parsed.envs,
	  ARG_COUNT32 },
	{ "rate", "R", "steps/s of all actors together (default: flat out)", &parsed.rate,
	  ARG_NUMBER },
	{ "batch", "B", "items per sample (default 256)", &parsed.batch, ARG_COUNT32 },
	{ "layout", "dense|window", "memory layout of a batch (default dense)", &parsed.layout,
	  ARG_CHOICE },
	{ "learn", "both|sample", "sample and update (default), or only sample", &parsed.learn,
	  ARG_CHOICE },
	{ "inflight", "D", "batches held at once (default 1)", &parsed.inflight, ARG_COUNT32 },
	{ "check", NULL,
	  "verify every byte of every batch, and the distribution\nof draws by a "
	  "chi-square test; exit code 1 if one is wrong",
	  &parsed.check, ARG_FLAG },
	{ "beside", "OPTIONS",
	  "measure a second case, with these options changed, in windows\nthat alternate; print "
	  "the ratios of its items/s, with an interval",
	  &parsed.beside, ARG_TEXT },
	{ NULL, NULL, how_to_run, NULL, ARG_HEADING },
	{ "seconds", "T", "time of all windows together (default 5)", &parsed.duration_ns,
	  ARG_DURATION },
	{ "windows", "N", "measuring windows per case (default 5)", &parsed.windows, ARG_COUNT32 },
	{ "seed", "N", "seed of draws and priorities (default 1)", &parsed.seed, ARG_COUNT },
	{ "json", NULL, "print one JSON object per metric and line", &parsed.json, ARG_FLAG },
	{ "full", NULL, "longer windows and more standard cases", &parsed.full, ARG_FLAG },
	{ "progress", NULL, "show progress even without a terminal", &parsed.progress, ARG_FLAG },
};

bool bench_case_is_given(const struct arg_option *all, const char *heading, uint64_t seen)
{
	unsigned n = 0;

	while (all[n].help != heading)
		n++;
	return (seen & bits_mask(n)) != 0;
}

int bench_parse(struct replay_config *config, int argc, char **argv, bool *given_out)
{
	static char store_uri[CLI_STORE_BYTES];
	uint64_t seen = 0;
	const struct args args = {
		.usage = "bench replay [OPTIONS]",
		.summary =
			"Measures a table: actors append experience while learners sample and update "
			"it.\nWithout case options it runs a set of standard cases, within two minutes.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.seen = &seen,
		.examples = "relive bench replay --shape atari --learners 2 --json\n"
			    "relive bench replay --actors 0 --processes --beside '--learners 2'",
		.notes =
			"Two yardsticks of the machine are measured beside each window: line, the ns "
			"to load a random\n64 B line of as much memory; memcpy, the GB/s to copy as many "
			"bytes as a batch has.",
	};
	int code;

	replay_config_init(&parsed);
	code = cli_parse(&args, argc, argv);
	if (code == CLI_CONTINUE && parsed.store)
		parsed.store = cli_store_uri(parsed.store, store_uri);
	*given_out = bench_case_is_given(options, how_to_run, seen);
	*config = parsed;
	return code;
}

/* -------- standard cases -------- */

#define WINDOW_NS (400 * CLOCK_NS_PER_MS)
#define FULL_WINDOW_NS (2 * CLOCK_NS_PER_S)
#define WORDS_MAX 32 /* of the options of a case */

enum { ONE_THREAD, FRAMES, PROCESSES, BLOCKS, LEARNERS, GROUPS };

static const struct {
	const char *title;
	const char *options; /* of all its cases */
	int64_t window_ns;
} groups[GROUPS] = {
	[ONE_THREAD] = { "CartPole, one thread, embed:, capacity 2^20", "", WINDOW_NS },
	[FRAMES] = { "Atari, stack 4, one thread, embed:, batches of 256",
		     "--shape atari --actors 0 --learn sample", WINDOW_NS },
	[PROCESSES] = { "CartPole, processes over a private store, capacity 2^20",
			"--processes --actors 2", 2 * WINDOW_NS },
	[BLOCKS] = { "CartPole, inserting processes over a private store",
		     "--processes --learners 0", WINDOW_NS },
	[LEARNERS] = { "CartPole, learners over a private store", "--processes", FULL_WINDOW_NS },
};

static const struct {
	uint32_t group;
	const char *label;
	const char *options;
} cases[] = {
	{ ONE_THREAD, "insert 64 steps", "--learners 0" },
	{ ONE_THREAD, "insert 64 environments", "--learners 0 --envs 64" },
	{ ONE_THREAD, "sample 256", "--actors 0 --learn sample" },
	{ ONE_THREAD, "sample 256, 4 KiB pages", "--actors 0 --learn sample --pages small" },
	{ ONE_THREAD, "loop 64 + 256 + 256", "--loop" },
	{ FRAMES, "window", "--layout window" },
	{ FRAMES, "dense", "" },
	{ FRAMES, "window, 8 in flight", "--layout window --inflight 8" },
	{ FRAMES, "dense, 8 in flight", "--inflight 8" },
	{ PROCESSES, "2 actors 500k/s, 1 learner", "--rate 500000" },
	{ PROCESSES, "2 actors flat out, 1 learner", "" },
	{ PROCESSES, "2 actors, 1 learner, checked", "--check" },
	{ BLOCKS, "1 actor, block as by default", "" },
	{ BLOCKS, "2 actors, block as by default", "--actors 2" },
	{ BLOCKS, "1 actor, block 1024", "--block 1024" },
	{ BLOCKS, "2 actors, block 1024", "--actors 2 --block 1024" },
	{ LEARNERS, "1 learner", "--actors 0" },
	{ LEARNERS, "2 learners", "--actors 0 --learners 2" },
	{ LEARNERS, "2 actors, 2 learners", "--actors 2 --learners 2" },
	{ LEARNERS, "2 actors, 2 learners, 4 shards", "--actors 2 --learners 2 --shards 4" },
	{ LEARNERS, "2 actors, 1 learner, 8 per insert", "--actors 2 --spi 8" },
};

uint32_t bench_groups(bool full)
{
	return full ? GROUPS : LEARNERS;
}

/* Parses options, separated by spaces, over those of base, into parsed. text is cut up. -EINVAL. */
static int parse_over(const struct replay_config *base, char *text)
{
	const struct args args = { .options = options, .n_options = ARRAY_LEN(options) };
	char *words[WORDS_MAX] = { text }, *rest = NULL;
	int n = 1;

	parsed = *base;
	for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		if (n == WORDS_MAX)
			return error_set(-EINVAL, "more than %d words", WORDS_MAX - 1);
		words[n++] = word;
	}
	return args_parse(&args, n, words);
}

void bench_group(uint32_t index, const struct replay_config *base, struct replay_group *group_out)
{
	memset(group_out, 0, sizeof(*group_out));
	group_out->title = groups[index].title;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct replay_config wide = *base;
		char text[128];
		int ret;

		if (cases[i].group != index)
			continue;
		snprintf(text, sizeof(text), "%s %s", groups[index].options, cases[i].options);
		wide.duration_ns =
			(base->full ? FULL_WINDOW_NS : groups[index].window_ns) * base->windows;
		wide.capacity = index == FRAMES && !base->full ? UINT64_C(1) << 16 : 0;
		snprintf(wide.label, sizeof(wide.label), "%s", cases[i].label);
		ret = parse_over(&wide, text);
		assert(ret == 0);
		(void)ret;
		group_out->cases[group_out->n_cases++] = parsed;
	}
}

/* -------- the command -------- */

static void label_of(struct replay_config *config)
{
	if (config->loop)
		snprintf(config->label, sizeof(config->label), "loop");
	else
		snprintf(config->label, sizeof(config->label), "%u actor%s, %u learner%s",
			 config->actors, config->actors == 1 ? "" : "s", config->learners,
			 config->learners == 1 ? "" : "s");
}

/* Makes the group of the case that the options describe, and of the one beside it. -EINVAL. */
static int bench_given(const struct replay_config *config, struct replay_group *group_out)
{
	static char text[512]; /* the options of the second case point into it */
	struct replay_config *second = &group_out->cases[1];
	size_t len = config->beside ? strlen(config->beside) : 0;
	int ret;

	group_out->title = config->trace ? config->trace : config->shape;
	group_out->n_cases = 1;
	group_out->cases[0] = *config;
	if (!config->beside)
		return 0;
	if (len >= sizeof(text))
		return error_set(-EINVAL, "--beside: %zu bytes, at most %zu", len,
				 sizeof(text) - 1);
	memcpy(text, config->beside, len + 1);
	ret = parse_over(config, text);
	if (ret == 0)
		ret = replay_config_check(&parsed);
	if (ret)
		return error_prefix(ret, "--beside: ");
	*second = parsed;
	(void)snprintf(second->label, sizeof(second->label), "%s", config->beside);
	second->duration_ns = config->duration_ns;
	second->windows = config->windows;
	if (strcmp(second->shape, config->shape) != 0 || second->trace != config->trace ||
	    second->store != config->store ||
	    replay_config_is_local(second) != replay_config_is_local(config))
		return error_set(
			-EINVAL,
			"--beside %s: both cases need one --shape, --trace and --store, and both "
			"processes or both threads: add --processes before --beside",
			config->beside);
	group_out->n_cases = 2;
	return 0;
}

static int start_private(void *ctx, uint64_t bytes, char uri_out[REPLAY_URI_BYTES])
{
	struct host_store *store = ctx;
	int ret = host_store_private(1, bytes, store);

	if (ret)
		return error_set(ret, "start a private store: %s",
				 error_last_code() == ret ? error_last() : strerror(-ret));
	snprintf(uri_out, REPLAY_URI_BYTES, "%s", store->uri);
	return 0;
}

/*
 * Runs `relive bench replay`: the case that the options describe, else the standard cases. Returns
 * the exit code.
 */
static int bench_replay(int argc, char **argv)
{
	struct host_store store = { .n_nodes = 0 };
	struct replay_output output = { .start_store = start_private, .ctx = &store };
	struct replay_group *group;
	struct replay_config config;
	struct progress progress;
	struct json json;
	bool given, ok = true;
	int code = bench_parse(&config, argc, argv, &given), ret = 0;
	uint32_t n;

	if (code != CLI_CONTINUE)
		return code;
	label_of(&config);
	group = mem_zalloc(sizeof(*group));
	if (!group)
		return cli_fail_local(-ENOMEM, "bench");
	if (replay_config_check(&config) || (given && bench_given(&config, group))) {
		cli_error("%s", error_last());
		mem_free(group);
		return CLI_USAGE;
	}
	interrupt_install();
	progress_begin(&progress, config.progress);
	json_init(&json, stdout);
	output.progress = &progress;
	output.json = config.json ? &json : NULL;
	n = given ? 1 : bench_groups(config.full);
	for (uint32_t i = 0; i < n && ret == 0; i++) {
		output.from = (double)i / n;
		output.to = (double)(i + 1) / n;
		if (!given)
			bench_group(i, &config, group);
		ret = replay_group_run(group, &output, &ok);
		if (ret)
			cli_fail_local(ret, "bench");
		host_store_close(&store);
	}
	mem_free(group);
	if (config.json && json_finish(&json) && ret == 0)
		ret = cli_fail_local(error_set(-EIO, "write the results"), "bench");
	if (!ok)
		cli_error("a check failed");
	return ret || !ok ? CLI_FAILURE : CLI_OK;
}

int cmd_bench(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "replay") == 0)
		return bench_replay(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "kv") == 0)
		return bench_kv(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "weights") == 0)
		return bench_weights(argc - 1, argv + 1);
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
		return bench_replay(argc, argv);
	cli_error("bench: give the name of a bench: relive bench replay, relive bench kv, "
		  "relive bench weights");
	return CLI_USAGE;
}

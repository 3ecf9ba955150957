#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "bench/weights/codec.h"
#include "bench/weights/weights.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/host/host_store.h"
#include "program/interrupt.h"

#define CASES_MOST 32u
#define MIB (UINT64_C(1) << 20)

/* The options write here. */
static struct {
	struct weights_config config;
	double percent;
	const char *store;
	uint32_t windows;
	bool codec, json, full, progress;
} parsed;

static const char how_to_run[] = "Windows and output";

static const struct arg_option options[] = {
	{ NULL, NULL, "Case", NULL, ARG_HEADING },
	{ "bytes", "BYTES", "of all tensors (default 100M)", &parsed.config.bytes, ARG_BYTES },
	{ "density", "PERCENT",
	  "of the elements change from one generation to the next (default 1)", &parsed.percent,
	  ARG_NUMBER },
	{ "actors", "N", "processes that fetch (default 1)", &parsed.config.actors, ARG_COUNT32 },
	{ "fresh", NULL, "leave the pages of the store's memory to the first generations",
	  &parsed.config.fresh, ARG_FLAG },
	{ "view", NULL, "actors map generations where the publisher put them", &parsed.config.view,
	  ARG_FLAG },
	{ "codec", NULL, "deltas alone, without a store", &parsed.codec, ARG_FLAG },
	{ "store", "NAME",
	  "store to use, by name or URI (default: a private store). Its\nheap `bench-weights` is "
	  "dropped",
	  &parsed.store, ARG_TEXT },
	{ NULL, NULL, how_to_run, NULL, ARG_HEADING },
	{ "windows", "N", "measuring windows per case (default 7)", &parsed.windows, ARG_COUNT32 },
	{ "seed", "N", "seed of the tensors and changes (default 1)", &parsed.config.seed,
	  ARG_COUNT },
	{ "json", NULL, "print one JSON object per metric and line", &parsed.json, ARG_FLAG },
	{ "full", NULL, "more sizes and densities, up to 4 GiB", &parsed.full, ARG_FLAG },
	{ "progress", NULL, "show progress even without a terminal", &parsed.progress, ARG_FLAG },
};

/* Actors 0: the codec alone. */
static const struct {
	bool full; /* only with --full */
	struct weights_config config;
} standard[] = {
	{ false, { .bytes = 256 * MIB, .actors = 0, .density = 0.001 } },
	{ false, { .bytes = 256 * MIB, .actors = 0, .density = 0.01 } },
	{ false, { .bytes = 256 * MIB, .actors = 0, .density = 0.03 } },
	{ false, { .bytes = MIB, .actors = 1, .density = 1 } },
	{ false, { .bytes = 100 * MIB, .actors = 1, .density = 0.001 } },
	{ false, { .bytes = 100 * MIB, .actors = 1, .density = 0.01 } },
	{ false, { .bytes = 100 * MIB, .actors = 1, .density = 1 } },
	{ false, { .bytes = 100 * MIB, .actors = 4, .density = 1 } },
	{ true, { .bytes = 1024 * MIB, .actors = 0, .density = 0.001 } },
	{ true, { .bytes = 1024 * MIB, .actors = 0, .density = 0.01 } },
	{ true, { .bytes = 16 * MIB, .actors = 1, .density = 0.01 } },
	{ true, { .bytes = 100 * MIB, .actors = 1, .density = 0.03 } },
	{ true, { .bytes = 100 * MIB, .actors = 4, .density = 0.01 } },
	{ true, { .bytes = 1024 * MIB, .actors = 1, .density = 0.001 } },
	{ true, { .bytes = 1024 * MIB, .actors = 1, .density = 0.01 } },
	{ true, { .bytes = 1024 * MIB, .actors = 1, .density = 0.03 } },
	{ true, { .bytes = 1024 * MIB, .actors = 1, .density = 1 } },
	{ true, { .bytes = 4096 * MIB, .actors = 1, .density = 1, .view = true, .fresh = true } },
	{ true, { .bytes = 4096 * MIB, .actors = 1, .density = 0.01 } },
	{ true, { .bytes = 4096 * MIB, .actors = 1, .density = 1 } },
};

/* Where the cases of a run stand. */
struct bench_run {
	struct progress progress;
	struct json *json; /* NULL: a table */
	uint32_t index, n; /* of the case */
};

static int next_window(struct bench_run *run, const char *label, uint32_t window)
{
	progress_show(&run->progress, (run->index + (double)window / parsed.windows) / run->n, "%s",
		      label);
	return interrupt_pending() ? error_set(-EINTR, "interrupted") : 0;
}

static int run_codec(const struct weights_config *config, struct bench_run *run)
{
	struct codec codec;
	int ret = codec_open(&codec, config->bytes, 2, config->density, config->seed);

	for (uint32_t i = 0; ret == 0 && i < parsed.windows; i++) {
		ret = next_window(run, "codec", i);
		ret = ret ? ret : codec_window(&codec);
	}
	if (ret == 0)
		weights_codec_print(&codec, config->seed, run->json);
	codec_close(&codec);
	return ret;
}

/* True if a standard case needs more memory than there is: its neighbours are run all the same. */
static bool is_too_large(const struct weights_config *config, struct bench_run *run)
{
	uint64_t need = weights_case_memory(config), available = pages_available();

	if (need <= available)
		return false;
	progress_clear(&run->progress);
	(void)fprintf(stderr,
		      "left out: %u actors and %" PRIu64 " MiB need %" PRIu64
		      " MiB of memory; the host has %" PRIu64 " available\n",
		      config->actors, config->bytes / MIB, need / MIB, available / MIB);
	return true;
}

static int run_store(const struct weights_config *config, struct bench_run *run)
{
	struct weights_case *c = mem_zalloc(sizeof(*c));
	struct host_store host = { .n_nodes = 0 };
	int ret = c ? 0 : error_set(-ENOMEM, "cannot allocate memory");

	if (ret == 0 && !parsed.store)
		ret = host_store_private(1, weights_case_bytes(config), &host);
	if (ret == 0) /* the store's directory is known */
		ret = weights_case_fork(c, config);
	if (ret == 0)
		ret = weights_case_start(c, parsed.store ? parsed.store : host.uri);
	for (uint32_t i = 0; ret == 0 && i < parsed.windows; i++) {
		ret = next_window(run, "publish and fetch", i);
		ret = ret ? ret : weights_case_window(c);
	}
	if (ret == 0)
		weights_case_print(c, run->json);
	if (c)
		weights_case_close(c);
	host_store_close(&host);
	mem_free(c);
	return ret;
}

static int parse(int argc, char **argv, bool *given_out)
{
	static char store_uri[CLI_STORE_BYTES];
	uint64_t seen = 0;
	const struct args args = {
		.usage = "bench weights [OPTIONS]",
		.summary =
			"Measures weights: one process publishes generations of bf16 tensors, others fetch "
			"them.\nmemcpy of as many bytes is measured beside each. Without case options it runs a "
			"set of\nstandard cases, within two minutes.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.seen = &seen,
		.examples = "relive bench weights --bytes 1G --density 0.1 --json",
	};
	int code = cli_parse(&args, argc, argv);

	if (code != CLI_CONTINUE)
		return code;
	*given_out = bench_case_is_given(options, how_to_run, seen);
	if (parsed.store)
		parsed.store = cli_store_uri(parsed.store, store_uri);
	parsed.windows = parsed.windows ? parsed.windows : 7;
	parsed.config.density = (parsed.percent > 0 ? parsed.percent : 1) / 100;
	parsed.config.seed = parsed.config.seed ? parsed.config.seed : 1;
	parsed.config.bytes = parsed.config.bytes ? parsed.config.bytes : 100 * MIB;
	if (!parsed.codec && !parsed.config.actors)
		parsed.config.actors = 1;
	if (parsed.windows > SERIES_MAX || parsed.config.actors > WORKERS_MAX ||
	    parsed.config.density > 1 || (parsed.codec && parsed.config.actors)) {
		cli_error("bench weights: at most %u windows, %u actors and 100 %%; --codec has no "
			  "actors",
			  SERIES_MAX, WORKERS_MAX);
		return CLI_USAGE;
	}
	return CLI_CONTINUE;
}

int bench_weights(int argc, char **argv)
{
	struct weights_config cases[CASES_MOST];
	struct bench_run run = { .json = NULL };
	struct json json;
	bool given;
	int code = parse(argc, argv, &given), ret = 0;

	if (code != CLI_CONTINUE)
		return code;
	if (given)
		cases[run.n++] = parsed.config;
	for (size_t i = 0; !given && i < ARRAY_LEN(standard); i++) {
		if (standard[i].full && !parsed.full)
			continue;
		cases[run.n] = standard[i].config;
		cases[run.n++].seed = parsed.config.seed;
	}
	interrupt_install();
	progress_begin(&run.progress, parsed.progress);
	json_init(&json, stdout);
	run.json = parsed.json ? &json : NULL;
	for (; ret == 0 && run.index < run.n; run.index++) {
		const struct weights_config *config = &cases[run.index];

		if (!given && is_too_large(config, &run))
			continue;
		ret = config->actors ? run_store(config, &run) : run_codec(config, &run);
	}
	if (ret)
		cli_fail_local(ret, "bench");
	if (parsed.json && json_finish(&json) && ret == 0)
		ret = cli_fail_local(error_set(-EIO, "write the results"), "bench");
	return ret ? CLI_FAILURE : CLI_OK;
}

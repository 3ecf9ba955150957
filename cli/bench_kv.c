#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/os/clock.h"
#include "bench/harness/windows.h"
#include "bench/kv/kv.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/host/host_store.h"
#include "program/interrupt.h"

#define CASES_MOST 32u

/* The options write here. */
static struct {
	struct kv_config config;
	const char *workload, *store;
	int64_t duration_ns;
	uint32_t windows;
	bool json, full, progress;
} parsed;

static const char how_to_run[] = "Duration and output";

static const struct arg_option options[] = {
	{ NULL, NULL, "Case", NULL, ARG_HEADING },
	{ "workload", "a|b|c|d|f|w", "of YCSB, or w: puts only (default: standard cases)",
	  &parsed.workload, ARG_WORD },
	{ "distribution", "zipf|uniform", "of the keys: Zipf 0.99 (default), or uniform",
	  &parsed.config.dist, ARG_CHOICE },
	{ "value", "BYTES", "of a value (default 1K)", &parsed.config.value, ARG_BYTES },
	{ "keys", "N", "keys (default: 64 MiB of values, 100000 at most)", &parsed.config.keys,
	  ARG_COUNT },
	{ "clients", "N", "processes (default 1)", &parsed.config.clients, ARG_COUNT32 },
	{ "store", "NAME",
	  "store to use, by name or URI (default: a private store). Its\nheap "
	  "`bench` is dropped",
	  &parsed.store, ARG_TEXT },
	{ NULL, NULL, how_to_run, NULL, ARG_HEADING },
	{ "seconds", "T", "time of all windows of a case (default 2; --full 10)",
	  &parsed.duration_ns, ARG_DURATION },
	{ "windows", "N", "measuring windows per case (default 5)", &parsed.windows, ARG_COUNT32 },
	{ "seed", "N", "seed of the keys (default 1)", &parsed.config.seed, ARG_COUNT },
	{ "json", NULL, "print one JSON object per metric and line", &parsed.json, ARG_FLAG },
	{ "full", NULL, "longer windows, and more sizes and clients", &parsed.full, ARG_FLAG },
	{ "progress", NULL, "show progress even without a terminal", &parsed.progress, ARG_FLAG },
};

static const struct {
	bool full; /* only with --full */
	struct kv_config config;
} standard[] = {
	{ false, { .workload = 'c', .clients = 1, .value = 1024 } },
	{ false, { .workload = 'w', .clients = 1, .value = 1024 } },
	{ false, { .workload = 'a', .clients = 1, .value = 1024 } },
	{ false, { .workload = 'b', .clients = 1, .value = 1024 } },
	{ false, { .workload = 'd', .clients = 1, .value = 1024 } },
	{ false, { .workload = 'f', .clients = 1, .value = 1024 } },
	{ false, { .workload = 'a', .clients = 1, .value = 1024, .dist = KV_UNIFORM } },
	{ false, { .workload = 'a', .clients = 1, .value = 64 } },
	{ false, { .workload = 'a', .clients = 1, .value = 65536 } },
	{ false, { .workload = 'a', .clients = 2, .value = 1024 } },
	{ false, { .workload = 'b', .clients = 2, .value = 1024 } },
	{ true, { .workload = 'c', .clients = 1, .value = 64 } },
	{ true, { .workload = 'c', .clients = 1, .value = 16384 } },
	{ true, { .workload = 'w', .clients = 1, .value = 64 } },
	{ true, { .workload = 'w', .clients = 1, .value = 16384 } },
	{ true, { .workload = 'b', .clients = 1, .value = 1024, .dist = KV_UNIFORM } },
	{ true, { .workload = 'a', .clients = 4, .value = 1024 } },
	{ true, { .workload = 'a', .clients = 8, .value = 1024 } },
	{ true, { .workload = 'a', .clients = 16, .value = 1024 } },
	{ true, { .workload = 'a', .clients = 32, .value = 1024 } },
};

struct running {
	struct kv_case *c;
	struct progress *progress;
};

static int run_window(void *ctx, uint32_t index, double done)
{
	struct running *running = ctx;

	(void)index;
	progress_show(running->progress, done, "%s", running->c->label);
	return kv_case_window(running->c, parsed.duration_ns / parsed.windows);
}

/* Measures one case, on a store of its own unless --store names one. */
static int run_case(const struct kv_config *config, struct progress *progress, struct json *json,
		    double from, double to)
{
	struct host_store host = { .n_nodes = 0 };
	struct kv_case c;
	struct running running = { &c, progress };
	const struct windows windows = { .from = from,
					 .to = to,
					 .n = parsed.windows,
					 .cases = 1,
					 .run = run_window,
					 .ctx = &running };
	int ret = 0;

	memset(&c, 0, sizeof(c));
	if (!parsed.store) {
		ret = host_store_private(
			kv_case_bytes(config) + 1024 * config->keys + ((uint64_t)128 << 20), &host);
		if (ret)
			ret = error_set(ret, "start a private store: %s", error_last());
	}
	if (ret == 0) /* the store's runtime directory is known to them */
		ret = kv_case_fork(&c, config);
	if (ret == 0)
		ret = kv_case_start(&c, parsed.store ? parsed.store : host.uri);
	if (ret == 0) /* warms up the cursors */
		ret = kv_case_window(&c, 100 * CLOCK_NS_PER_MS);
	memset(c.series, 0, sizeof(c.series));
	if (ret == 0)
		ret = windows_run(&windows);
	if (ret == 0)
		kv_case_print(&c, json);
	kv_case_close(&c);
	host_store_close(&host);
	return ret ? error_prefix(ret, "%s: ", c.label) : 0;
}

static int parse(int argc, char **argv, bool *given_out)
{
	static char store_uri[CLI_STORE_BYTES];
	uint64_t seen = 0;
	const struct args args = {
		.usage = "bench kv [OPTIONS]",
		.summary =
			"Measures a heap: processes get and put values under keys.\nWithout case "
			"options it runs a set of standard cases, within two minutes.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.seen = &seen,
		.examples = "relive bench kv --workload a --clients 2 --json",
	};
	unsigned n_case = 0;
	int code = cli_parse(&args, argc, argv);

	if (code != CLI_CONTINUE)
		return code;
	while (options[n_case].help != how_to_run)
		n_case++;
	*given_out = (seen & bits_mask(n_case)) != 0;
	if (parsed.store)
		parsed.store = cli_store_uri(parsed.store, store_uri);
	parsed.config.workload = parsed.workload ? parsed.workload[0] : 0;
	parsed.windows = parsed.windows ? parsed.windows : 5;
	parsed.config.seed = parsed.config.seed ? parsed.config.seed : 1;
	if (!parsed.duration_ns)
		parsed.duration_ns = (parsed.full ? 10 : 2) * CLOCK_NS_PER_S;
	if (parsed.windows > SERIES_MAX || parsed.config.clients > WORKERS_MAX ||
	    parsed.config.value > ((uint64_t)1 << 20)) {
		cli_error("bench kv: at most %u windows, %u clients, and values of 1 MiB",
			  SERIES_MAX, WORKERS_MAX);
		return CLI_USAGE;
	}
	return CLI_CONTINUE;
}

int bench_kv(int argc, char **argv)
{
	struct kv_config cases[CASES_MOST];
	struct progress progress;
	struct json json;
	uint32_t n = 0;
	bool given;
	int code = parse(argc, argv, &given), ret = 0;

	if (code != CLI_CONTINUE)
		return code;
	if (given)
		cases[n++] = parsed.config;
	for (size_t i = 0; !given && i < ARRAY_LEN(standard); i++) {
		if (standard[i].full && !parsed.full)
			continue;
		cases[n] = standard[i].config;
		cases[n++].seed = parsed.config.seed;
	}
	interrupt_install();
	progress_begin(&progress, parsed.progress);
	json_init(&json, stdout);
	if (!parsed.json)
		printf("%-34s %-4s %12s %12s %10s %10s\n", "case", "op", "best op/s", "median op/s",
		       "p99 us", "us/1000");
	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		kv_config_fill(&cases[i]);
		ret = run_case(&cases[i], &progress, parsed.json ? &json : NULL, (double)i / n,
			       (double)(i + 1) / n);
	}
	if (ret)
		cli_fail_local(ret, "bench");
	if (parsed.json && json_finish(&json) && ret == 0)
		ret = cli_fail_local(error_set(-EIO, "write the results"), "bench");
	return ret ? CLI_FAILURE : CLI_OK;
}

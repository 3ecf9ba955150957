#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "bench/harness/windows.h"
#include "bench/kv/kv.h"
#include "bench/kv/redis.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/host/host_store.h"
#include "program/interrupt.h"

#define CASES_MOST 32u
#define ALL_MODES UINT32_MAX
#define COPIES_MOST 3u

/* The options write here. */
static struct {
	struct kv_config config;
	const char *workload, *mode, *store;
	int64_t duration_ns;
	uint32_t windows;
	bool json, full, progress;
} parsed;

static const char how_to_run[] = "Modes, duration and output";

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
	{ "copies", "N", "copies of the heap, of mode clover (default 1)", &parsed.config.copies,
	  ARG_COUNT32 },
	{ "writers", "one|many", "clients that put into a part with copies (default one)",
	  &parsed.config.writers, ARG_CHOICE },
	{ "store", "NAME",
	  "store to use, by name or URI (default: a private store). Its\nheaps "
	  "`bench-MODE` are dropped",
	  &parsed.store, ARG_TEXT },
	{ NULL, NULL, how_to_run, NULL, ARG_HEADING },
	{ "mode", "clover|direct|central", "only this one (default: all, in turn)", &parsed.mode,
	  ARG_WORD },
	{ "seconds", "T", "time of all windows of a case and mode (default 0.75; --full 5)",
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

/* The same case in several modes, whose windows alternate. */
struct modes {
	struct kv_case cases[KV_CASES];
	struct redis_server redis;
	uint32_t n;
	struct progress *progress;
};

static int run_window(void *ctx, uint32_t index, double done)
{
	struct modes *modes = ctx;

	progress_show(modes->progress, done, "%s", modes->cases[index].label);
	return kv_case_window(&modes->cases[index], parsed.duration_ns / parsed.windows);
}

/* Adds Redis to the cases, if it is installed and knows their workload. */
static int redis_start(struct modes *modes, const struct kv_config *config,
		       struct kv_config each[KV_CASES])
{
	static bool said;
	int ret;

	if (config->workload == 'd')
		return 0;
	ret = redis_server_start(&modes->redis);
	if (ret && !said)
		fprintf(stderr, "redis is left out: %s\n", error_last());
	said |= ret != 0;
	if (ret)
		return ret == -EINTR ? ret : 0;
	each[modes->n] = *config;
	each[modes->n++].mode = KV_REDIS;
	return 0;
}

/* Starts the cases' clients and heaps, on a store of their own unless --store names one. */
static int modes_start(struct modes *modes, const struct kv_config *config, struct host_store *host)
{
	struct kv_config each[KV_CASES] = { { 0 } };
	uint64_t bytes = (uint64_t)128 << 20;
	int ret = 0;

	for (uint32_t mode = 0; mode < KV_MODES; mode++) {
		if (config->mode != ALL_MODES && config->mode != mode)
			continue;
		each[modes->n] = *config;
		each[modes->n].mode = mode;
		bytes += kv_case_bytes(&each[modes->n++]);
	}
	if (config->mode == ALL_MODES &&
	    config->workload != 'd') { /* D gets keys that are being put */
		each[modes->n] = *config;
		each[modes->n].mode = RLV_KV_CLOVER;
		each[modes->n].batched = true;
		bytes += kv_case_bytes(&each[modes->n++]);
	}
	if (!parsed.store) {
		ret = host_store_private(config->copies, bytes, host);
		if (ret)
			ret = error_set(ret, "start a private store: %s", error_last());
	}
	if (ret == 0 && config->mode == ALL_MODES && !parsed.store)
		ret = redis_start(modes, config, each);
	for (uint32_t i = 0; ret == 0 && i < modes->n; i++) { /* the store's directory is known */
		ret = kv_case_fork(&modes->cases[i], &each[i]);
		modes->cases[i].server = each[i].mode == KV_REDIS ? modes->redis.pid : host->metad;
	}
	for (uint32_t i = 0; ret == 0 && i < modes->n; i++) {
		struct kv_case *c = &modes->cases[i];

		ret = kv_case_start(c, c->config.mode == KV_REDIS ? modes->redis.socket
				       : parsed.store             ? parsed.store
								  : host->uri);
		if (ret == 0) /* warms up the cursors */
			ret = kv_case_window(c, 50 * CLOCK_NS_PER_MS);
		memset(c->series, 0, sizeof(c->series));
	}
	return ret;
}

/* Measures one case in its modes, and prints it. */
static int run_case(const struct kv_config *config, struct progress *progress, struct json *json,
		    double from, double to)
{
	struct host_store host = { .n_nodes = 0 };
	struct modes *modes = mem_zalloc(sizeof(*modes));
	struct windows windows = {
		.from = from, .to = to, .n = parsed.windows, .run = run_window, .ctx = modes
	};
	int ret = modes ? 0 : error_set(-ENOMEM, "cannot allocate memory");

	if (ret)
		return ret;
	modes->progress = progress;
	ret = modes_start(modes, config, &host);
	windows.cases = modes->n;
	if (ret == 0)
		ret = windows_run(&windows);
	for (uint32_t i = 0; i < modes->n; i++) {
		if (ret == 0)
			kv_case_print(&modes->cases[i], json);
		kv_case_close(&modes->cases[i]);
	}
	redis_server_stop(&modes->redis);
	host_store_close(&host);
	mem_free(modes);
	return ret ? error_prefix(ret, "workload %c: ", config->workload) : 0;
}

static int check_copies(const struct kv_config *config)
{
	bool one = config->writers == RLV_KV_ONE_WRITER;

	if (config->copies > COPIES_MOST || (config->copies < 2 && !one) ||
	    (config->copies > 1 && config->mode != RLV_KV_CLOVER)) {
		cli_error("bench kv: copies are of mode clover, at most %u, and --writers many "
			  "needs 2 of them",
			  COPIES_MOST);
		return CLI_USAGE;
	}
	if (config->copies > 1 && one && config->clients > 1) {
		cli_error("bench kv: several clients put into copies with --writers many only");
		return CLI_USAGE;
	}
	return CLI_CONTINUE;
}

static int parse(int argc, char **argv, bool *given_out)
{
	static char store_uri[CLI_STORE_BYTES];
	uint64_t seen = 0;
	const struct args args = {
		.usage = "bench kv [OPTIONS]",
		.summary =
			"Measures heaps of all modes, one key or 64 in a call, and Redis with a pipeline of\n"
			"64 commands if redis-server is installed: processes get and put values under keys. CPU is\nfor "
			"1000 operations, of the clients and of the server. Without case options it\nruns a "
			"set of standard cases, within two minutes.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.seen = &seen,
		.examples = "relive bench kv --workload a --clients 2 --json",
	};
	int code = cli_parse(&args, argc, argv);

	if (code != CLI_CONTINUE)
		return code;
	*given_out = bench_case_is_given(options, how_to_run, seen);
	if (parsed.store)
		parsed.store = cli_store_uri(parsed.store, store_uri);
	parsed.config.workload = parsed.workload ? parsed.workload[0] : 0;
	parsed.config.mode = parsed.mode ? 0 : ALL_MODES;
	while (parsed.mode && strcmp(parsed.mode, kv_mode_names[parsed.config.mode]) != 0)
		parsed.config.mode++;
	if (parsed.config.copies > 1 && !parsed.mode)
		parsed.config.mode = RLV_KV_CLOVER;
	parsed.windows = parsed.windows ? parsed.windows : 5;
	parsed.config.seed = parsed.config.seed ? parsed.config.seed : 1;
	if (!parsed.duration_ns)
		parsed.duration_ns = (parsed.full ? 5000 : 750) * CLOCK_NS_PER_MS;
	if (parsed.windows > SERIES_MAX || parsed.config.clients > WORKERS_MAX ||
	    parsed.config.value > ((uint64_t)256 << 10)) {
		cli_error("bench kv: at most %u windows, %u clients, and values of 256 KiB",
			  SERIES_MAX, WORKERS_MAX);
		return CLI_USAGE;
	}
	return check_copies(&parsed.config);
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
		cases[n].mode = parsed.config.mode;
		cases[n++].seed = parsed.config.seed;
	}
	interrupt_install();
	progress_begin(&progress, parsed.progress);
	json_init(&json, stdout);
	if (!parsed.json)
		printf("%-41s %-4s %12s %12s %10s %8s %8s\n", "case", "op", "best op/s",
		       "median op/s", "p99 us", "CPU us", "server's");
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

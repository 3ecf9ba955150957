#include "bench/harness/micro.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "bench/harness/windows.h"
#include "program/args.h"

#define COPY_BYTES ((uint64_t)64 << 20)
#define ROW_BYTES 512

/* -------- options -------- */

static int micro_parse(struct micro *m, int argc, char **argv)
{
	const struct arg_option options[] = {
		{ "full", NULL, "sweep more", &m->full, ARG_FLAG },
		{ "json", NULL, "one JSON object a line instead of a table", &m->json, ARG_FLAG },
		{ "seed", "N", "seed of all random numbers (default 1)", &m->seed, ARG_COUNT },
		{ "windows", "N", "windows of each case, 5 to 64 (default 15)", &m->windows,
		  ARG_COUNT32 },
		{ "only", "TEXT", "only cases whose row contains TEXT", &m->only, ARG_TEXT },
		{ "store", "URI", "the store to measure (default embed:)", &m->store, ARG_TEXT },
	};
	const struct args args = {
		.program = m->name,
		.usage = "[OPTIONS]",
		.summary = m->help,
		.options = options,
		.n_options = ARRAY_LEN(options) - (m->store ? 0 : 1),
	};
	int ret = args_parse(&args, argc, argv);

	if (ret == ARGS_HELP)
		args_print_help(&args, stdout);
	else if (ret == 0 && (m->windows < 5 || m->windows > SERIES_MAX))
		ret = error_set(-EINVAL, "--windows %u: give 5 to %u", m->windows, SERIES_MAX);
	return ret;
}

bool micro_init(struct micro *m, int argc, char **argv, int *exit_out)
{
	int ret;

	m->seed = 1;
	m->windows = 15;
	ret = micro_parse(m, argc, argv);
	if (ret < 0)
		fprintf(stderr, "%s: %s\n  try: %s --help\n", m->name, error_last(), m->name);
	*exit_out = ret < 0 ? 2 : EXIT_SUCCESS;
	progress_begin(&m->progress, false);
	json_init(&m->out, stdout);
	return ret == 0;
}

int micro_finish(struct micro *m, bool ok)
{
	progress_clear(&m->progress);
	yardstick_close(&m->copy);
	if (m->json && json_finish(&m->out))
		ok = false;
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* -------- results -------- */

/* Each " key=text", " key=number", or " key" of a set flag; an unset flag is left out. */
static void format_params(const struct result *r, char *row, size_t size)
{
	row[0] = '\0';
	for (uint32_t i = 0; i < r->n_params; i++) {
		const struct param *p = &r->params[i];
		size_t len = strlen(row);

		if (p->text)
			snprintf(row + len, size - len, " %s=%s", p->key, p->text);
		else if (p->kind != PARAM_FLAG)
			snprintf(row + len, size - len, " %s=%" PRIu64, p->key, p->number);
		else if (p->number)
			snprintf(row + len, size - len, " %s", p->key);
	}
}

bool micro_wants(const struct micro *m, const struct result *result)
{
	char row[ROW_BYTES], text[ROW_BYTES + 64];

	if (!m->only)
		return true;
	format_params(result, row, sizeof(row));
	snprintf(text, sizeof(text), "%s%s", result->metric, row);
	return strstr(text, m->only) != NULL;
}

static void print_row(struct micro *m, const struct result *r, const struct series *series)
{
	struct spread s = series_spread(series, r->higher);
	char row[ROW_BYTES], cpu[16] = "-";

	if (m->printed++ % 40 == 0)
		printf("%-13s %9s %9s %7s %5s  %s\n", "metric", "best", "median", "spread", "cpu",
		       "case");
	format_params(r, row, sizeof(row));
	if (series->wall_ns > 0)
		snprintf(cpu, sizeof(cpu), "%.2f", series->cpu_ns / series->wall_ns);
	printf("%-13s %9.2f %9.2f %6.0f%% %5s %s\n", r->metric, s.best, s.median,
	       spread_relative(&s) * 100, cpu, row);
	fflush(stdout);
}

void micro_print(struct micro *m, const struct result *result, const struct series *series)
{
	progress_clear(&m->progress);
	if (m->json)
		result_json(&m->out, m->name, result, series);
	else
		print_row(m, result, series);
}

/* -------- windows -------- */

struct running {
	struct micro *micro;
	const struct micro_cases *cases;
};

static int run_window(void *ctx, uint32_t index, double done)
{
	const struct running *running = ctx;

	progress_show(&running->micro->progress, done, "%s", running->cases->what);
	return running->cases->run(running->cases->ctx, index);
}

int micro_run(struct micro *m, const struct micro_cases *cases)
{
	struct running running = { m, cases };
	const struct windows windows = {
		.to = 1,
		.n = m->windows,
		.cases = cases->n,
		.run = run_window,
		.ctx = &running,
	};

	return windows_run(&windows);
}

double micro_memcpy_gbps(struct micro *m)
{
	if (!m->copy.memory.ptr && yardstick_open(&m->copy, COPY_BYTES, COPY_BYTES, PAGE_THP)) {
		fprintf(stderr, "%s: memcpy: cannot allocate two buffers of 64 MiB\n", m->name);
		exit(EXIT_FAILURE);
	}
	return yardstick_memcpy_gbps(&m->copy, COPY_BYTES, 1, 0);
}

#include "bench/harness/micro.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "bench/harness/windows.h"

#define COPY_BYTES ((uint64_t)64 << 20)

/* -------- options -------- */

bool micro_init(struct micro *m, int argc, char **argv, int *exit_out)
{
	struct arg_option options[6 + MICRO_OPTIONS] = {
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
		.n_options = (m->store ? 6 : 5) + m->n_options,
	};
	int ret;

	if (m->n_options)
		memcpy(options + (m->store ? 6 : 5), m->options, m->n_options * sizeof(*options));
	m->seed = 1;
	m->windows = 15;
	ret = args_parse(&args, argc, argv);
	if (ret == ARGS_HELP)
		args_print_help(&args, stdout);
	else if (ret == 0 && (m->windows < 5 || m->windows > SERIES_MAX))
		ret = error_set(-EINVAL, "--windows %u: give 5 to %u", m->windows, SERIES_MAX);
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

/* -------- cases -------- */

bool micro_add(struct micro *m, const struct micro_case *c)
{
	char row[RESULT_ROW_BYTES], text[RESULT_ROW_BYTES + 64];

	snprintf(text, sizeof(text), "%s%s", c->result.metric, result_params_text(&c->result, row));
	if (m->n == MICRO_CASES || (m->only && !strstr(text, m->only)))
		return false;
	m->cases[m->n] = *c;
	m->cases[m->n++].micro = m;
	return true;
}

static int measure_line(struct micro_case *c)
{
	const struct micro *m = c->micro;
	struct series *series = &c->result.series;

	series_add(series, yardstick_line_ns(m->memory, m->memory_bytes, m->seed + series->n));
	return 0;
}

static int measure_memcpy(struct micro_case *c)
{
	struct micro *m = c->micro;

	if (!m->copy.memory.ptr && yardstick_open(&m->copy, COPY_BYTES, COPY_BYTES, PAGE_THP)) {
		fprintf(stderr, "%s: memcpy: cannot allocate two buffers of 64 MiB\n", m->name);
		return -ENOMEM;
	}
	series_add(&c->result.series, yardstick_memcpy_gbps(&m->copy, COPY_BYTES, 1, 0));
	return 0;
}

void micro_add_yardsticks(struct micro *m, const void *memory, uint64_t bytes,
			  const struct param *params)
{
	const char *only = m->only;
	struct micro_case c = { .run = measure_line,
				.result = { .metric = "calib_line_ns", .unit = "ns" } };

	for (size_t i = 0; params[i].key; i++)
		c.result.params[i] = params[i];
	m->memory = memory;
	m->memory_bytes = bytes;
	m->only = NULL;
	(void)micro_add(m, &c);
	c.run = measure_memcpy;
	c.result.metric = "memcpy_gbps";
	c.result.unit = "GB/s";
	c.result.higher = true;
	(void)micro_add(m, &c);
	m->only = only;
}

/* -------- windows -------- */

static int run_window(void *ctx, uint32_t index, double done)
{
	struct micro *m = ctx;
	struct micro_case *c = &m->cases[index];
	uint64_t wall = time_wall_ns(), cpu = time_cpu_ns();
	int ret;

	progress_show(&m->progress, done, "%s", m->what);
	ret = c->run(c);
	c->result.series.cpu_ns += (double)(time_cpu_ns() - cpu);
	c->result.series.wall_ns += (double)(time_wall_ns() - wall);
	return ret;
}

int micro_run(struct micro *m, const char *what)
{
	const struct windows windows = {
		.to = 1,
		.n = m->windows,
		.cases = m->n,
		.run = run_window,
		.ctx = m,
	};
	int ret;

	m->what = what;
	ret = windows_run(&windows);
	progress_clear(&m->progress);
	for (uint32_t i = 0; i < m->n && ret == 0; i++) {
		const struct result *result = &m->cases[i].result;

		if (m->json) {
			result_json(&m->out, m->name, result);
		} else if (result->series.n) {
			if (m->printed++ % 40 == 0)
				printf("%-13s %9s %9s %7s %5s  %s\n", "metric", "best", "median",
				       "spread", "cpu", "case");
			result_row(result, stdout);
		}
	}
	fflush(stdout);
	m->n = 0;
	return ret;
}

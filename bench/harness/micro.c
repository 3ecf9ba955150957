#include "bench/harness/micro.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem/alloc.h"
#include "base/rng.h"
#include "base/stats.h"

#define EVICT_BYTES ((size_t)6 << 20)
#define COPY_BYTES ((size_t)64 << 20)
#define LINE 64u
#define LINE_LOADS 200000u
#define BAR 30u
#define ROW_BYTES 512
#define NS_PER_S 1000000000u

/* -------- arguments -------- */

static void print_help(const struct bench *b)
{
	printf("usage: %s [--full] [--json] [--seed N] [--windows N] [--only TEXT]\n\n%s\n"
	       "  --full       sweep more\n"
	       "  --json       one JSON object a line instead of a table\n"
	       "  --seed N     seed of all random numbers (1)\n"
	       "  --windows N  windows of each case, 5 to %u (15)\n"
	       "  --only TEXT  only cases whose row contains TEXT\n",
	       b->name, b->help, BENCH_WINDOWS_MAX);
	if (b->store)
		printf("  --store URI  the store to measure (%s)\n", b->store);
}

static bool read_number(const char *text, uint64_t *out)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 0);

	if (*text == '\0' || *text == '-' || *end != '\0')
		return false;
	*out = value;
	return true;
}

/* Takes the argument at *i and its value. */
static bool take_argument(struct bench *b, int argc, char **argv, int *i)
{
	const char *arg = argv[*i], *value = *i + 1 < argc ? argv[*i + 1] : NULL;
	uint64_t windows;

	if (strcmp(arg, "--json") == 0 || strcmp(arg, "--full") == 0) {
		b->json |= arg[2] == 'j';
		b->full |= arg[2] == 'f';
		return true;
	}
	if (!value)
		return false;
	++*i;
	if (strcmp(arg, "--only") == 0) {
		b->only = value;
		return true;
	}
	if (b->store && strcmp(arg, "--store") == 0) {
		b->store = value;
		return true;
	}
	if (strcmp(arg, "--seed") == 0)
		return read_number(value, &b->seed);
	if (strcmp(arg, "--windows") != 0 || !read_number(value, &windows))
		return false;
	b->windows = (uint32_t)windows;
	return windows >= 5 && windows <= BENCH_WINDOWS_MAX;
}

bool bench_init(struct bench *b, int argc, char **argv, int *exit_out)
{
	b->seed = 1;
	b->windows = 15;
	b->tty = isatty(STDERR_FILENO);
	for (int i = 1; i < argc; i++) {
		const char *arg = argv[i];

		if (strcmp(arg, "--help") == 0) {
			print_help(b);
			*exit_out = EXIT_SUCCESS;
			return false;
		}
		if (!take_argument(b, argc, argv, &i)) {
			fprintf(stderr, "%s: argument %s: see --help\n", b->name, arg);
			*exit_out = 2;
			return false;
		}
	}
	json_init(&b->out, stdout);
	return true;
}

int bench_finish(struct bench *b, bool ok)
{
	bench_progress(b, 0, 0, "");
	if (b->json && json_finish(&b->out))
		ok = false;
	return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* -------- results -------- */

void bench_windows_add(struct bench_windows *w, double value)
{
	if (w->n < BENCH_WINDOWS_MAX)
		w->value[w->n++] = value;
}

struct summary {
	double best, median, spread, cpu;
};

static struct summary summarise(struct bench_windows *w, bool higher)
{
	struct summary s = { .median = stats_median(w->value, w->n) }; /* sorts */
	double low = w->value[0], high = w->value[w->n - 1];

	s.best = higher ? high : low;
	s.spread = s.median > 0 ? (high - low) / s.median : 0;
	s.cpu = w->wall_ns > 0 ? w->cpu_ns / w->wall_ns : 1;
	return s;
}

static void print_json(struct bench *b, const struct bench_result *r, const struct summary *s)
{
	json_object_begin(&b->out);
	json_put_string(&b->out, "bench", b->name);
	json_put_string(&b->out, "metric", r->metric);
	json_put_double(&b->out, "value", s->best);
	json_put_string(&b->out, "unit", r->unit);
	json_key(&b->out, "params");
	json_object_begin(&b->out);
	for (uint32_t i = 0; i < r->n_params; i++) {
		const struct bench_param *p = &r->params[i];

		if (p->text)
			json_put_string(&b->out, p->key, p->text);
		else if (p->flag)
			json_put_bool(&b->out, p->key, p->number != 0);
		else
			json_put_u64(&b->out, p->key, p->number);
	}
	json_object_end(&b->out);
	json_put_string(&b->out, "commit", RLV_COMMIT);
	json_put_double(&b->out, "best", s->best);
	json_put_double(&b->out, "median", s->median);
	json_put_double(&b->out, "spread", s->spread);
	json_put_double(&b->out, "cpu_per_wall", s->cpu);
	json_object_end(&b->out);
	json_newline(&b->out);
}

/* "key=text", "key=number" or "key" of a parameter that is on; nothing of one that is off. */
static void append_param(char *row, size_t size, const struct bench_param *p)
{
	size_t len = strlen(row);

	if (p->text)
		snprintf(row + len, size - len, " %s=%s", p->key, p->text);
	else if (!p->flag)
		snprintf(row + len, size - len, " %s=%" PRIu64, p->key, p->number);
	else if (p->number)
		snprintf(row + len, size - len, " %s", p->key);
}

static void format_params(const struct bench_result *r, char *row, size_t size)
{
	row[0] = '\0';
	for (uint32_t i = 0; i < r->n_params; i++)
		append_param(row, size, &r->params[i]);
}

bool bench_wants(const struct bench *b, const struct bench_result *result)
{
	char row[ROW_BYTES], text[ROW_BYTES + 64];

	if (!b->only)
		return true;
	format_params(result, row, sizeof(row));
	snprintf(text, sizeof(text), "%s%s", result->metric, row);
	return strstr(text, b->only) != NULL;
}

static void print_row(struct bench *b, const struct bench_result *r, const struct summary *s)
{
	char row[ROW_BYTES];

	if (b->printed++ % 40 == 0)
		printf("%-13s %9s %9s %7s %5s  %s\n", "metric", "best", "median", "spread", "cpu",
		       "case");
	format_params(r, row, sizeof(row));
	printf("%-13s %9.2f %9.2f %6.0f%% %5.2f %s\n", r->metric, s->best, s->median,
	       s->spread * 100, s->cpu, row);
	fflush(stdout);
}

void bench_print(struct bench *b, const struct bench_result *result, struct bench_windows *w)
{
	struct summary s = summarise(w, result->higher);

	bench_progress(b, 0, 0, "");
	if (b->json)
		print_json(b, result, &s);
	else
		print_row(b, result, &s);
}

void bench_progress(struct bench *b, uint32_t done, uint32_t of, const char *what)
{
	uint32_t filled = of ? done * BAR / of : 0;
	int shown = 0;

	if (!b->tty || (of == 0 && b->shown == 0))
		return;
	if (of)
		shown = fprintf(stderr, "\r[%.*s%*s] %3u%% %-24s", (int)filled,
				"##############################", (int)(BAR - filled), "",
				done * 100 / of, what);
	else
		fprintf(stderr, "\r%*s\r", (int)b->shown, "");
	b->shown = shown > 0 ? (uint32_t)shown : 0;
	fflush(stderr);
}

/* -------- time -------- */

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t bench_now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t bench_cpu_ns(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* -------- yardsticks -------- */

void bench_use(uint64_t value)
{
	static _Atomic uint64_t sink;

	atomic_store_explicit(&sink, value, memory_order_relaxed);
}

double bench_line_ns(const void *memory, uint64_t bytes, uint64_t seed)
{
	static uint64_t at[LINE_LOADS];
	uint64_t lines = bytes / LINE, sum = 0, start;
	struct rng rng;

	rng_seed(&rng, seed, 1);
	rng_fill_u64(&rng, at, LINE_LOADS);
	for (uint32_t i = 0; i < LINE_LOADS; i++)
		at[i] = (uint64_t)(((unsigned __int128)at[i] * lines) >> 64) * (LINE / 8);
	start = bench_now_ns();
	for (uint32_t i = 0; i < LINE_LOADS; i++)
		sum += ((const volatile uint64_t *)memory)[at[i]];
	start = bench_now_ns() - start;
	bench_use(sum);
	return (double)start / LINE_LOADS;
}

/* A buffer for the life of the bench. */
static uint8_t *static_pages(struct pages *pages, size_t bytes)
{
	if (!pages->ptr) {
		if (pages_alloc(bytes, PAGE_THP, pages)) {
			fprintf(stderr, "no memory for a buffer of %zu bytes\n", bytes);
			exit(EXIT_FAILURE);
		}
		memset(pages->ptr, 1, bytes);
	}
	return pages->ptr;
}

double bench_memcpy_gbps(void)
{
	static struct pages from, to;
	uint8_t *src = static_pages(&from, COPY_BYTES), *dst = static_pages(&to, COPY_BYTES);
	uint64_t start = bench_now_ns();

	memcpy(dst, src, COPY_BYTES);
	start = bench_now_ns() - start;
	bench_use(dst[start % COPY_BYTES]);
	return (double)COPY_BYTES / (double)start;
}

void bench_evict(void)
{
	static struct pages pages;
	const volatile uint64_t *words = (const void *)static_pages(&pages, EVICT_BYTES);
	uint64_t sum = 0;

	for (size_t i = 0; i < EVICT_BYTES / 8; i += LINE / 8)
		sum += words[i];
	bench_use(sum);
}

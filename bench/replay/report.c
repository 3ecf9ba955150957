#include "bench/replay/report.h"

#include <assert.h>
#include <string.h>

#include "base/bits.h"
#include "bench/harness/result.h"
#include "bench/replay/table.h"
#include "program/text_table.h"
#include "program/units.h"

static const char *const role_names[ROLE_OPS] = { "insert", "sample", "update" };

static const struct {
	const char *name;
	const char *unit;
	bool higher;
} metrics[REPLAY_METRICS] = {
	[REPLAY_ITEMS] = { "items_per_s", "1/s", true },
	[REPLAY_BYTES] = { "bytes_per_s", "B/s", true },
	[REPLAY_CALLS] = { "calls_per_s", "1/s", true },
	[REPLAY_P50] = { "p50_us", "us", false },
	[REPLAY_P99] = { "p99_us", "us", false },
	[REPLAY_ROUND_TRIPS] = { "round_trips_per_op", "1", false },
	[REPLAY_MOVED] = { "bytes_per_op", "B", false },
	[REPLAY_CPU] = { "cpu_per_wall", "1", true },
};

static double best_of(const struct replay_case *c, enum role_op_kind op, enum replay_metric metric)
{
	return series_spread(&c->series[op][metric], metrics[metric].higher).best;
}

/* -------- text -------- */

static void cell_si(struct text_table *table, double value)
{
	char text[UNITS_TEXT_BYTES];

	text_table_cell(table, "%s", units_format_si(value, text));
}

static void cell_number(struct text_table *table, double value)
{
	char text[UNITS_TEXT_BYTES];

	text_table_cell(table, "%s", units_format_number(value, text));
}

static void print_notes(const struct replay_case *c, FILE *file)
{
	struct spread line = series_spread(&c->line_ns, false);
	struct spread copy = series_spread(&c->memcpy_gbps, true);
	double sampled = best_of(c, ROLE_SAMPLE, REPLAY_BYTES) / 1e9;
	char bytes[UNITS_TEXT_BYTES];

	fprintf(file, "  %s: %s", c->config.label, units_format_bytes(c->footprint_bytes, bytes));
	if (c->line_ns.n)
		fprintf(file, ", line %.1f ns", line.best);
	if (c->memcpy_gbps.n)
		fprintf(file, ", memcpy %.2f GB/s of %s", copy.best,
			units_format_bytes(c->batch_bytes, bytes));
	if (c->memcpy_gbps.n && sampled > 0 && c->config.learn == REPLAY_LEARN_SAMPLE)
		fprintf(file, " (sample %.2f of it)", sampled / copy.best);
	if (c->limiter_waits)
		fprintf(file, ", limiter waits %llu (%.1f ms)",
			(unsigned long long)c->limiter_waits, (double)c->limiter_wait_ns / 1e6);
	if (c->stale_updates)
		fprintf(file, ", stale updates dropped %llu", (unsigned long long)c->stale_updates);
	if (c->redraws)
		fprintf(file, ", corrupt reads caught %llu", (unsigned long long)c->redraws);
	if (c->timeouts)
		fprintf(file, ", timeouts %llu", (unsigned long long)c->timeouts);
	fputc('\n', file);
}

int replay_report_text(const struct replay_case *cases, uint32_t n, FILE *file)
{
	struct text_table table;
	int ret;

	text_table_init(
		&table,
		"case|role|>items/s best|>median|>worst|>calls/s|>GB/s|>p50 us|>p99 us|>RT/op|>B/op|>cpu/wall");
	for (uint32_t i = 0; i < n * ROLE_OPS; i++) {
		const struct replay_case *c = &cases[i / ROLE_OPS];
		enum role_op_kind op = (enum role_op_kind)(i % ROLE_OPS);
		struct spread items = series_spread(&c->series[op][REPLAY_ITEMS], true);

		if (c->series[op][REPLAY_ITEMS].n == 0)
			continue;
		text_table_cell(&table, "%s", c->config.label);
		text_table_cell(&table, "%s", role_names[op]);
		cell_si(&table, items.best);
		cell_si(&table, items.median);
		cell_si(&table, items.min);
		cell_si(&table, best_of(c, op, REPLAY_CALLS));
		cell_number(&table, best_of(c, op, REPLAY_BYTES) / 1e9);
		cell_number(&table, best_of(c, op, REPLAY_P50));
		cell_number(&table, best_of(c, op, REPLAY_P99));
		cell_number(&table,
			    series_spread(&c->series[op][REPLAY_ROUND_TRIPS], false).median);
		cell_si(&table, series_spread(&c->series[op][REPLAY_MOVED], false).median);
		cell_number(&table, series_spread(&c->series[op][REPLAY_CPU], true).median);
		text_table_row(&table);
	}
	ret = text_table_print(&table, file);
	text_table_fini(&table);
	for (uint32_t i = 0; i < n && ret == 0; i++)
		print_notes(&cases[i], file);
	return ret;
}

/* -------- JSON -------- */

/* An empty result with the parameters of a case; role NULL = for a metric of the whole case. */
static struct result case_result(const struct replay_case *c, const char *store, const char *role)
{
	const struct replay_config *config = &c->config;
	const char *initial = replay_config_gives_priorities(config) ? "given" : "max";
	const struct param all[] = {
		{ .key = "role", .text = role },
		{ .key = "case", .text = config->label },
		{ .key = "store", .text = store },
		{ .key = config->trace ? "trace" : "shape",
		  .text = config->trace ? config->trace : config->shape },
		{ .key = "actors", .number = config->actors },
		{ .key = "learners", .number = config->learners },
		{ .key = "loop", .number = config->loop, .kind = PARAM_FLAG },
		{ .key = "shards", .number = config->shards },
		{ .key = "capacity", .number = config->capacity },
		{ .key = "batch", .number = config->batch },
		{ .key = "insert_batch", .number = config->insert_batch },
		{ .key = "envs", .number = config->envs },
		{ .key = "initial", .text = initial },
		{ .key = "block", .number = config->block },
		{ .key = "stack", .number = config->stack },
		{ .key = "n_step", .number = config->n_step },
		{ .key = "layout", .text = config->layout == RLV_WINDOW ? "window" : "dense" },
		{ .key = "inflight", .number = config->inflight },
		{ .key = "rate", .real = config->rate, .kind = PARAM_REAL },
		{ .key = "spi", .real = config->spi, .kind = PARAM_REAL },
		{ .key = "windows", .number = config->windows },
		{ .key = "seed", .number = config->seed },
	};
	struct result result = { 0 };
	size_t skip = role ? 0 : 1;

	static_assert(ARRAY_LEN(all) < RESULT_PARAMS, "a parameter without a key ends the list");
	memcpy(result.params, all + skip, sizeof(all) - skip * sizeof(*all));
	return result;
}

static void put_figure(struct json *json, struct result *result, const char *metric,
		       const char *unit, const struct series *series)
{
	result->metric = metric;
	result->unit = unit;
	result->series = *series;
	result_json(json, "replay", result);
}

void replay_report_json(const struct replay_case *c, const char *store, struct json *json)
{
	const struct {
		const char *metric;
		uint64_t value;
	} totals[] = { { "limiter_waits", c->limiter_waits },
		       { "stale_updates", c->stale_updates },
		       { "redraws", c->redraws } };
	struct result result;

	for (int op = 0; op < ROLE_OPS; op++) {
		result = case_result(c, store, role_names[op]);
		for (int m = 0; m < REPLAY_METRICS; m++) {
			result.higher = metrics[m].higher;
			put_figure(json, &result, metrics[m].name, metrics[m].unit,
				   &c->series[op][m]);
		}
	}
	result = case_result(c, store, NULL);
	for (size_t i = 0; i < ARRAY_LEN(totals); i++) {
		const struct series series = { .n = 1, .value = { (double)totals[i].value } };

		put_figure(json, &result, totals[i].metric, "1", &series);
	}
	put_figure(json, &result, "calib_line_ns", "ns", &c->line_ns);
	result.higher = true;
	put_figure(json, &result, "memcpy_gbps", "GB/s", &c->memcpy_gbps);
}

/* -------- two cases -------- */

static void put_ratio(struct json *json, struct result result, const struct series *ratio)
{
	struct interval interval = series_interval(ratio);
	const struct {
		const char *metric;
		double value;
	} ends[] = { { "items_ratio_low", interval.low }, { "items_ratio_high", interval.high } };

	result.higher = true;
	put_figure(json, &result, "items_ratio", "1", ratio);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		const struct series series = { .n = 1, .value = { ends[i].value } };

		put_figure(json, &result, ends[i].metric, "1", &series);
	}
}

void replay_report_ratio(const struct replay_case cases[2], const char *store, FILE *file,
			 struct json *json)
{
	for (int op = 0; op < ROLE_OPS; op++) {
		struct series ratio = series_ratio(&cases[0].series[op][REPLAY_ITEMS],
						   &cases[1].series[op][REPLAY_ITEMS]);
		struct interval interval = series_interval(&ratio);

		if (ratio.n == 0)
			continue;
		if (json)
			put_ratio(json, case_result(&cases[1], store, role_names[op]), &ratio);
		else
			fprintf(file,
				"  %s: %.3f times the items/s, 95 %% [%.3f, %.3f], %u pairs\n",
				role_names[op], interval.median, interval.low, interval.high,
				ratio.n);
	}
}

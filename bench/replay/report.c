#include "bench/replay/report.h"

#include <math.h>
#include <string.h>

#include "base/bits.h"
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

struct spread series_spread(const struct series *series, bool higher_is_better)
{
	struct spread spread = { (double)NAN, (double)NAN, (double)NAN, (double)NAN };
	double sorted[SERIES_MAX];

	if (series->n == 0)
		return spread;
	memcpy(sorted, series->value, series->n * sizeof(*sorted));
	spread.median = stats_median(sorted, series->n);
	spread.min = sorted[0];
	spread.max = sorted[0];
	for (uint32_t i = 1; i < series->n; i++) {
		spread.min = fmin(spread.min, sorted[i]);
		spread.max = fmax(spread.max, sorted[i]);
	}
	spread.best = higher_is_better ? spread.max : spread.min;
	return spread;
}

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

static void print_op(const struct replay_case *c, enum role_op_kind op, struct text_table *table)
{
	struct spread items = series_spread(&c->series[op][REPLAY_ITEMS], true);

	if (c->series[op][REPLAY_ITEMS].n == 0)
		return;
	text_table_cell(table, "%s", c->config.label);
	text_table_cell(table, "%s", role_names[op]);
	cell_si(table, items.best);
	cell_si(table, items.median);
	cell_si(table, items.min);
	cell_si(table, best_of(c, op, REPLAY_CALLS));
	cell_number(table, best_of(c, op, REPLAY_BYTES) / 1e9);
	cell_number(table, best_of(c, op, REPLAY_P50));
	cell_number(table, best_of(c, op, REPLAY_P99));
	cell_number(table, series_spread(&c->series[op][REPLAY_ROUND_TRIPS], false).median);
	cell_si(table, series_spread(&c->series[op][REPLAY_MOVED], false).median);
	cell_number(table, series_spread(&c->series[op][REPLAY_CPU], true).median);
	text_table_row(table);
}

static void print_notes(const struct replay_case *c, FILE *file)
{
	struct spread line = series_spread(&c->line_ns, false);
	struct spread copy = series_spread(&c->memcpy_gbps, true);
	double sampled = best_of(c, ROLE_SAMPLE, REPLAY_BYTES) / 1e9;
	char bytes[UNITS_TEXT_BYTES];

	fprintf(file, "  %s: %s, line %.1f ns", c->config.label,
		units_format_bytes(c->footprint_bytes, bytes), line.best);
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
	for (uint32_t i = 0; i < n; i++) {
		for (int op = 0; op < ROLE_OPS; op++)
			print_op(&cases[i], (enum role_op_kind)op, &table);
	}
	ret = text_table_print(&table, file);
	text_table_fini(&table);
	for (uint32_t i = 0; i < n && ret == 0; i++)
		print_notes(&cases[i], file);
	return ret;
}

/* -------- JSON -------- */

struct line {
	const struct replay_case *c;
	const char *store;
	const char *role; /* NULL for yardsticks */
	const char *metric;
	const char *unit;
	bool higher;
};

static void params(struct json *json, const struct line *line)
{
	const struct replay_config *config = &line->c->config;

	json_key(json, "params");
	json_object_begin(json);
	if (line->role)
		json_put_string(json, "role", line->role);
	json_put_string(json, "case", config->label);
	json_put_string(json, "store", line->store);
	json_put_string(json, config->trace ? "trace" : "shape",
			config->trace ? config->trace : config->shape);
	json_put_u64(json, "actors", config->actors);
	json_put_u64(json, "learners", config->learners);
	json_put_bool(json, "loop", config->loop);
	json_put_u64(json, "shards", config->shards);
	json_put_u64(json, "capacity", config->capacity);
	json_put_u64(json, "batch", config->batch);
	json_put_u64(json, "insert_batch", config->insert_batch);
	json_put_u64(json, "envs", config->envs);
	json_put_string(json, "initial", replay_config_gives_priorities(config) ? "given" : "max");
	json_put_u64(json, "block", config->block);
	json_put_u64(json, "stack", config->stack);
	json_put_u64(json, "n_step", config->n_step);
	json_put_string(json, "layout", config->layout == RLV_WINDOW ? "window" : "dense");
	json_put_u64(json, "inflight", config->inflight);
	json_put_u64(json, "defer", config->defer);
	json_put_double(json, "rate", config->rate);
	json_put_double(json, "spi", config->spi);
	json_put_u64(json, "windows", config->windows);
	json_put_u64(json, "seed", config->seed);
	json_object_end(json);
}

static void put_line(struct json *json, const struct line *line, const struct series *series)
{
	struct spread spread = series_spread(series, line->higher);

	if (series->n == 0)
		return;
	json_object_begin(json);
	json_put_string(json, "bench", "replay");
	json_put_string(json, "metric", line->metric);
	json_put_double(json, "value", spread.best);
	json_put_string(json, "unit", line->unit);
	params(json, line);
	json_put_string(json, "commit", RLV_COMMIT);
	json_put_double(json, "best", spread.best);
	json_put_double(json, "median", spread.median);
	json_put_double(json, "min", spread.min);
	json_put_double(json, "max", spread.max);
	json_object_end(json);
	json_newline(json);
}

static void put_total(struct json *json, struct line line, const char *metric, uint64_t value)
{
	struct series series = { .n = 1, .value = { (double)value } };

	line.metric = metric;
	line.unit = "1";
	line.higher = false;
	line.role = NULL;
	put_line(json, &line, &series);
}

void replay_report_json(const struct replay_case *c, const char *store, struct json *json)
{
	struct line line = { .c = c, .store = store };

	for (int op = 0; op < ROLE_OPS; op++) {
		for (int m = 0; m < REPLAY_METRICS; m++) {
			line.role = role_names[op];
			line.metric = metrics[m].name;
			line.unit = metrics[m].unit;
			line.higher = metrics[m].higher;
			put_line(json, &line, &c->series[op][m]);
		}
	}
	put_total(json, line, "limiter_waits", c->limiter_waits);
	put_total(json, line, "stale_updates", c->stale_updates);
	put_total(json, line, "redraws", c->redraws);
	line = (struct line){ c, store, NULL, "calib_line_ns", "ns", false };
	put_line(json, &line, &c->line_ns);
	line = (struct line){ c, store, NULL, "memcpy_gbps", "GB/s", true };
	put_line(json, &line, &c->memcpy_gbps);
}

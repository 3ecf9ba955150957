#include "bench/harness/result.h"

#include <inttypes.h>
#include <string.h>

/* (max - min) / median; 0 if the median is 0. */
static double spread_relative(const struct spread *spread)
{
	return spread->median > 0 ? (spread->max - spread->min) / spread->median : 0;
}

void result_params_json(struct json *json, const struct param *params, size_t n)
{
	for (const struct param *p = params; p < params + n && p->key; p++) {
		if (p->text)
			json_put_string(json, p->key, p->text);
		else if (p->kind == PARAM_FLAG)
			json_put_bool(json, p->key, p->number != 0);
		else if (p->kind == PARAM_REAL)
			json_put_double(json, p->key, p->real);
		else
			json_put_u64(json, p->key, p->number);
	}
}

void result_json(struct json *json, const char *bench, const struct result *result)
{
	const struct series *series = &result->series;
	struct spread spread = series_spread(series, result->higher);

	if (series->n == 0)
		return;
	json_object_begin(json);
	json_put_string(json, "bench", bench);
	json_put_string(json, "metric", result->metric);
	json_put_double(json, "value", spread.best);
	json_put_string(json, "unit", result->unit);
	json_key(json, "params");
	json_object_begin(json);
	result_params_json(json, result->params, RESULT_PARAMS);
	json_object_end(json);
	json_put_string(json, "commit", RLV_COMMIT);
	json_put_double(json, "best", spread.best);
	json_put_double(json, "median", spread.median);
	json_put_double(json, "min", spread.min);
	json_put_double(json, "max", spread.max);
	json_put_double(json, "spread", spread_relative(&spread));
	if (series->wall_ns > 0)
		json_put_double(json, "cpu_per_wall", series->cpu_ns / series->wall_ns);
	json_object_end(json);
	json_newline(json);
}

const char *result_params_text(const struct result *result, char text[RESULT_ROW_BYTES])
{
	size_t len = 0;

	text[0] = '\0';
	for (const struct param *p = result->params; p->key; p++, len = strlen(text)) {
		if (p->text)
			snprintf(text + len, RESULT_ROW_BYTES - len, " %s=%s", p->key, p->text);
		else if (p->kind != PARAM_FLAG)
			snprintf(text + len, RESULT_ROW_BYTES - len, " %s=%" PRIu64, p->key,
				 p->number);
		else if (p->number)
			snprintf(text + len, RESULT_ROW_BYTES - len, " %s", p->key);
	}
	return text;
}

void result_row(const struct result *result, FILE *file)
{
	const struct series *series = &result->series;
	struct spread s = series_spread(series, result->higher);
	char row[RESULT_ROW_BYTES], cpu[16] = "-";

	if (series->wall_ns > 0)
		snprintf(cpu, sizeof(cpu), "%.2f", series->cpu_ns / series->wall_ns);
	fprintf(file, "%-13s %9.2f %9.2f %6.0f%% %5s %s\n", result->metric, s.best, s.median,
		spread_relative(&s) * 100, cpu, result_params_text(result, row));
}

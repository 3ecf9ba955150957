#include "bench/harness/result.h"

double spread_relative(const struct spread *spread)
{
	return spread->median > 0 ? (spread->max - spread->min) / spread->median : 0;
}

static void put_param(struct json *json, const struct param *param)
{
	if (param->text)
		json_put_string(json, param->key, param->text);
	else if (param->kind == PARAM_FLAG)
		json_put_bool(json, param->key, param->number != 0);
	else if (param->kind == PARAM_REAL)
		json_put_double(json, param->key, param->real);
	else
		json_put_u64(json, param->key, param->number);
}

void result_json(struct json *json, const char *bench, const struct result *result,
		 const struct series *series)
{
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
	for (uint32_t i = 0; i < result->n_params; i++)
		put_param(json, &result->params[i]);
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

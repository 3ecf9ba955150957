/*
 * result.h - a measured value with its parameters, as a JSON object on a line.
 */
#ifndef RLV_BENCH_HARNESS_RESULT_H
#define RLV_BENCH_HARNESS_RESULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "bench/harness/series.h"

enum param_kind { PARAM_NUMBER, PARAM_FLAG, PARAM_REAL };

/* A parameter of a case. text NULL = use value. */
struct param {
	const char *key;
	const char *text;
	uint64_t number;
	double real;
	enum param_kind kind;
};

struct result {
	const char *metric;
	const char *unit;
	bool higher; /* larger values are better */
	const struct param *params;
	uint32_t n_params;
};

/*
 * {"bench","metric","value","unit","params","commit","best","median","min","max","spread"} and
 * "cpu_per_wall" if measured; value is the best, spread (max - min) / median. An empty series
 * prints nothing. json keeps the first error.
 */
void result_json(struct json *json, const char *bench, const struct result *result,
		 const struct series *series);

/* Relative to the median; 0 if the median is 0. */
double spread_relative(const struct spread *spread);

#endif

/*
 * result.h - a measured value with its parameters, as a JSON object on a line.
 */
#ifndef RLV_BENCH_HARNESS_RESULT_H
#define RLV_BENCH_HARNESS_RESULT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/json.h"
#include "bench/harness/series.h"

enum param_kind { PARAM_NUMBER, PARAM_FLAG, PARAM_REAL };

/* A parameter of a case, or a member of what a command prints. text NULL: number or real. */
struct param {
	const char *key;
	const char *text;
	uint64_t number;
	double real;
	enum param_kind kind;
};

#define RESULT_PARAMS 24u

struct result {
	const char *metric;
	const char *unit;
	bool higher;                        /* larger values are better */
	struct param params[RESULT_PARAMS]; /* up to the first without a key */
	struct series series;
};

/*
 * {"bench","metric","value","unit","params","commit","best","median","min","max","spread"} and
 * "cpu_per_wall" if measured; value is the best, spread (max - min) / median. An empty series
 * prints nothing. json keeps the first error.
 */
void result_json(struct json *json, const char *bench, const struct result *result);

/* Adds n parameters, or those up to one without a key, to the open object. */
void result_params_json(struct json *json, const struct param *params, size_t n);

/* Prints a result as a row of text: "metric best median spread cpu key=text ..". */
void result_row(const struct result *result, FILE *file);

/*
 * Parameters as text: each " key=text", " key=number", or " key" of a set flag; an unset flag is
 * left out.
 */
#define RESULT_ROW_BYTES 512
const char *result_params_text(const struct result *result, char text[RESULT_ROW_BYTES]);

#endif

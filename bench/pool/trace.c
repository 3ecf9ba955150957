#include "bench/pool/trace.h"

#include <string.h>

#include "base/bits.h"
#include "bench/pool/lines.h"

#define NS_MOST 1e15 /* eleven days */
#define BYTES_MOST 1e15

static int trace_header(const struct lines *lines, struct trace *trace_out, double *points_out)
{
	double period = 0, persistent = 0;
	int ret = lines_number(lines, 3, "period", (double[]){ CURVE_BINS, NS_MOST }, &period);

	if (ret == 0)
		ret = lines_number(lines, 4, "persistent bytes", (double[]){ 0, BYTES_MOST },
				   &persistent);
	if (ret == 0)
		ret = lines_number(lines, 5, "number of points", (double[]){ 1, 1e7 }, points_out);
	if (ret)
		return ret;
	if (strlen(lines->fields[1]) >= TRACE_NAME_BYTES)
		return lines_error(lines, "the name has more than %d bytes", TRACE_NAME_BYTES - 1);
	(void)snprintf(trace_out->name, sizeof(trace_out->name), "%s", lines->fields[1]);
	trace_out->persistent = (uint64_t)persistent;
	curve_begin(&trace_out->curve, (uint64_t)period);
	return 0;
}

static int trace_points(struct lines *lines, struct trace *trace, uint64_t n)
{
	double from = 0, held = 0, at = 0, bytes = 0;

	for (uint64_t i = 0; i < n; i++) {
		int ret = lines_next(lines);

		if (ret == 0)
			return lines_error(lines, "trace %s ends after %u of its points",
					   trace->name, (unsigned)i);
		if (ret == 1)
			ret = lines_number(lines, 0, "time",
					   (double[]){ from, (double)trace->curve.period_ns }, &at);
		if (ret == 0)
			ret = lines_number(lines, 1, "bytes", (double[]){ 0, BYTES_MOST }, &bytes);
		if (ret < 0)
			return ret;
		curve_add(&trace->curve, (uint64_t)from, (uint64_t)at, (uint64_t)held);
		from = at;
		held = bytes;
	}
	curve_add(&trace->curve, (uint64_t)from, trace->curve.period_ns, (uint64_t)held);
	return 0;
}

int traces_read(const char *path, struct traces *traces_out)
{
	struct lines lines;
	int ret = lines_open(&lines, path, ' ');

	traces_out->n = 0;
	while (ret == 0) {
		struct trace *trace = &traces_out->traces[traces_out->n];
		double points = 0;

		ret = lines_next(&lines);
		if (ret <= 0)
			break;
		if (strcmp(lines.fields[0], "trace") != 0 || traces_out->n == TRACES_MOST)
			ret = lines_error(&lines, "expected one of at most %u lines: trace NAME ..",
					  TRACES_MOST);
		else
			ret = trace_header(&lines, trace, &points);
		if (ret == 0)
			ret = trace_points(&lines, trace, (uint64_t)points);
		traces_out->n += ret == 0;
	}
	if (ret == 0 && traces_out->n == 0)
		ret = lines_error(&lines, "no trace");
	lines_close(&lines);
	return ret;
}

const struct trace *traces_find(const struct traces *traces, const char *name)
{
	for (uint32_t i = 0; i < traces->n; i++) {
		if (strcmp(traces->traces[i].name, name) == 0)
			return &traces->traces[i];
	}
	return NULL;
}

void trace_scaled(const struct trace *trace, double period_ns, double peak, struct curve *curve_out)
{
	double by = peak / (double)max_u64(trace->curve.peak, 1);

	curve_begin(curve_out, max_u64((uint64_t)period_ns, CURVE_BINS));
	for (unsigned bin = 0; bin < CURVE_BINS; bin++) {
		curve_out->bins[bin] = (uint64_t)((double)trace->curve.bins[bin] * by);
		curve_out->peak = max_u64(curve_out->peak, curve_out->bins[bin]);
	}
}

/*
 * trace.h - recorded memory of iterations: files of tools/record-trace.
 *
 *   trace NAME DEVICE PERIOD_NS PERSISTENT_BYTES POINTS
 *   NS BYTES                            from then on so many bytes beside the persistent ones
 */
#ifndef RLV_BENCH_POOL_TRACE_H
#define RLV_BENCH_POOL_TRACE_H

#include "base/error.h"
#include "device/curve.h"

#define TRACES_MOST 16u
#define TRACE_NAME_BYTES 24

struct trace {
	char name[TRACE_NAME_BYTES];
	uint64_t persistent;
	struct curve curve;
};

struct traces {
	uint32_t n;
	struct trace traces[TRACES_MOST];
};

/* Reads all traces of a file. -EINVAL: a bad line, named; -ENOENT and the like. */
RLV_MUST_CHECK int traces_read(const char *path, struct traces *traces_out);

/* NULL: none has that name. */
const struct trace *traces_find(const struct traces *traces, const char *name);

/* The trace's shape with another period and peak. */
void trace_scaled(const struct trace *trace, double period_ns, double peak,
		  struct curve *curve_out);

#endif

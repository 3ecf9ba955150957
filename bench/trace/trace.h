/*
 * trace.h - recorded experience, read from a trace file (docs/trace-format.md).
 *
 * A trace has the steps of a real agent: columns of fixed shape, and the flags, priority and policy
 * version of each row, all as arrays over the rows of the recording:
 *
 *   row        0      1      2    ..    n-1           n       n+1    ..
 *   content    step   step   step       step          final   step
 *   flags      FIRST  0      0          TERMINATED    FINAL   FIRST
 *   episode    |------------------ 0 ------------------|      |---- 1
 *
 * Each episode is one or more steps, the first flagged FIRST and the last TERMINATED and/or
 * TRUNCATED, then one FINAL row with only the observation after the last step. trace_load rejects
 * any other file, so readers need not check.
 *
 * The file is not trusted: no input makes these functions crash, hang, read out of bounds or
 * allocate more than deflate's largest ratio (about 1032) times its size.
 *
 * Life: trace_open -> trace_info, trace_columns -> trace_load -> data -> trace_close.
 */
#ifndef RLV_BENCH_TRACE_TRACE_H
#define RLV_BENCH_TRACE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define TRACE_MAX_DIMS 4
#define TRACE_MAX_COLUMNS 64
#define TRACE_MAX_FILE_BYTES (UINT64_C(1) << 30)
#define TRACE_MAX_DATA_BYTES (UINT64_C(1) << 33) /* inflated, all columns together */

enum trace_flag {
	TRACE_FIRST = 1,      /* first step of its episode */
	TRACE_TERMINATED = 2, /* the step ended the episode: no return follows it */
	TRACE_TRUNCATED = 4,  /* last recorded step of an episode that continues */
	TRACE_FINAL = 8,      /* not a step: the observation after the episode's last step */
	TRACE_FLAGS = 15,
};

struct trace;

struct trace_info {
	uint64_t rows; /* steps + episodes: one final row per episode */
	uint64_t steps;
	uint64_t episodes;
	uint64_t seed;       /* of the recorder */
	uint64_t data_bytes; /* of all columns, inflated */
	uint64_t file_bytes;
	const char *env;      /* id of the environment, printable ASCII */
	const char *versions; /* "package version; ..", printable ASCII */
};

/* One column of the signature. */
struct trace_column {
	const char *name;  /* [a-z][a-z0-9_]* */
	const char *dtype; /* as numpy writes it: |b1 |u1 |i1 <u2 <i2 <f2 <u4 <i4 <f4 <u8 <i8 <f8 */
	uint32_t item_bytes;
	uint32_t ndim; /* 0 = a scalar per row */
	uint32_t shape[TRACE_MAX_DIMS];
	uint64_t row_bytes; /* item_bytes times the product of the shape */
	const void *data;   /* rows * row_bytes, row after row; NULL before trace_load */
};

/* Per-row data of the trace; the arrays have info.rows elements. */
struct trace_rows {
	const uint16_t *flags;          /* of enum trace_flag */
	const float *priority;          /* |TD error|, finite and >= 0; 0 in a final row */
	const uint32_t *policy_version; /* version of the policy that chose the action */
	const uint64_t *episode_row;    /* info.episodes + 1: first row of each, then info.rows */
};

/*
 * Reads the file into memory and checks its header and framing; inflates nothing. -EPROTO: not a
 * trace, another version, or broken framing; -EBADMSG: a checksum; -EOVERFLOW: too large; -EINVAL:
 * not a regular file; -ENOMEM; errors of open(2) and read(2). Thread: any.
 */
int trace_open(const char *path, struct trace **trace_out) RLV_MUST_CHECK;

/* The same from memory, which is copied; name replaces the path in messages. */
int trace_open_bytes(const char *name, const void *bytes, size_t size, struct trace **trace_out)
	RLV_MUST_CHECK;

/* Both valid until trace_close. */
const struct trace_info *trace_info(const struct trace *trace);
const struct trace_column *trace_columns(const struct trace *trace, size_t *count_out);

/*
 * Inflates all columns and checks checksums, episodes and priorities. A second call is a no-op.
 * After an error the trace is unchanged. -EBADMSG, -EPROTO, -ENOMEM. Thread: owner.
 */
int trace_load(struct trace *trace) RLV_MUST_CHECK;

/* NULL before trace_load. */
const struct trace_rows *trace_rows(const struct trace *trace);

/* Frees everything and sets *trace to NULL; NULL is a no-op. */
void trace_close(struct trace **trace);

#endif

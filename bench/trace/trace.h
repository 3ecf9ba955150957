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
 * TRUNCATED, then one FINAL row with only the observation after the last step. trace_open rejects
 * any other file, so readers need not check.
 *
 * The file is not trusted: no input makes these functions crash, hang, read out of bounds or
 * allocate more than deflate's largest ratio (about 1032) times its size.
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

enum trace_role {
	TRACE_ROLE_COLUMN, /* of the signature */
	TRACE_ROLE_FLAGS,
	TRACE_ROLE_PRIORITY,
	TRACE_ROLE_VERSION,
	TRACE_ROLES,
};

#define TRACE_ENV_BYTES 64
#define TRACE_VERSIONS_BYTES 192
#define TRACE_NAME_BYTES 32
#define TRACE_DTYPE_BYTES 8

struct trace_column {
	char name[TRACE_NAME_BYTES + 1]; /* see base/column_name.h */
	/* As numpy writes it: |b1 |u1 |i1 <u2 <i2 <f2 <u4 <i4 <f4 <u8 <i8 <f8. */
	char dtype[TRACE_DTYPE_BYTES + 1];
	uint8_t role;   /* enum trace_role */
	uint8_t filter; /* sum of enum trace_filter */
	uint32_t item_bytes;
	uint32_t ndim; /* 0 = a scalar per row */
	uint32_t shape[TRACE_MAX_DIMS];
	uint32_t row_bytes; /* item_bytes times the product of the shape */
	void *data;         /* rows * row_bytes, row after row */
};

struct trace {
	uint64_t rows; /* > 0, = steps + episodes: one final row per episode */
	uint64_t steps;
	uint64_t episodes;
	uint64_t seed;       /* of the recorder */
	uint64_t data_bytes; /* of all columns, inflated; at most TRACE_MAX_DATA_BYTES */
	uint64_t file_bytes;
	char env[TRACE_ENV_BYTES + 1];           /* id of the environment, printable ASCII */
	char versions[TRACE_VERSIONS_BYTES + 1]; /* "package version; ..", printable ASCII */

	uint32_t header_bytes;
	uint32_t chunk_rows;
	uint32_t n_columns; /* those of the signature, and one of each other role */
	struct trace_column columns[TRACE_MAX_COLUMNS];

	/* The columns with other roles, rows elements each. */
	const uint16_t *flags;          /* of enum trace_flag */
	const float *priority;          /* |TD error|, finite and >= 0; 0 in a final row */
	const uint32_t *policy_version; /* version of the policy that chose the action */
	uint64_t *episode_row;          /* episodes + 1: first row of each, then rows */
};

/*
 * Reads, inflates and checks the whole file. -EPROTO: not a trace, another version, or rows that
 * are not whole episodes; -EBADMSG: a checksum; -EOVERFLOW: too large; -EINVAL: not a regular file;
 * -ENOMEM; errors of open(2) and read(2). Thread: any.
 */
int trace_open(const char *path, struct trace **trace_out) RLV_MUST_CHECK;

/* As trace_open, for a file whose bytes are in memory, which are borrowed until return; name
   replaces the path in messages. */
int trace_open_bytes(const char *name, const void *bytes, size_t size, struct trace **trace_out)
	RLV_MUST_CHECK;

/* Frees everything and sets *trace to NULL; NULL is a no-op. */
void trace_close(struct trace **trace);

#endif

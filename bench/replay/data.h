/*
 * data.h - the rows that actors append cyclically, prepared before the clock starts: a recorded
 * trace, or generated episodes of a shape.
 */
#ifndef RLV_BENCH_REPLAY_DATA_H
#define RLV_BENCH_REPLAY_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "relive/relive.h"

#include "base/error.h"
#include "bench/replay/pattern.h"
#include "program/shape.h"

struct trace;

struct replay_data {
	struct shape shape;
	uint64_t rows;
	uint8_t *column[RLV_MAX_COLUMNS];
	uint16_t *flags;          /* of enum rlv_step_flags */
	double *td_error;         /* from the recording, or random */
	uint32_t *policy_version; /* not falling */
	uint64_t *starts;         /* rows that begin an episode */
	uint64_t n_starts;
	struct trace *trace;
	uint8_t *memory; /* of the arrays that are not the trace's */
};

/* Reads the rows of the file `trace`, or if that is NULL makes random episodes of `shape`.
   -EINVAL: no such shape, or a column that is not supported; -ENOMEM; errors of trace_open. */
int replay_data_open(const char *trace, const char *shape, uint64_t seed,
		     struct replay_data *data_out) RLV_MUST_CHECK;
void replay_data_close(struct replay_data *data);

/*
 * The rows of *from for a vector of environments: rows t * envs .. + envs - 1 are one step of each.
 * Each environment starts at another episode; its last row ends one. Borrows the names of columns.
 * -ENOMEM.
 */
int replay_data_vector(const struct replay_data *from, uint32_t envs, struct replay_data *data_out)
	RLV_MUST_CHECK;

/* Rows for one appender in turn: those of the data from `at` on, or of the pattern of --check. */
struct replay_feed {
	const struct replay_data *data;
	uint64_t at;     /* next row */
	uint64_t number; /* of the next pattern row */
	bool patterned;
	struct pattern_rows made;
	const void *columns[RLV_MAX_COLUMNS];
};

/* Points *steps to the next n rows, fewer at the end of the data; valid until the next call. */
void replay_feed_next(struct replay_feed *feed, uint32_t n, struct rlv_steps *steps);

/* Moves the feed on by n rows, which were appended; at the end of the data to its first row. */
void replay_feed_advance(struct replay_feed *feed, uint32_t n);

#endif

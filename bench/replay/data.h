/*
 * data.h - the rows that actors append cyclically, prepared before the clock starts: a recorded
 * trace, or generated episodes of a shape.
 */
#ifndef RLV_BENCH_REPLAY_DATA_H
#define RLV_BENCH_REPLAY_DATA_H

#include <stdint.h>

#include "base/error.h"
#include "program/shape.h"

struct trace;

struct replay_data {
	struct shape shape;
	uint64_t rows;
	const uint8_t *column[RLV_MAX_COLUMNS];
	const uint16_t *flags;          /* of enum rlv_step_flags */
	const double *td_error;         /* from the recording, or random */
	const uint32_t *policy_version; /* not falling */
	const uint64_t *starts;         /* rows that begin an episode */
	uint64_t n_starts;
	struct trace *trace;
	uint8_t *memory; /* data not owned by the trace */
};

/* -EINVAL, -ENOMEM, errors of trace_open and trace_load. */
int replay_data_open(const char *trace, const char *shape, uint64_t seed,
		     struct replay_data *data_out) RLV_MUST_CHECK;
void replay_data_close(struct replay_data *data);

/*
 * The same rows for a vector of environments: rows t * envs .. + envs - 1 are one step of each.
 * Each environment starts at another episode; its last row ends one. -ENOMEM.
 */
int replay_data_vector(const struct replay_data *from, uint32_t envs, struct replay_data *data_out)
	RLV_MUST_CHECK;

#endif

/*
 * learner.h - samples batches, updates their priorities and, with --check, checks each byte.
 */
#ifndef RLV_BENCH_REPLAY_LEARNER_H
#define RLV_BENCH_REPLAY_LEARNER_H

#include "bench/replay/role.h"

#define LEARNER_MAX_HELD 64

struct learner {
	struct role *role;
	struct rlv_sampler *sampler;
	struct pattern_view view;
	const struct rlv_batch *held[LEARNER_MAX_HELD]; /* a ring of `inflight` batches */
	uint64_t loops;
	float *td; /* values for updates, used in turn: TD_VALUES + batch of them */
	struct rlv_stats before;
};

int learner_open(struct learner *learner, struct role *role, struct rlv_table *table)
	RLV_MUST_CHECK;
void learner_close(struct learner *learner);

void learner_window_begin(struct learner *learner);
int learner_window_end(struct learner *learner) RLV_MUST_CHECK;

/* One sample and its update. */
int learner_step(struct learner *learner) RLV_MUST_CHECK;

#endif

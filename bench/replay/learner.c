#include "bench/replay/role.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "base/rng.h"
#include "bench/replay/case.h"

#define TD_VALUES 65536
#define COUNTED_EVERY 64 /* round trips are read from the counters once in so many operations */
#define GAMMA 0.99

int learner_open(struct role *role)
{
	const struct replay_config *config = &role->of->config;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	struct learner *learner = &role->learner;
	struct rng rng;
	int ret;

	learner->view = (struct pattern_view){ &role->of->data->shape, config->stack,
					       config->n_step, GAMMA };
	learner->td = mem_array(TD_VALUES + config->batch, sizeof(float));
	if (!learner->td)
		return role_fail(role, -ENOMEM, "TD errors");
	/* |TD errors| in order: from the recording, else exponentially distributed. */
	rng_seed(&rng, config->seed, 0x7d00 + role->worker.index);
	for (uint32_t i = 0; i < TD_VALUES + config->batch; i++)
		learner->td[i] =
			(float)role->of->data->td_error[rng_uniform_u64(&rng, role->of->data->rows)];
	opts.batch_size = config->batch;
	opts.n_step = config->n_step;
	opts.gamma = GAMMA;
	opts.layout = config->layout;
	opts.batches = config->inflight + 1;
	opts.seed = config->seed * 1000 + role->worker.index + 1;
	ret = rlv_sampler_open(role->table, &opts, &learner->sampler);
	return ret ? role_fail(role, ret, "open a sampler") : 0;
}

void learner_close(struct role *role)
{
	role_closed(role, rlv_sampler_close(&role->learner.sampler), "close the sampler");
	mem_free(role->learner.td);
}

/* Adds one call to the counted ones, with the round trips and bytes since *last, which becomes
   now. */
static int learner_count(struct role *role, struct rlv_stats *last, enum role_op_kind kind)
{
	struct rlv_stats now;
	int ret = role_stats(role, kind, &now);

	if (ret)
		return ret;
	role_count(&role->slot->window.op[kind], 1, &now, last);
	*last = now;
	return 0;
}

/* Bytes that a sample writes into the batch; views of the same memory count once. */
static uint64_t batch_bytes(const struct rlv_batch *batch, bool windows)
{
	uint64_t sum = batch->n * (sizeof(*batch->key) + sizeof(float) * 2 + sizeof(double) + 4);

	for (uint32_t a = 0; a < batch->n_arrays; a++) {
		const struct rlv_array *array = &batch->arrays[a];
		const struct rlv_array *last = a ? array - 1 : NULL;
		char next[RLV_NAME_BYTES + 8];

		snprintf(next, sizeof(next), "next_%s", last ? last->name : "");
		if (windows && last && strcmp(array->name, next) == 0)
			continue;
		/* Strided views of one window array: the item stride covers obs and next_obs. */
		sum += (uint64_t)array->strides[0] * batch->n;
	}
	return sum;
}

static void check_batch(struct role *role, const struct rlv_batch *batch)
{
	struct role_slot *slot = role->slot;
	char why[PATTERN_WHY_BYTES];
	uint32_t wrong = pattern_check(&role->learner.view, batch, slot->classes, why);

	slot->window.items_checked += batch->n;
	if (wrong && slot->window.items_wrong == 0)
		snprintf(role->worker.slot->why, PATTERN_WHY_BYTES, "%s", why);
	slot->window.items_wrong += wrong;
	pattern_update(batch, role->learner.td);
}

/* Records a call of n items that began at start: its latency and the counts. */
static void learner_record(struct role *role, enum role_op_kind kind, uint64_t start, uint32_t n)
{
	struct role_op *op = &role->slot->window.op[kind];

	stats_hist_record(&op->latency_ns, clock_now_ns(clock_monotonic()) - start);
	op->calls++;
	op->items += n;
	stats_counter_add(&role->slot->live[kind], n);
}

int learner_step(struct role *role)
{
	const struct replay_config *config = &role->of->config;
	struct learner *learner = &role->learner;
	bool counted = role->slot->window.op[ROLE_SAMPLE].calls % COUNTED_EVERY == 0;
	bool updates = config->learn == REPLAY_LEARN_BOTH;
	const float *td = learner->td + (config->check ? 0 : learner->loops * 997 % TD_VALUES);
	const struct rlv_batch *batch;
	struct rlv_stats last;
	uint64_t start;
	uint32_t at;
	int ret = counted ? role_stats(role, ROLE_SAMPLE, &last) : 0;

	if (ret)
		return ret;
	start = clock_now_ns(clock_monotonic());
	ret = rlv_sampler_sample(learner->sampler, config->batch, 100 * CLOCK_NS_PER_MS, &batch);
	if (ret == -ETIMEDOUT) {
		role->slot->window.timeouts++;
		return 0;
	}
	if (ret)
		return role_fail(role, ret, "sample");
	learner_record(role, ROLE_SAMPLE, start, batch->n);
	if (role->slot->batch_bytes == 0)
		role->slot->batch_bytes = batch_bytes(batch, config->layout == RLV_WINDOW);
	if (counted)
		ret = learner_count(role, &last, ROLE_SAMPLE);
	if (config->check)
		check_batch(role, batch);
	if (ret == 0 && updates) {
		start = clock_now_ns(clock_monotonic());
		ret = rlv_sampler_update(learner->sampler, batch->key, td, batch->n, NULL);
		if (ret)
			role_fail(role, ret, "update");
		else
			learner_record(role, ROLE_UPDATE, start, batch->n);
	}
	if (ret == 0 && updates && counted)
		ret = learner_count(role, &last, ROLE_UPDATE);
	/* The newest `inflight` batches are held. */
	at = (uint32_t)(learner->loops++ % config->inflight);
	rlv_batch_release(learner->sampler, learner->held[at]);
	learner->held[at] = batch;
	return ret;
}

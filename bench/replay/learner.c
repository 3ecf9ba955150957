#include "bench/replay/learner.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"
#include "base/rng.h"

#define TD_VALUES 65536
#define COUNTED_EVERY 64 /* round trips are read from the counters once in so many operations */
#define GAMMA 0.99

/* |TD errors| in order: from the recording, else exponentially distributed. */
static int make_td(struct learner *learner)
{
	const struct replay_config *config = learner->role->config;
	const struct replay_data *data = learner->role->data;
	struct rng rng;

	learner->td = mem_array(TD_VALUES + config->batch, sizeof(float));
	if (!learner->td)
		return role_fail(learner->role, -ENOMEM, "TD errors");
	rng_seed(&rng, config->seed, 0x7d00 + learner->role->worker.index);
	for (uint32_t i = 0; i < TD_VALUES + config->batch; i++)
		learner->td[i] = (float)data->td_error[rng_uniform_u64(&rng, data->rows)];
	return 0;
}

int learner_open(struct learner *learner, struct role *role, struct rlv_table *table)
{
	const struct replay_config *config = role->config;
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	int ret;

	memset(learner, 0, sizeof(*learner));
	learner->role = role;
	learner->view.shape = &role->data->shape;
	learner->view.stack = config->stack;
	learner->view.n_step = config->n_step;
	learner->view.gamma = GAMMA;
	ret = make_td(learner);
	if (ret)
		return ret;
	opts.batch_size = config->batch;
	opts.n_step = config->n_step;
	opts.gamma = GAMMA;
	opts.layout = config->layout;
	opts.batches = config->inflight + 1;
	opts.defer_updates = config->defer;
	opts.seed = config->seed * 1000 + role->worker.index + 1;
	opts.independent = config->independent;
	ret = rlv_sampler_open(table, &opts, &learner->sampler);
	return ret ? role_fail(role, ret, "open a sampler") : 0;
}

void learner_close(struct learner *learner)
{
	int ret = rlv_sampler_close(&learner->sampler);

	if (ret && ret != -ESTALE && !role_failed(learner->role))
		role_fail(learner->role, ret, "close the sampler");
	mem_free(learner->td);
}

void learner_window_begin(struct learner *learner)
{
	learner->before.size = sizeof(learner->before);
	if (rlv_sampler_stats(learner->sampler, &learner->before))
		memset(&learner->before, 0, sizeof(learner->before));
}

int learner_window_end(struct learner *learner)
{
	struct role_window *window = &learner->role->slot->window;
	struct rlv_stats now = { .size = sizeof(now) };
	int ret = rlv_sampler_stats(learner->sampler, &now);

	if (ret)
		return role_fail(learner->role, ret, "counters of the sampler");
	window->stale_updates = now.stale_updates - learner->before.stale_updates;
	window->redraws = now.redraws - learner->before.redraws;
	window->limiter_waits += now.limiter_waits - learner->before.limiter_waits;
	window->limiter_wait_ns += now.limiter_wait_ns - learner->before.limiter_wait_ns;
	return 0;
}

/* Add the round trips and bytes since the last call to op. */
static int learner_count(struct learner *learner, struct rlv_stats *last, struct role_op *op)
{
	struct rlv_stats now = { .size = sizeof(now) };
	int ret = rlv_sampler_stats(learner->sampler, &now);

	if (ret)
		return role_fail(learner->role, ret, "counters of the sampler");
	if (op) {
		op->counted++;
		op->phases += now.phases - last->phases;
		op->moved_bytes +=
			now.read_bytes + now.write_bytes - last->read_bytes - last->write_bytes;
	}
	*last = now;
	return 0;
}

/* Bytes that a sample writes; views of the same memory count once. */
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

static void check_batch(struct learner *learner, const struct rlv_batch *batch)
{
	struct role_slot *slot = learner->role->slot;
	char why[PATTERN_WHY_BYTES];
	uint32_t wrong = pattern_check(&learner->view, batch, slot->classes, why);

	slot->window.items_checked += batch->n;
	if (wrong && slot->window.items_wrong == 0)
		snprintf(learner->role->worker.slot->why, PATTERN_WHY_BYTES, "%s", why);
	slot->window.items_wrong += wrong;
	pattern_update(&learner->view, batch, learner->td);
}

static int learner_update(struct learner *learner, const struct rlv_batch *batch)
{
	struct role_op *op = &learner->role->slot->window.op[ROLE_UPDATE];
	bool checked = learner->role->config->check;
	const float *td = learner->td + (checked ? 0 : learner->loops * 997 % TD_VALUES);
	uint64_t start = clock_now_ns(clock_monotonic());
	int ret = rlv_sampler_update(learner->sampler, batch->key, td, batch->n, NULL);

	if (ret)
		return role_fail(learner->role, ret, "update");
	stats_hist_record(&op->latency_ns, clock_now_ns(clock_monotonic()) - start);
	op->calls++;
	op->items += batch->n;
	stats_counter_add(&learner->role->slot->live[ROLE_UPDATE], batch->n);
	return 0;
}

static int learner_sample(struct learner *learner, const struct rlv_batch **batch_out)
{
	const struct replay_config *config = learner->role->config;
	struct role_slot *slot = learner->role->slot;
	struct role_op *op = &slot->window.op[ROLE_SAMPLE];
	uint64_t start = clock_now_ns(clock_monotonic());
	int ret = rlv_sampler_sample(learner->sampler, config->batch, 100 * CLOCK_NS_PER_MS,
				     batch_out);

	if (ret == -ETIMEDOUT) {
		slot->window.timeouts++;
		return ret;
	}
	if (ret)
		return role_fail(learner->role, ret, "sample");
	stats_hist_record(&op->latency_ns, clock_now_ns(clock_monotonic()) - start);
	op->calls++;
	op->items += (*batch_out)->n;
	stats_counter_add(&slot->live[ROLE_SAMPLE], (*batch_out)->n);
	if (slot->batch_bytes == 0)
		slot->batch_bytes = batch_bytes(*batch_out, config->layout == RLV_WINDOW);
	return 0;
}

int learner_step(struct learner *learner)
{
	const struct replay_config *config = learner->role->config;
	struct role_window *window = &learner->role->slot->window;
	bool counted = window->op[ROLE_SAMPLE].calls % COUNTED_EVERY == 0;
	const struct rlv_batch *batch;
	struct rlv_stats last = { .size = sizeof(last) };
	uint32_t at;
	int ret = counted ? learner_count(learner, &last, NULL) : 0;

	if (ret == 0)
		ret = learner_sample(learner, &batch);
	if (ret)
		return ret == -ETIMEDOUT ? 0 : ret;
	if (counted)
		ret = learner_count(learner, &last, &window->op[ROLE_SAMPLE]);
	if (config->check)
		check_batch(learner, batch);
	if (ret == 0 && config->learn == REPLAY_LEARN_BOTH)
		ret = learner_update(learner, batch);
	if (ret == 0 && counted && config->learn == REPLAY_LEARN_BOTH)
		ret = learner_count(learner, &last, &window->op[ROLE_UPDATE]);
	/* The newest `inflight` batches are held. */
	at = (uint32_t)(learner->loops++ % config->inflight);
	rlv_batch_release(learner->sampler, learner->held[at]);
	learner->held[at] = batch;
	return ret;
}

/*
 * learner.c - a job of the device pool: its weights, its batches and what an update needs lie there.
 */
#include "cli/demo/loop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "relive/landing.h"

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "base/os/clock.h"

#define WAIT_NS (500 * CLOCK_NS_PER_MS) /* then it looks whether it is to stop */
#define PUBLISH_EVERY 20                /* updates */

/* Arrays of a batch, in the order of the signature. */
enum { OBS, NEXT_OBS, ACTION, REWARD, DISCOUNT };

struct learner {
	struct rlv_pool *pool;
	uint32_t stream;
	struct rlv_landing *landing;
	struct rlv_sampler *sampler;
	struct network_learner network;
	uint64_t version;
};

/* Weights and moments: tensors that stay. */
static int learner_tensors(struct learner *learner, uint32_t policy)
{
	struct network_learner *network = &learner->network;
	float **const arrays[] = { &network->online, &network->target, &network->gradient,
				   &network->mean, &network->square };
	struct rng rng;
	int ret = 0;

	for (size_t i = 0; i < ARRAY_LEN(arrays) && ret == 0; i++) {
		void *tensor = NULL;

		ret = rlv_pool_alloc(learner->pool, RLV_POOL_PERSISTENT,
				     NETWORK_WEIGHTS * sizeof(float), learner->stream, &tensor);
		if (ret == 0)
			memset(tensor, 0, NETWORK_WEIGHTS * sizeof(float));
		*arrays[i] = tensor;
	}
	if (ret)
		return ret;
	rng_seed(&rng, 7, policy);
	network_init(network->online, &rng);
	memcpy(network->target, network->online, NETWORK_WEIGHTS * sizeof(float));
	return 0;
}

static int learner_publish(struct loop_role *role, struct learner *learner)
{
	const struct rlv_tensor tensor = loop_tensor(learner->network.online);

	return loop_role_failed(
		role, rlv_weights_publish(role->weights, &tensor, 1, ++learner->version, 0),
		"publish weights");
}

static int learner_open(struct worker *worker)
{
	struct loop_role *role = (struct loop_role *)worker;
	struct rlv_pool_opts pool = RLV_POOL_OPTS_INIT;
	struct rlv_landing_opts landing = RLV_LANDING_OPTS_INIT;
	struct rlv_sampler_opts sampler = RLV_SAMPLER_OPTS_INIT;
	struct learner *learner = role->own = mem_zalloc(sizeof(*learner));
	char name[RLV_NAME_BYTES];
	int ret;

	if (!learner)
		return worker_fail(worker, -ENOMEM, "start", "");
	ret = loop_role_open(role);
	if (ret)
		return ret;
	snprintf(name, sizeof(name), LOOP_JOB "%u", role->policy);
	pool.persistent_bytes = LOOP_STAYS;
	pool.iteration_bytes = LOOP_ITERATION;
	ret = rlv_pool_open(LOOP_POOL, name, &pool, &learner->pool);
	if (ret == 0)
		ret = rlv_pool_stream(learner->pool, NULL, &learner->stream);
	if (ret == 0)
		ret = learner_tensors(learner, role->policy);
	landing.pool = learner->pool;
	if (ret == 0)
		ret = rlv_landing_open(&landing, &learner->landing);
	sampler.batch_size = NETWORK_BATCH;
	sampler.n_step = LOOP_N_STEP;
	sampler.gamma = LOOP_GAMMA;
	sampler.dest = learner->landing;
	if (ret == 0)
		ret = rlv_sampler_open(role->table, &sampler, &learner->sampler);
	if (ret)
		return worker_fail(worker, ret, "open a pool and a sampler", rlv_last_error());
	return learner_publish(role, learner);
}

static void learner_close(struct worker *worker)
{
	struct loop_role *role = (struct loop_role *)worker;
	struct learner *learner = role->own;
	int ret, closed;

	if (learner) {
		ret = rlv_sampler_close(&learner->sampler);
		closed = rlv_landing_close(&learner->landing);
		ret = ret ? ret : closed;
		closed = rlv_pool_close(&learner->pool);
		ret = ret ? ret : closed;
		if (ret && !worker->slot->error)
			(void)worker_fail(worker, ret, "leave the pool", rlv_last_error());
	}
	loop_role_close(role);
	mem_free(learner);
}

/* An iteration of the job, under the gate: what it needs is there only meanwhile. */
static int learner_iterate(struct learner *learner, const struct rlv_batch *from, float *td_error)
{
	const struct rlv_array *arrays = from->arrays;
	const struct network_batch batch = {
		.n = from->n,
		.obs = arrays[OBS].data,
		.next_obs = arrays[NEXT_OBS].data,
		.action = arrays[ACTION].data,
		.reward = arrays[REWARD].data,
		.discount = arrays[DISCOUNT].data,
		.weight = from->weight,
	};
	void *room;
	int ret = rlv_pool_iteration_begin(learner->pool, WAIT_NS), ended;

	if (ret)
		return ret;
	ret = rlv_pool_alloc(learner->pool, RLV_POOL_ITERATION, sizeof(struct network_room),
			     learner->stream, &room);
	if (ret == 0) {
		network_update(&learner->network, &batch, room, td_error);
		ret = rlv_pool_free(learner->pool, room, sizeof(struct network_room));
	}
	ended = rlv_pool_iteration_end(learner->pool);
	return ret ? ret : ended;
}

static void learner_show(struct loop_role *role, struct learner *learner, uint32_t n)
{
	struct rlv_stats stats = { .size = sizeof(stats) };

	/* relaxed: figures for display */
	atomic_fetch_add_explicit(&role->gauge->steps, n, memory_order_relaxed);
	atomic_store_explicit(&role->gauge->updates, learner->network.updates,
			      memory_order_relaxed);
	if (learner->network.updates % PUBLISH_EVERY == 0 &&
	    rlv_sampler_stats(learner->sampler, &stats) == 0 && stats.items)
		atomic_store_explicit(&role->gauge->staleness, stats.staleness * 1000 / stats.items,
				      memory_order_relaxed);
}

static int learner_step(struct worker *worker)
{
	struct loop_role *role = (struct loop_role *)worker;
	struct learner *learner = role->own;
	const struct rlv_batch *batch = NULL;
	float td_error[NETWORK_BATCH];
	uint32_t n;
	int ret = rlv_sampler_sample(learner->sampler, NETWORK_BATCH, WAIT_NS, &batch);

	if (ret)
		return loop_role_failed(role, ret, "sample");
	n = batch->n;
	ret = batch->n_arrays > DISCOUNT ? learner_iterate(learner, batch, td_error) : -EPROTO;
	if (ret == 0)
		ret = rlv_sampler_update(learner->sampler, batch->key, td_error, n, NULL);
	rlv_batch_release(learner->sampler, batch);
	if (ret)
		return loop_role_failed(role, ret, "learn");
	learner_show(role, learner, n);
	return learner->network.updates % PUBLISH_EVERY ? 0 : learner_publish(role, learner);
}

const struct worker_ops loop_learner_ops = {
	.open = learner_open,
	.begin = loop_role_begin,
	.step = learner_step,
	.end = loop_role_end,
	.close = learner_close,
};

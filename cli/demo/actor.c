/*
 * actor.c - steps environments by the newest weights of its policy, and appends each step.
 */
#include "cli/demo/loop.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/os/clock.h"

#define APPEND_NS (500 * CLOCK_NS_PER_MS) /* then it looks whether it is to stop */
#define FETCH_EVERY 5                     /* rounds of all environments */
#define EXPLORE_STEPS 4000.0              /* until it follows the policy */
#define EXPLORE_LEAST 0.02
#define LAST_EPISODES 20u

struct actor {
	struct rlv_writer *writer;
	struct rng rng;
	struct cartpole poles[LOOP_ENVS];
	float weights[NETWORK_WEIGHTS];
	struct network_pass pass;
	uint64_t version, rounds;
	uint64_t returns[LAST_EPISODES], episodes;
	/* The steps to append next. */
	float obs[LOOP_ENVS][CARTPOLE_INPUTS], reward[LOOP_ENVS];
	int64_t action[LOOP_ENVS];
	uint16_t flags[LOOP_ENVS];
	enum cartpole_end end[LOOP_ENVS];
	bool taken; /* they are there: an append that timed out is made again */
};

static int actor_open(struct worker *worker)
{
	struct loop_role *role = (struct loop_role *)worker;
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct actor *actor = role->own = mem_zalloc(sizeof(*actor));
	int ret = actor ? loop_role_open(role) : worker_fail(worker, -ENOMEM, "start", "");

	if (ret)
		return ret;
	rng_seed(&actor->rng, 1, worker->index);
	network_init(actor->weights, &actor->rng);
	for (uint32_t i = 0; i < LOOP_ENVS; i++)
		cartpole_reset(&actor->poles[i], &actor->rng);
	opts.streams = LOOP_ENVS;
	opts.timeout_ns = APPEND_NS;
	ret = rlv_writer_open(role->table, &opts, &actor->writer);
	return ret ? worker_fail(worker, ret, "open a writer", rlv_last_error()) : 0;
}

static void actor_close(struct worker *worker)
{
	struct loop_role *role = (struct loop_role *)worker;
	struct actor *actor = role->own;
	int ret = actor ? rlv_writer_close(&actor->writer) : 0;

	if (ret && !worker->slot->error)
		(void)worker_fail(worker, ret, "close the writer", rlv_last_error());
	loop_role_close(role);
	mem_free(actor);
}

/* Takes the newest weights, if there are newer ones. */
static int actor_fetch(struct loop_role *role, struct actor *actor)
{
	struct rlv_generation generation = RLV_GENERATION_INIT;
	struct rlv_weights_info info = RLV_WEIGHTS_INFO_INIT;
	const struct rlv_tensor into = loop_tensor(actor->weights);
	int ret = rlv_weights_info(role->weights, &info);

	if (ret == 0)
		/* relaxed: a figure for display */
		atomic_store_explicit(&role->gauge->publish_lag, info.publish_lag,
				      memory_order_relaxed);
	if (ret == 0 && info.version > actor->version)
		ret = rlv_weights_fetch(role->weights, actor->version, 0, &generation);
	if (ret || info.version <= actor->version)
		return loop_role_failed(role, ret, "fetch weights");
	ret = rlv_generation_copy(&generation, &into, 1);
	actor->version = generation.version;
	rlv_generation_release(&generation);
	return loop_role_failed(role, ret, "copy weights");
}

static void episode_ended(struct loop_role *role, struct actor *actor, uint32_t steps)
{
	uint64_t n = actor->episodes < LAST_EPISODES ? actor->episodes + 1 : LAST_EPISODES, sum = 0;

	actor->returns[actor->episodes++ % LAST_EPISODES] = steps;
	for (uint64_t i = 0; i < n; i++)
		sum += actor->returns[i];
	/* relaxed: figures for display */
	atomic_store_explicit(&role->gauge->mean_return, sum * 1000 / n, memory_order_relaxed);
	atomic_store_explicit(&role->gauge->episodes, actor->episodes, memory_order_relaxed);
}

static void take_steps(struct loop_role *role, struct actor *actor)
{
	double explore = 1 - (double)(actor->rounds * LOOP_ENVS) / EXPLORE_STEPS;

	explore = explore > EXPLORE_LEAST ? explore : EXPLORE_LEAST;
	for (uint32_t i = 0; i < LOOP_ENVS; i++)
		memcpy(actor->obs[i], actor->poles[i].state, sizeof(actor->obs[i]));
	network_forward(actor->weights, actor->obs[0], LOOP_ENVS, &actor->pass);
	for (uint32_t i = 0; i < LOOP_ENVS; i++) {
		actor->action[i] = rng_uniform_double(&actor->rng) < explore
					   ? (int64_t)rng_uniform_u64(&actor->rng, CARTPOLE_ACTIONS)
					   : network_best(&actor->pass, i);
		actor->end[i] = cartpole_step(&actor->poles[i], actor->action[i]);
		actor->flags[i] = actor->end[i] == CARTPOLE_FELL ? RLV_TERMINATED : 0;
		actor->reward[i] = 1;
		if (actor->end[i] != CARTPOLE_GOES_ON)
			episode_ended(role, actor, actor->poles[i].steps);
	}
	actor->taken = true;
	actor->rounds++;
}

/*
 * Ends the episodes that are over: one that ended by time has a last observation, and is worth more than what
 * was seen. What is left after an error is ended by the next call.
 */
static int end_episodes(struct actor *actor)
{
	for (uint32_t i = 0; i < LOOP_ENVS; i++) {
		const void *columns[] = { actor->poles[i].state, &actor->action[i],
					  &actor->reward[i] };
		struct rlv_steps last = RLV_STEPS_INIT;
		int ret = 0;

		if (actor->end[i] == CARTPOLE_GOES_ON)
			continue;
		last.n = 1;
		last.columns = columns;
		if (actor->end[i] == CARTPOLE_TIMED_OUT)
			ret = rlv_writer_end_episode(actor->writer, i, &last);
		if (ret)
			return ret;
		actor->end[i] = CARTPOLE_GOES_ON;
		cartpole_reset(&actor->poles[i], &actor->rng);
	}
	return 0;
}

static int actor_step(struct worker *worker)
{
	struct loop_role *role = (struct loop_role *)worker;
	struct actor *actor = role->own;
	const void *columns[] = { actor->obs, actor->action, actor->reward };
	struct rlv_steps steps = RLV_STEPS_INIT;
	int ret = 0;

	if (!actor->taken) {
		ret = end_episodes(actor);
		if (ret)
			return loop_role_failed(role, ret, "end an episode");
		if (actor->rounds % FETCH_EVERY == 0)
			ret = actor_fetch(role, actor);
		if (ret)
			return ret;
		take_steps(role, actor);
	}
	steps.n = LOOP_ENVS;
	steps.columns = columns;
	steps.flags = actor->flags;
	steps.policy_version = (uint32_t)actor->version;
	ret = rlv_writer_append_vector(actor->writer, &steps);
	if (ret)
		return loop_role_failed(role, ret, "append");
	actor->taken = false;
	/* relaxed: a figure for display */
	atomic_fetch_add_explicit(&role->gauge->steps, LOOP_ENVS, memory_order_relaxed);
	return 0;
}

const struct worker_ops loop_actor_ops = {
	.open = actor_open,
	.begin = loop_role_begin,
	.step = actor_step,
	.end = loop_role_end,
	.close = actor_close,
};

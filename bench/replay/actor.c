#include "bench/replay/role.h"

#include <errno.h>
#include <time.h>

#include "base/os/clock.h"
#include "bench/replay/case.h"

#define TIMED_EVERY 8 /* reading the clock twice costs 1/30 of the shortest append */

int actor_open(struct role *role)
{
	const struct replay_config *config = &role->of->config;
	const struct replay_data *data = config->envs > 1 ? &role->of->vector : role->of->data;
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct actor *actor = &role->actor;
	int ret;

	actor->feed = (struct replay_feed){
		.data = data,
		.at = data->starts[(uint64_t)role->worker.index * data->n_starts / config->actors],
		.number = pattern_first(role->worker.index + 1),
		.patterned = config->check,
	};
	if (config->check &&
	    pattern_rows_open(&actor->feed.made, &data->shape, config->insert_batch))
		return role_fail(role, -ENOMEM, "rows of a pattern");
	opts.streams = config->envs;
	opts.timeout_ns = 100 * CLOCK_NS_PER_MS;
	ret = rlv_writer_open(role->table, &opts, &actor->writer);
	return ret ? role_fail(role, ret, "open a writer") : 0;
}

void actor_close(struct role *role)
{
	role_closed(role, rlv_writer_close(&role->actor.writer), "close the writer");
	pattern_rows_close(&role->actor.feed.made);
}

/* Sleeps until the next append is due; if it is more than 100 ms late, skips the lost time. Sets
   the time of the append after it. */
static void actor_pace(struct actor *actor, const struct replay_config *config, uint32_t steps)
{
	uint64_t now = clock_now_ns(clock_monotonic());

	if (actor->due_ns > now) {
		struct timespec due = { .tv_sec = (time_t)(actor->due_ns / 1000000000),
					.tv_nsec = (long)(actor->due_ns % 1000000000) };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
	} else if (now - actor->due_ns > (uint64_t)(100 * CLOCK_NS_PER_MS)) {
		actor->due_ns = now;
	}
	actor->due_ns += (uint64_t)(steps * 1e9 * config->actors / config->rate);
}

int actor_step(struct role *role)
{
	const struct replay_config *config = &role->of->config;
	struct role_op *op = &role->slot->window.op[ROLE_INSERT];
	struct actor *actor = &role->actor;
	struct rlv_steps steps = RLV_STEPS_INIT;
	bool timed = op->calls % TIMED_EVERY == 0, vector = config->envs > 1;
	uint64_t start = 0;
	uint32_t done = 0;
	int ret;

	replay_feed_next(&actor->feed, vector ? config->envs : config->insert_batch, &steps);
	if (!replay_config_gives_priorities(config))
		steps.td_error = NULL;
	if (config->rate > 0)
		actor_pace(actor, config, steps.n);
	if (timed)
		start = clock_now_ns(clock_monotonic());
	if (vector) {
		ret = rlv_writer_append_vector(actor->writer, &steps);
		done = ret ? 0 : steps.n;
	} else {
		ret = rlv_writer_append(actor->writer, 0, &steps, &done);
	}
	if (timed)
		stats_hist_record(&op->latency_ns, clock_now_ns(clock_monotonic()) - start);
	op->calls++;
	if (ret == -ETIMEDOUT) {
		role->slot->window.timeouts++;
		ret = 0;
	}
	op->items += done;
	stats_counter_add(&role->slot->live[ROLE_INSERT], done);
	replay_feed_advance(&actor->feed, done);
	return ret ? role_fail(role, ret, "append") : 0;
}

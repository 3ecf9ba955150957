#include "bench/replay/actor.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"

#define TIMED_EVERY 8 /* reading the clock twice costs 1/30 of the shortest append */

int actor_open(struct actor *actor, struct role *role, struct rlv_table *table)
{
	const struct replay_config *config = role->config;
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	int ret;

	memset(actor, 0, sizeof(*actor));
	actor->role = role;
	actor->gives_priorities = replay_config_gives_priorities(config);
	actor->data = config->envs > 1 ? role->vector : role->data;
	actor->at =
		actor->data->starts[(uint64_t)role->actor * actor->data->n_starts / config->actors];
	if (config->check) {
		if (pattern_rows_open(&actor->made, &actor->data->shape, config->insert_batch))
			return role_fail(role, -ENOMEM, "rows of a pattern");
		actor->number = pattern_first(role->actor + 1);
	}
	opts.streams = config->envs;
	opts.timeout_ns = 100 * CLOCK_NS_PER_MS;
	ret = rlv_writer_open(table, &opts, &actor->writer);
	return ret ? role_fail(role, ret, "open a writer") : 0;
}

void actor_close(struct actor *actor)
{
	int ret = rlv_writer_close(&actor->writer);

	/* If the bench has dropped the table, the actor did not fail. */
	if (ret && ret != -ESTALE && !role_failed(actor->role))
		role_fail(actor->role, ret, "close the writer");
	pattern_rows_close(&actor->made);
}

void actor_window_begin(struct actor *actor)
{
	actor->before.size = sizeof(actor->before);
	if (rlv_writer_stats(actor->writer, &actor->before))
		memset(&actor->before, 0, sizeof(actor->before));
	actor->due_ns = clock_now_ns(clock_monotonic());
}

int actor_window_end(struct actor *actor)
{
	struct role_window *window = &actor->role->slot->window;
	struct role_op *op = &window->op[ROLE_INSERT];
	struct rlv_stats now = { .size = sizeof(now) };
	int ret = rlv_writer_stats(actor->writer, &now);

	if (ret)
		return role_fail(actor->role, ret, "counters of the writer");
	op->counted = now.calls - actor->before.calls;
	op->phases = now.phases - actor->before.phases;
	op->moved_bytes = now.read_bytes + now.write_bytes - actor->before.read_bytes -
			  actor->before.write_bytes;
	window->limiter_waits += now.limiter_waits - actor->before.limiter_waits;
	window->limiter_wait_ns += now.limiter_wait_ns - actor->before.limiter_wait_ns;
	return 0;
}

/* Sleep until the next append is due; if very late, skip the lost time. */
static void actor_pace(struct actor *actor, uint32_t steps)
{
	const struct replay_config *config = actor->role->config;
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

/* The next rows. columns: room for those of the data. */
static void actor_next_rows(struct actor *actor, struct rlv_steps *steps, const void **columns)
{
	const struct replay_config *config = actor->role->config;
	const struct replay_data *data = actor->data;
	uint32_t n = config->insert_batch;

	if (config->check) {
		pattern_rows_fill(&actor->made, &data->shape, actor->number, n, steps);
		return;
	}
	for (uint32_t c = 0; c < data->shape.n_columns; c++)
		columns[c] = data->column[c] + actor->at * data->shape.bytes[c];
	steps->n = config->envs > 1 ? config->envs : (uint32_t)min_u64(n, data->rows - actor->at);
	steps->columns = columns;
	steps->flags = data->flags + actor->at;
	steps->td_error = actor->gives_priorities ? data->td_error + actor->at : NULL;
	steps->policy_version = data->policy_version[actor->at];
}

static int actor_append(struct actor *actor, const struct rlv_steps *steps, uint32_t *done_out)
{
	int ret;

	if (actor->role->config->envs == 1)
		return rlv_writer_append(actor->writer, 0, steps, done_out);
	ret = rlv_writer_append_vector(actor->writer, steps);
	*done_out = ret ? 0 : steps->n;
	return ret;
}

int actor_step(struct actor *actor)
{
	struct role_op *op = &actor->role->slot->window.op[ROLE_INSERT];
	struct rlv_steps steps = RLV_STEPS_INIT;
	const void *columns[RLV_MAX_COLUMNS];
	bool timed = op->calls % TIMED_EVERY == 0;
	uint64_t start = 0;
	uint32_t done = 0;
	int ret;

	actor_next_rows(actor, &steps, columns);
	if (actor->role->config->rate > 0)
		actor_pace(actor, steps.n);
	if (timed)
		start = clock_now_ns(clock_monotonic());
	ret = actor_append(actor, &steps, &done);
	if (timed)
		stats_hist_record(&op->latency_ns, clock_now_ns(clock_monotonic()) - start);
	op->calls++;
	if (ret == -ETIMEDOUT) {
		actor->role->slot->window.timeouts++;
		ret = 0;
	}
	op->items += done;
	stats_counter_add(&actor->role->slot->live[ROLE_INSERT], done);
	actor->number += done;
	actor->at += done;
	if (actor->at >= actor->data->rows)
		actor->at = 0;
	return ret ? role_fail(actor->role, ret, "append") : 0;
}

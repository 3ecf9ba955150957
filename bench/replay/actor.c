#include "bench/replay/actor.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"

#define WAIT_NS (100 * CLOCK_NS_PER_MS)
#define TIMED_EVERY 8 /* reading the clock twice costs 1/30 of the shortest append */
#define LATE_NS (100 * CLOCK_NS_PER_MS)

static int open_pattern(struct actor *actor)
{
	const struct replay_config *config = actor->role->config;
	const struct shape *shape = &actor->data->shape;

	for (uint32_t c = 0; c < shape->n_columns; c++) {
		actor->made[c] = mem_array(config->insert_batch, shape->bytes[c]);
		if (!actor->made[c])
			return role_fail(actor->role, -ENOMEM, "rows of a pattern");
	}
	actor->made_flags = mem_array(config->insert_batch, sizeof(*actor->made_flags));
	actor->made_td = mem_array(config->insert_batch, sizeof(*actor->made_td));
	if (!actor->made_flags || !actor->made_td)
		return role_fail(actor->role, -ENOMEM, "rows of a pattern");
	actor->number = pattern_first(actor->role->actor + 1);
	return 0;
}

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
		ret = open_pattern(actor);
		if (ret)
			return ret;
	}
	opts.streams = config->envs;
	opts.timeout_ns = WAIT_NS;
	ret = rlv_writer_open(table, &opts, &actor->writer);
	return ret ? role_fail(role, ret, "open a writer") : 0;
}

void actor_close(struct actor *actor)
{
	int ret = rlv_writer_close(&actor->writer);

	/* If the bench has dropped the table, the actor did not fail. */
	if (ret && ret != -ESTALE && !role_failed(actor->role))
		role_fail(actor->role, ret, "close the writer");
	for (uint32_t c = 0; c < RLV_MAX_COLUMNS; c++)
		mem_free(actor->made[c]);
	mem_free(actor->made_flags);
	mem_free(actor->made_td);
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
	} else if (now - actor->due_ns > (uint64_t)LATE_NS) {
		actor->due_ns = now;
	}
	actor->due_ns += (uint64_t)(steps * 1e9 * config->actors / config->rate);
}

/* Next rows; returns their number. */
static uint32_t actor_next_rows(struct actor *actor, struct rlv_steps *steps, const void **columns)
{
	const struct replay_config *config = actor->role->config;
	const struct replay_data *data = actor->data;
	uint32_t n = config->insert_batch;

	steps->columns = columns;
	if (config->check) {
		pattern_fill(&data->shape, actor->number, n, actor->made);
		for (uint32_t i = 0; i < n; i++) {
			actor->made_flags[i] = pattern_flags(actor->number + i);
			actor->made_td[i] = pattern_td(actor->number + i);
		}
		for (uint32_t c = 0; c < data->shape.n_columns; c++)
			columns[c] = actor->made[c];
		steps->flags = actor->made_flags;
		steps->td_error = actor->made_td;
		return n;
	}
	n = config->envs > 1 ? config->envs : (uint32_t)min_u64(n, data->rows - actor->at);
	for (uint32_t c = 0; c < data->shape.n_columns; c++)
		columns[c] = data->column[c] + actor->at * data->shape.bytes[c];
	steps->flags = data->flags + actor->at;
	steps->td_error = actor->gives_priorities ? data->td_error + actor->at : NULL;
	steps->policy_version = data->policy_version[actor->at];
	return n;
}

static void actor_advance(struct actor *actor, uint32_t n)
{
	struct role_op *op = &actor->role->slot->window.op[ROLE_INSERT];

	actor->number += n;
	actor->at += n;
	if (actor->at >= actor->data->rows)
		actor->at = 0;
	op->items += n;
	stats_counter_add(&actor->role->slot->live[ROLE_INSERT], n);
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

	steps.n = actor_next_rows(actor, &steps, columns);
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
	actor_advance(actor, done);
	return ret ? role_fail(actor->role, ret, "append") : 0;
}

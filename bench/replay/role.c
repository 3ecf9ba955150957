#include "bench/replay/role.h"

#include <errno.h>
#include <string.h>

#include "base/os/clock.h"
#include "bench/replay/case.h"

int role_fail(struct role *role, int code, const char *what)
{
	return worker_fail(&role->worker, code, what, rlv_last_error());
}

/* -ESTALE is not recorded: the bench has dropped the table. */
void role_closed(struct role *role, int code, const char *what)
{
	if (code && code != -ESTALE && !role->worker.slot->error)
		role_fail(role, code, what);
}

int role_stats(struct role *role, enum role_op_kind kind, struct rlv_stats *stats_out)
{
	int ret = 0;

	*stats_out = (struct rlv_stats){ .size = sizeof(*stats_out) };
	if (kind == ROLE_INSERT && role->appends)
		ret = rlv_writer_stats(role->actor.writer, stats_out);
	else if (kind != ROLE_INSERT && role->samples)
		ret = rlv_sampler_stats(role->learner.sampler, stats_out);
	return ret ? role_fail(role, ret, "counters") : 0;
}

void role_count(struct role_op *op, uint64_t calls, const struct rlv_stats *now,
		const struct rlv_stats *before)
{
	op->counted += calls;
	op->phases += now->phases - before->phases;
	op->moved_bytes +=
		now->read_bytes + now->write_bytes - before->read_bytes - before->write_bytes;
}

static struct role *role_of(struct worker *worker)
{
	return (struct role *)(void *)worker;
}

static void role_close(struct worker *worker)
{
	struct role *role = role_of(worker);

	if (role->appends)
		actor_close(role);
	if (role->samples)
		learner_close(role);
	role_closed(role, rlv_table_close(&role->table), "close the table");
	role_closed(role, rlv_store_close(&role->store), "close the store");
}

static int role_open(struct worker *worker)
{
	struct role *role = role_of(worker);
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	int ret;

	opts.timeout_ns = 10 * CLOCK_NS_PER_S;
	if (!replay_config_is_local(&role->of->config)) {
		ret = rlv_store_open(role->of->shared->uri, &opts, &role->store);
		if (ret)
			return role_fail(role, ret, "open the store");
	}
	ret = rlv_table_open(role->store ? role->store : role->of->store, role->of->shared->table,
			     &role->table);
	if (ret)
		return role_fail(role, ret, "open the table");
	if (role->appends)
		ret = actor_open(role);
	return ret || !role->samples ? ret : learner_open(role);
}

static void role_begin(struct worker *worker)
{
	struct role *role = role_of(worker);
	struct role_window *window = &role->slot->window;

	memset(window, 0, sizeof(*window));
	for (int op = 0; op < ROLE_OPS; op++)
		stats_hist_init(&window->op[op].latency_ns);
	role->actor.due_ns = clock_now_ns(clock_monotonic());
	for (int kind = 0; kind < ROLE_UPDATE; kind++)
		(void)!role_stats(role, (enum role_op_kind)kind, &role->before[kind]);
}

static int role_step(struct worker *worker)
{
	struct role *role = role_of(worker);
	int ret = role->appends ? actor_step(role) : 0;

	return ret || !role->samples ? ret : learner_step(role);
}

static int role_end(struct worker *worker)
{
	struct role *role = role_of(worker);
	struct role_window *window = &role->slot->window;
	int ret = 0;

	for (int kind = 0; kind < ROLE_UPDATE && ret == 0; kind++) {
		const struct rlv_stats *before = &role->before[kind];
		struct rlv_stats now;

		ret = role_stats(role, (enum role_op_kind)kind, &now);
		if (kind == ROLE_INSERT)
			role_count(&window->op[kind], now.calls - before->calls, &now, before);
		window->limiter_waits += now.limiter_waits - before->limiter_waits;
		window->limiter_wait_ns += now.limiter_wait_ns - before->limiter_wait_ns;
		window->stale_updates += now.stale_updates - before->stale_updates;
		window->redraws += now.redraws - before->redraws;
	}
	return ret;
}

const struct worker_ops role_ops = {
	.open = role_open,
	.begin = role_begin,
	.step = role_step,
	.end = role_end,
	.close = role_close,
};

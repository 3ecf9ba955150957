#include "bench/replay/role.h"

#include <errno.h>
#include <string.h>

#include "base/os/clock.h"

int role_fail(struct role *role, int code, const char *what)
{
	return worker_fail(&role->worker, code, what, rlv_last_error());
}

/* -ESTALE: the bench has dropped the table. */
void role_closed(struct role *role, int code, const char *what)
{
	if (code && code != -ESTALE && !role->worker.slot->error)
		role_fail(role, code, what);
}

int role_stats(struct role *role, bool of_writer, struct rlv_stats *stats_out)
{
	int ret;

	*stats_out = (struct rlv_stats){ .size = sizeof(*stats_out) };
	ret = of_writer ? rlv_writer_stats(role->actor.writer, stats_out)
			: rlv_sampler_stats(role->learner.sampler, stats_out);
	return ret ? role_fail(role, ret,
			       of_writer ? "counters of the writer" : "counters of the sampler")
		   : 0;
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
	role_closed(role, rlv_store_close(&role->own_store), "close the store");
}

static int role_open(struct worker *worker)
{
	struct role *role = role_of(worker);
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	int ret;

	opts.timeout_ns = 10 * CLOCK_NS_PER_S;
	if (!role->store) {
		ret = rlv_store_open(role->shared->uri, &opts, &role->own_store);
		if (ret)
			return role_fail(role, ret, "open the store");
	}
	ret = rlv_table_open(role->store ? role->store : role->own_store, role->shared->table,
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
	if (role->appends)
		(void)!role_stats(role, true, &role->appended);
	if (role->samples)
		(void)!role_stats(role, false, &role->sampled);
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
	struct role_op *op = &window->op[ROLE_INSERT];
	struct rlv_stats appended = role->appended, sampled = role->sampled;
	const struct rlv_stats *before = &role->appended;
	int ret = role->appends ? role_stats(role, true, &appended) : 0;

	if (ret == 0 && role->samples)
		ret = role_stats(role, false, &sampled);
	op->counted = appended.calls - before->calls;
	op->phases = appended.phases - before->phases;
	op->moved_bytes = appended.read_bytes + appended.write_bytes - before->read_bytes -
			  before->write_bytes;
	window->limiter_waits = appended.limiter_waits - before->limiter_waits;
	window->limiter_wait_ns = appended.limiter_wait_ns - before->limiter_wait_ns;
	before = &role->sampled;
	window->limiter_waits += sampled.limiter_waits - before->limiter_waits;
	window->limiter_wait_ns += sampled.limiter_wait_ns - before->limiter_wait_ns;
	window->stale_updates = sampled.stale_updates - before->stale_updates;
	window->redraws = sampled.redraws - before->redraws;
	return ret;
}

const struct worker_ops role_ops = {
	.open = role_open,
	.begin = role_begin,
	.step = role_step,
	.end = role_end,
	.close = role_close,
};

#include "bench/replay/role.h"

#include <errno.h>
#include <string.h>

#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "bench/replay/actor.h"
#include "bench/replay/learner.h"

struct hands {
	struct rlv_store *store; /* NULL for a thread, which shares the store */
	struct rlv_table *table;
	struct actor actor;
	struct learner learner;
};

int role_fail(struct role *role, int code, const char *what)
{
	return worker_fail(&role->worker, code, what, rlv_last_error());
}

static struct role *role_of(struct worker *worker)
{
	return (struct role *)(void *)worker;
}

static void role_close(struct worker *worker)
{
	struct role *role = role_of(worker);
	struct hands *hands = role->hands;

	if (!hands)
		return;
	if (hands->actor.role)
		actor_close(&hands->actor);
	if (hands->learner.role)
		learner_close(&hands->learner);
	if (hands->table && rlv_table_close(&hands->table) && !role_failed(role))
		role_fail(role, -EBUSY, "close the table");
	if (hands->store && rlv_store_close(&hands->store) && !role_failed(role))
		role_fail(role, -EBUSY, "close the store");
	mem_free(hands);
	role->hands = NULL;
}

static int role_open(struct worker *worker)
{
	struct role *role = role_of(worker);
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store = role->store;
	struct hands *hands = role->hands = mem_zalloc(sizeof(*hands));
	int ret;

	if (!hands)
		return worker_fail(worker, -ENOMEM, "open", "");
	opts.timeout_ns = 10 * CLOCK_NS_PER_S;
	if (!store) {
		ret = rlv_store_open(role->shared->uri, &opts, &hands->store);
		if (ret)
			return role_fail(role, ret, "open the store");
		store = hands->store;
	}
	ret = rlv_table_open(store, role->shared->table, &hands->table);
	if (ret)
		return role_fail(role, ret, "open the table");
	if (role->appends)
		ret = actor_open(&hands->actor, role, hands->table);
	if (ret == 0 && role->samples)
		ret = learner_open(&hands->learner, role, hands->table);
	return ret;
}

static void role_begin(struct worker *worker)
{
	struct role *role = role_of(worker);
	struct role_window *window = &role->slot->window;

	memset(window, 0, sizeof(*window));
	for (int op = 0; op < ROLE_OPS; op++)
		stats_hist_init(&window->op[op].latency_ns);
	if (role->appends)
		actor_window_begin(&role->hands->actor);
	if (role->samples)
		learner_window_begin(&role->hands->learner);
}

static int role_step(struct worker *worker)
{
	struct role *role = role_of(worker);
	int ret = role->appends ? actor_step(&role->hands->actor) : 0;

	return ret || !role->samples ? ret : learner_step(&role->hands->learner);
}

static int role_end(struct worker *worker)
{
	struct role *role = role_of(worker);
	int ret = role->appends ? actor_window_end(&role->hands->actor) : 0;

	return ret || !role->samples ? ret : learner_window_end(&role->hands->learner);
}

const struct worker_ops role_ops = {
	.open = role_open,
	.begin = role_begin,
	.step = role_step,
	.end = role_end,
	.close = role_close,
};

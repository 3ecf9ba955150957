#include "bench/replay/case.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"
#include "bench/replay/table.h"
#include "program/interrupt.h"

#define LOOK_NS (100 * CLOCK_NS_PER_MS)

/* -------- roles -------- */

static int start_roles(struct replay_case *c)
{
	const struct replay_config *config = &c->config;
	bool local = replay_config_is_local(config);
	int ret = 0;

	for (uint32_t i = 0; i < c->n_roles && ret == 0; i++) {
		bool appends = config->loop || i < config->actors;

		c->roles[i] = (struct role){
			.worker = { .ops = &role_ops,
				    .name = appends ? "actor" : "learner",
				    .pin = config->pin },
			.config = config,
			.data = c->data,
			.vector = config->envs > 1 ? &c->vector : NULL,
			.shared = c->shared,
			.slot = &c->shared->slots[i],
			.store = local ? c->store : NULL,
			.appends = appends,
			.samples = config->loop || !appends,
			.actor = i,
		};
		ret = workers_start(&c->workers, &c->roles[i].worker, !local);
	}
	return ret;
}

/* -------- the case -------- */

static int open_data(struct replay_case *c, const struct replay_data *data)
{
	int ret = 0;

	c->data = data;
	if (c->config.check) {
		ret = replay_data_open(NULL, c->config.shape, c->config.seed, &c->patterned);
		if (ret == 0)
			ret = pattern_shape(&c->patterned.shape);
		c->data = &c->patterned;
	}
	if (ret == 0 && c->config.envs > 1)
		ret = replay_data_vector(data, c->config.envs, &c->vector);
	return ret;
}

/* Defaults from the shape. */
static void settle_view(struct replay_config *config, const struct replay_data *data)
{
	bool frames = data->shape.n_columns && data->shape.columns[0].role == RLV_OBS &&
		      data->shape.columns[0].ndim >= 2;

	if (config->stack == 0)
		config->stack = frames ? 4 : 1;
	if (config->n_step == 0)
		config->n_step = 1;
	if (config->capacity == 0)
		config->capacity = replay_table_capacity(config, data);
}

int replay_case_open(struct replay_case *c, const struct replay_config *config,
		     const struct replay_data *data)
{
	int ret;

	memset(c, 0, sizeof(*c));
	c->config = *config;
	c->ok = true;
	settle_view(&c->config, data);
	c->n_roles = replay_config_roles(config);
	c->shared_bytes = sizeof(*c->shared) + c->n_roles * sizeof(c->shared->slots[0]);
	c->shared = mmap(NULL, c->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			 -1, 0);
	if (c->shared == MAP_FAILED) {
		c->shared = NULL;
		c->n_roles = 0;
		return error_set(-ENOMEM, "cannot map %zu bytes of shared memory", c->shared_bytes);
	}
	c->workers.board = &c->shared->board;
	ret = open_data(c, data);
	/* Processes are forked before this process opens a store; threads start afterwards. */
	if (ret == 0 && !replay_config_is_local(&c->config))
		ret = start_roles(c);
	return ret;
}

int replay_case_start(struct replay_case *c, const char *uri)
{
	int ret = replay_table_open(c, uri);

	if (ret == 0 && replay_config_is_local(&c->config))
		ret = start_roles(c);
	return ret ? ret : workers_open(&c->workers);
}

uint64_t replay_case_live(const struct replay_case *c, enum role_op_kind op)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < c->n_roles; i++)
		sum += stats_counter_get(&c->roles[i].slot->live[op]);
	return sum;
}

int replay_case_close(struct replay_case *c)
{
	int ret;

	workers_stop(&c->workers);
	c->n_roles = 0;
	ret = replay_table_close(c);
	replay_data_close(&c->patterned);
	replay_data_close(&c->vector);
	if (c->shared)
		munmap(c->shared, c->shared_bytes);
	c->shared = NULL;
	return ret;
}

/* -------- windows -------- */

static void add_figure(struct replay_case *c, enum role_op_kind op, enum replay_metric metric,
		       double value)
{
	series_add(&c->series[op][metric], value);
}

/* Useful bytes of one item of an operation. */
static double item_bytes(const struct replay_case *c, enum role_op_kind op)
{
	if (op == ROLE_INSERT)
		return (double)c->data->shape.row_bytes;
	if (op == ROLE_UPDATE)
		return sizeof(uint64_t) + sizeof(float);
	return (double)c->batch_bytes / c->config.batch;
}

/* Sum up one operation over all roles for the last window. */
static void gather_op(struct replay_case *c, enum role_op_kind op, struct stats_hist *latency)
{
	double items = 0, calls = 0, wall = 0, cpu = 0;
	uint64_t counted = 0, phases = 0, moved = 0;

	stats_hist_init(latency);
	for (uint32_t i = 0; i < c->n_roles; i++) {
		const struct role_op *at = &c->roles[i].slot->window.op[op];
		const struct worker *worker = &c->roles[i].worker;
		double wall_ns = (double)worker->slot->wall_ns;

		if (!worker->alive || at->calls == 0 || wall_ns == 0)
			continue;
		items += (double)at->items * 1e9 / wall_ns;
		calls += (double)at->calls * 1e9 / wall_ns;
		counted += at->counted;
		phases += at->phases;
		moved += at->moved_bytes;
		wall += wall_ns;
		cpu += (double)worker->slot->cpu_ns;
		stats_hist_merge(latency, &at->latency_ns);
	}
	if (calls == 0)
		return;
	add_figure(c, op, REPLAY_ITEMS, items);
	add_figure(c, op, REPLAY_CALLS, calls);
	add_figure(c, op, REPLAY_BYTES, items * item_bytes(c, op));
	add_figure(c, op, REPLAY_P50, (double)stats_hist_quantile(latency, 0.5) / 1e3);
	add_figure(c, op, REPLAY_P99, (double)stats_hist_quantile(latency, 0.99) / 1e3);
	add_figure(c, op, REPLAY_CPU, cpu / wall);
	if (counted) {
		add_figure(c, op, REPLAY_ROUND_TRIPS, (double)phases / (double)counted);
		add_figure(c, op, REPLAY_MOVED, (double)moved / (double)counted);
	}
}

int replay_case_gather(struct replay_case *c)
{
	struct stats_hist *latency = mem_alloc(sizeof(*latency));

	if (!latency)
		return error_set(-ENOMEM, "gather the figures: cannot allocate a histogram");
	for (uint32_t i = 0; i < c->n_roles; i++) {
		const struct role_slot *slot = c->roles[i].slot;

		if (!c->roles[i].worker.alive)
			continue;
		c->limiter_waits += slot->window.limiter_waits;
		c->limiter_wait_ns += slot->window.limiter_wait_ns;
		c->stale_updates += slot->window.stale_updates;
		c->redraws += slot->window.redraws;
		c->timeouts += slot->window.timeouts;
		c->items_checked += slot->window.items_checked;
		c->items_wrong += slot->window.items_wrong;
		if (slot->batch_bytes)
			c->batch_bytes = slot->batch_bytes;
	}
	for (int op = 0; op < ROLE_OPS; op++)
		gather_op(c, (enum role_op_kind)op, latency);
	mem_free(latency);
	return 0;
}

static int run_for(struct replay_case *c, int64_t ns)
{
	uint64_t end;
	int ret = workers_run(&c->workers);

	end = deadline_after(clock_monotonic(), ns);
	while (ret == 0 && !deadline_expired(clock_monotonic(), end)) {
		int64_t left = deadline_left_ns(clock_monotonic(), end);

		interrupt_sleep(left < LOOK_NS ? left : LOOK_NS);
		ret = interrupt_pending() ? error_set(-EINTR, "interrupted")
					  : workers_look(&c->workers);
		if (c->progress)
			progress_show(c->progress, c->progress_from, "%s", c->config.label);
	}
	return ret ? ret : workers_pause(&c->workers);
}

int replay_case_warm(struct replay_case *c, int64_t ns)
{
	int ret = run_for(c, ns);

	for (uint32_t i = 0; i < c->n_roles && ret == 0; i++) {
		if (c->roles[i].slot->batch_bytes)
			c->batch_bytes = c->roles[i].slot->batch_bytes;
	}
	return ret;
}

int replay_case_window(struct replay_case *c, int64_t ns)
{
	int ret = run_for(c, ns);

	return ret ? ret : replay_case_gather(c);
}

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
			.of = c,
			.slot = &c->shared->slots[i],
			.appends = appends,
			.samples = config->loop || !appends,
		};
		ret = workers_start(&c->workers, &c->roles[i].worker, !local);
	}
	return ret;
}

/* -------- the case -------- */

int replay_case_open(struct replay_case *c, const struct replay_config *config,
		     const struct replay_data *data)
{
	const struct rlv_column *first = data->shape.columns;
	int ret = 0;

	memset(c, 0, sizeof(*c));
	c->config = *config;
	c->data = data;
	c->ok = true;
	if (config->stack == 0)
		c->config.stack = first->role == RLV_OBS && first->ndim >= 2 ? 4 : 1;
	if (config->n_step == 0)
		c->config.n_step = 1;
	c->config.capacity = replay_table_capacity(config, data);
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
	if (config->check) {
		ret = replay_data_open(NULL, config->shape, config->seed, &c->patterned);
		if (ret == 0)
			ret = pattern_shape(&c->patterned.shape);
		c->data = &c->patterned;
	}
	if (ret == 0 && config->envs > 1)
		ret = replay_data_vector(data, config->envs, &c->vector);
	/* Processes are forked before this process opens a store; threads start afterwards. */
	if (ret == 0 && !replay_config_is_local(config))
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

/* Sums up one operation of the last window over all living roles, and adds the figures to the
   case's series. latency is room for a histogram. */
static void gather_op(struct replay_case *c, enum role_op_kind op, struct stats_hist *latency)
{
	struct series *series = c->series[op];
	double items = 0, calls = 0, wall = 0, cpu = 0, item_bytes; /* useful bytes of an item */
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
	item_bytes = op == ROLE_INSERT   ? (double)c->data->shape.row_bytes
		     : op == ROLE_UPDATE ? sizeof(uint64_t) + sizeof(float)
					 : (double)c->batch_bytes / c->config.batch;
	series_add(&series[REPLAY_ITEMS], items);
	series_add(&series[REPLAY_CALLS], calls);
	series_add(&series[REPLAY_BYTES], items * item_bytes);
	series_add(&series[REPLAY_P50], (double)stats_hist_quantile(latency, 0.5) / 1e3);
	series_add(&series[REPLAY_P99], (double)stats_hist_quantile(latency, 0.99) / 1e3);
	series_add(&series[REPLAY_CPU], cpu / wall);
	if (counted) {
		series_add(&series[REPLAY_ROUND_TRIPS], (double)phases / (double)counted);
		series_add(&series[REPLAY_MOVED], (double)moved / (double)counted);
	}
}

int replay_case_warm(struct replay_case *c, int64_t ns)
{
	uint64_t start, spent = 0;
	int ret = workers_run(&c->workers);

	start = clock_now_ns(clock_monotonic());
	while (ret == 0 && spent < (uint64_t)ns) {
		if (c->tick)
			c->tick(c->tick_ctx, (double)spent);
		else if (c->progress)
			progress_show(c->progress, c->progress_from, "%s", c->config.label);
		interrupt_sleep((int64_t)min_u64((uint64_t)ns - spent, LOOK_NS));
		ret = interrupt_pending() ? error_set(-EINTR, "interrupted")
					  : workers_look(&c->workers);
		spent = clock_now_ns(clock_monotonic()) - start;
	}
	if (ret == 0)
		ret = workers_pause(&c->workers);
	for (uint32_t i = 0; i < c->n_roles && ret == 0; i++) {
		if (c->roles[i].slot->batch_bytes)
			c->batch_bytes = c->roles[i].slot->batch_bytes;
	}
	return ret;
}

int replay_case_window(struct replay_case *c, int64_t ns)
{
	int ret = replay_case_warm(c, ns);
	struct stats_hist *latency;

	if (ret)
		return ret;
	latency = mem_alloc(sizeof(*latency));
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
	}
	for (int op = 0; op < ROLE_OPS; op++)
		gather_op(c, (enum role_op_kind)op, latency);
	mem_free(latency);
	return 0;
}

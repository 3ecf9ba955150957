#include "bench/replay/case.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/os/clock.h"
#include "base/os/futex.h"
#include "bench/replay/table.h"
#include "program/interrupt.h"
#include "program/spawn.h"

#define POLL_NS (1 * CLOCK_NS_PER_MS)
#define OPEN_NS (30 * CLOCK_NS_PER_S)
#define PAUSE_NS (20 * CLOCK_NS_PER_S)
#define LOOK_NS (100 * CLOCK_NS_PER_MS)

/* -------- roles -------- */

static void *thread_main(void *arg)
{
	struct role *role = arg;

	(void)!role_main(role);
	return NULL;
}

static int start_thread(struct role *role)
{
	int ret = pthread_create(&role->thread, NULL, thread_main, role);

	role->alive = ret == 0;
	return ret ? error_set(-ret, "start a thread: %s", strerror(ret)) : 0;
}

static int start_process(struct role *role)
{
	int ret = spawn_fork(&role->pid);

	if (ret)
		return ret;
	if (role->pid == 0)
		_exit(role_main(role) ? 1 : 0);
	role->alive = true;
	return 0;
}

static void command(struct replay_case *c, enum role_command what)
{
	/* relaxed: only this thread writes it */
	uint32_t old = atomic_load_explicit(&c->shared->command, memory_order_relaxed);
	uint32_t next = ((old >> ROLE_COMMAND_BITS) + 1) << ROLE_COMMAND_BITS | (uint32_t)what;

	/* H1 pairs with H2: uri and table, then the command */
	atomic_store_explicit(&c->shared->command, next, memory_order_release);
	futex_wake(&c->shared->command, REPLAY_MAX_ROLES);
}

static enum role_state state_of(const struct role *role)
{
	/* H4 pairs with H3: a role's state, then its figures */
	return (enum role_state)atomic_load_explicit(&role->slot->state, memory_order_acquire);
}

static void set_states(struct replay_case *c, enum role_state state)
{
	for (uint32_t i = 0; i < c->n_roles; i++) {
		/* relaxed: the role sleeps, the command word publishes it */
		if (c->roles[i].alive)
			atomic_store_explicit(&c->roles[i].slot->state, (uint32_t)state,
					      memory_order_relaxed);
	}
}

static int role_died(struct replay_case *c, struct role *role, int status)
{
	char text[SPAWN_STATUS_BYTES];

	role->alive = false;
	if (c->may_die && WIFSIGNALED(status))
		return 0;
	if (role->slot->error)
		return error_set(role->slot->error, "%s %u: %s",
				 role->appends ? "actor" : "learner", role->index, role->slot->why);
	return error_set(-ECONNRESET, "%s %u ended: %s", role->appends ? "actor" : "learner",
			 role->index, spawn_status_text(status, text));
}

/* Processes that ended, by their own fault or killed; threads that failed. */
int replay_case_look(struct replay_case *c)
{
	int status, ret = 0;

	for (uint32_t i = 0; i < c->n_roles && ret == 0; i++) {
		struct role *role = &c->roles[i];

		if (role->alive && role->pid > 0 && spawn_ended(role->pid, &status))
			ret = role_died(c, role, status);
		else if (role->alive && state_of(role) == ROLE_FAILED)
			ret = error_set(role->slot->error, "%s %u: %s",
					role->appends ? "actor" : "learner", role->index,
					role->slot->why);
	}
	return ret;
}

static bool all_at(const struct replay_case *c, enum role_state least)
{
	for (uint32_t i = 0; i < c->n_roles; i++) {
		if (c->roles[i].alive && state_of(&c->roles[i]) < least)
			return false;
	}
	return true;
}

static int wait_all(struct replay_case *c, enum role_state state, int64_t timeout_ns)
{
	uint64_t deadline = deadline_after(clock_monotonic(), timeout_ns);
	int ret = 0;

	while (ret == 0 && !all_at(c, state)) {
		if (interrupt_pending())
			return error_set(-EINTR, "interrupted");
		if (deadline_expired(clock_monotonic(), deadline))
			return error_set(-ETIMEDOUT, "actors and learners do not answer");
		usleep(POLL_NS / CLOCK_NS_PER_US / 5);
		ret = replay_case_look(c);
	}
	return ret ? ret : replay_case_look(c);
}

static void place_role(struct replay_case *c, uint32_t i)
{
	struct role *role = &c->roles[i];
	bool local = replay_config_is_local(&c->config);

	*role = (struct role){
		.config = &c->config,
		.data = c->data,
		.vector = c->config.envs > 1 ? &c->vector : NULL,
		.shared = c->shared,
		.slot = &c->shared->slots[i],
		.store = local ? c->store : NULL,
		.appends = c->config.loop || i < c->config.actors,
		.samples = c->config.loop || i >= c->config.actors,
		.index = i,
		.actor = i,
	};
}

static int start_roles(struct replay_case *c)
{
	bool local = replay_config_is_local(&c->config);
	int ret = 0;

	for (uint32_t i = 0; i < c->n_roles && ret == 0; i++) {
		place_role(c, i);
		ret = local ? start_thread(&c->roles[i]) : start_process(&c->roles[i]);
	}
	return ret;
}

static void stop_roles(struct replay_case *c)
{
	if (!c->shared)
		return;
	command(c, ROLE_QUIT);
	for (uint32_t i = 0; i < c->n_roles; i++) {
		struct role *role = &c->roles[i];
		uint64_t deadline = deadline_after(clock_monotonic(), 3 * CLOCK_NS_PER_S);
		int status;

		if (!role->alive)
			continue;
		if (role->pid == 0) {
			pthread_join(role->thread, NULL);
			continue;
		}
		while (!spawn_ended(role->pid, &status)) {
			if (deadline_expired(clock_monotonic(), deadline))
				kill(role->pid, SIGKILL);
			usleep(POLL_NS / CLOCK_NS_PER_US);
		}
	}
	c->n_roles = 0;
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

/* What the shape suggests where nothing was said. */
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
		return error_set(-ENOMEM, "shared memory of %zu bytes", c->shared_bytes);
	}
	ret = open_data(c, data);
	/* Processes are forked before this one opens a store, threads when its store is open. */
	if (ret == 0 && !replay_config_is_local(&c->config))
		ret = start_roles(c);
	return ret;
}

int replay_case_start(struct replay_case *c, const char *uri)
{
	int ret = replay_table_open(c, uri);

	if (ret == 0 && replay_config_is_local(&c->config))
		ret = start_roles(c);
	if (ret)
		return ret;
	command(c, ROLE_OPEN);
	return wait_all(c, ROLE_READY, OPEN_NS);
}

int replay_case_run(struct replay_case *c)
{
	set_states(c, ROLE_READY);
	command(c, ROLE_RUN);
	return wait_all(c, ROLE_RUNNING, OPEN_NS);
}

int replay_case_pause(struct replay_case *c)
{
	command(c, ROLE_PAUSE);
	return wait_all(c, ROLE_PAUSED, PAUSE_NS);
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

	stop_roles(c);
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

/* Bytes that one item of an operation is worth to its user. */
static double item_bytes(const struct replay_case *c, enum role_op_kind op)
{
	if (op == ROLE_INSERT)
		return (double)c->data->shape.row_bytes;
	if (op == ROLE_UPDATE)
		return sizeof(uint64_t) + sizeof(float);
	return (double)c->batch_bytes / c->config.batch;
}

/* One operation over all roles of the window that has just ended. */
static void gather_op(struct replay_case *c, enum role_op_kind op, struct stats_hist *latency)
{
	double items = 0, calls = 0, wall = 0, cpu = 0;
	uint64_t counted = 0, phases = 0, moved = 0;

	stats_hist_init(latency);
	for (uint32_t i = 0; i < c->n_roles; i++) {
		const struct role_window *window = &c->roles[i].slot->window;
		const struct role_op *at = &window->op[op];

		if (!c->roles[i].alive || at->calls == 0 || window->wall_ns == 0)
			continue;
		items += (double)at->items * 1e9 / (double)window->wall_ns;
		calls += (double)at->calls * 1e9 / (double)window->wall_ns;
		counted += at->counted;
		phases += at->phases;
		moved += at->moved_bytes;
		wall += (double)window->wall_ns;
		cpu += (double)window->cpu_ns;
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
		return error_set(-ENOMEM, "a histogram");
	for (uint32_t i = 0; i < c->n_roles; i++) {
		const struct role_slot *slot = c->roles[i].slot;

		if (!c->roles[i].alive)
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
	int ret = replay_case_run(c);

	end = deadline_after(clock_monotonic(), ns);
	while (ret == 0 && !deadline_expired(clock_monotonic(), end)) {
		int64_t left = deadline_left_ns(clock_monotonic(), end);

		interrupt_sleep(left < LOOK_NS ? left : LOOK_NS);
		ret = interrupt_pending() ? error_set(-EINTR, "interrupted") : replay_case_look(c);
		if (c->progress)
			progress_show(c->progress, c->progress_from, "%s", c->config.label);
	}
	return ret ? ret : replay_case_pause(c);
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

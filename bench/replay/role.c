#include "bench/replay/role.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/os/futex.h"
#include "bench/replay/actor.h"
#include "bench/replay/learner.h"

#define OPEN_TIMEOUT_NS (10 * CLOCK_NS_PER_S)
#define LOOK_NS (500 * CLOCK_NS_PER_MS)

static enum role_command command_of(uint32_t word)
{
	return (enum role_command)(word & ((1u << ROLE_COMMAND_BITS) - 1));
}

bool role_must_stop(const struct role *role)
{
	/* relaxed: one more operation does no harm */
	uint32_t word = atomic_load_explicit(&role->shared->command, memory_order_relaxed);

	return command_of(word) != ROLE_RUN;
}

int role_fail(struct role *role, int code, const char *what)
{
	const char *why = rlv_last_error();

	role->slot->error = code;
	snprintf(role->slot->why, sizeof(role->slot->why), "%.60s: %.180s", what,
		 *why ? why : strerror(-code));
	return code;
}

static void set_state(struct role *role, enum role_state state)
{
	/* H3 pairs with H4: our figures, then our state */
	atomic_store_explicit(&role->slot->state, state, memory_order_release);
	futex_wake((_Atomic uint32_t *)&role->slot->state, 1);
}

/* The next word after `last`. */
static uint32_t wait_command(const struct role *role, uint32_t last)
{
	for (;;) {
		/* H2 pairs with H1: the command, then uri and table */
		uint32_t word = atomic_load_explicit(&role->shared->command, memory_order_acquire);

		if (word != last)
			return word;
		(void)!futex_wait(&role->shared->command, last,
				  deadline_after(clock_monotonic(), LOOK_NS));
	}
}

static void pin(const struct role *role)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;

	if (!role->config->pin || cpus < 1)
		return;
	CPU_ZERO(&set);
	CPU_SET(role->index % (uint32_t)cpus, &set);
	(void)!sched_setaffinity(0, sizeof(set), &set);
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* All that a role holds. */
struct hands {
	struct rlv_store *store; /* its own, NULL for a thread */
	struct rlv_table *table;
	struct actor actor;
	struct learner learner;
};

static void close_hands(struct role *role, struct hands *hands)
{
	if (hands->actor.role)
		actor_close(&hands->actor);
	if (hands->learner.role)
		learner_close(&hands->learner);
	if (hands->table && rlv_table_close(&hands->table) && role->slot->error == 0)
		role_fail(role, -EBUSY, "close the table");
	if (hands->store && rlv_store_close(&hands->store) && role->slot->error == 0)
		role_fail(role, -EBUSY, "close the store");
}

static int open_hands(struct role *role, struct hands *hands)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store = role->store;
	int ret;

	memset(hands, 0, sizeof(*hands));
	opts.timeout_ns = OPEN_TIMEOUT_NS;
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

static void begin_window(struct role *role, struct hands *hands)
{
	struct role_window *window = &role->slot->window;

	memset(window, 0, sizeof(*window));
	for (int op = 0; op < ROLE_OPS; op++)
		stats_hist_init(&window->op[op].latency_ns);
	if (role->appends)
		actor_window_begin(&hands->actor);
	if (role->samples)
		learner_window_begin(&hands->learner);
}

static int run_window(struct role *role, struct hands *hands)
{
	struct role_window *window = &role->slot->window;
	uint64_t cpu, start;
	int ret = 0;

	begin_window(role, hands);
	set_state(role, ROLE_RUNNING);
	start = clock_now_ns(clock_monotonic());
	cpu = cpu_ns();
	while (ret == 0 && !role_must_stop(role)) {
		if (role->appends)
			ret = actor_step(&hands->actor);
		if (ret == 0 && role->samples)
			ret = learner_step(&hands->learner);
	}
	window->wall_ns = clock_now_ns(clock_monotonic()) - start;
	window->cpu_ns = cpu_ns() - cpu;
	if (ret == 0 && role->appends)
		ret = actor_window_end(&hands->actor);
	if (ret == 0 && role->samples)
		ret = learner_window_end(&hands->learner);
	return ret;
}

static int obey(struct role *role, struct hands *hands)
{
	uint32_t word = wait_command(role, ROLE_HOLD);
	int ret;

	if (command_of(word) == ROLE_QUIT)
		return 0;
	ret = open_hands(role, hands);
	if (ret)
		return ret;
	set_state(role, ROLE_READY);
	for (;;) {
		word = wait_command(role, word);
		if (command_of(word) == ROLE_QUIT)
			return 0;
		if (command_of(word) == ROLE_RUN) {
			ret = run_window(role, hands);
			if (ret)
				return ret;
			set_state(role, ROLE_PAUSED);
		}
	}
}

int role_main(struct role *role)
{
	struct hands hands = { 0 };
	int ret;

	pin(role);
	ret = obey(role, &hands);
	close_hands(role, &hands);
	set_state(role, ret || role->slot->error ? ROLE_FAILED : ROLE_DONE);
	return ret;
}

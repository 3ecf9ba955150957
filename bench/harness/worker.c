#include "bench/harness/worker.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/os/futex.h"
#include "bench/harness/time.h"
#include "program/interrupt.h"
#include "program/spawn.h"

#define COMMAND_BITS 3
#define START_NS (30 * CLOCK_NS_PER_S)

enum worker_command { WORKER_HOLD, WORKER_OPEN, WORKER_RUN, WORKER_PAUSE, WORKER_QUIT };

enum worker_state {
	WORKER_STARTING,
	WORKER_READY,
	WORKER_RUNNING,
	WORKER_PAUSED,
	WORKER_DONE,
	WORKER_FAILED,
};

/* -------- in the worker -------- */

static enum worker_command command_of(uint32_t word)
{
	return (enum worker_command)(word & ((1u << COMMAND_BITS) - 1));
}

int worker_fail(struct worker *worker, int code, const char *what, const char *why)
{
	worker->slot->error = code;
	snprintf(worker->slot->why, sizeof(worker->slot->why), "%.60s: %.180s", what,
		 *why ? why : strerror(-code));
	return code;
}

static void worker_set_state(struct worker *worker, enum worker_state state)
{
	/* H3 pairs with H4: our figures, then our state */
	atomic_store_explicit(&worker->slot->state, state, memory_order_release);
	futex_wake((_Atomic uint32_t *)&worker->slot->state, 1);
}

/* Waits until the command word is not `last` any more; returns it. */
static uint32_t worker_wait_command(const struct worker *worker, uint32_t last)
{
	for (;;) {
		/* H2 pairs with H1: the command, then its arguments */
		uint32_t word = atomic_load_explicit(&worker->board->command, memory_order_acquire);

		if (word != last)
			return word;
		(void)!futex_wait(&worker->board->command, last,
				  deadline_after(clock_monotonic(), 500 * CLOCK_NS_PER_MS));
	}
}

/* Runs one window: steps until the command is not WORKER_RUN any more, or a step fails. Records
   wall and CPU time. */
static int worker_run_window(struct worker *worker)
{
	struct worker_slot *slot = worker->slot;
	uint64_t wall, cpu;
	int ret = 0;

	worker->ops->begin(worker);
	worker_set_state(worker, WORKER_RUNNING);
	wall = time_wall_ns();
	cpu = time_cpu_ns();
	/* relaxed: one more step is harmless */
	while (ret == 0 && command_of(atomic_load_explicit(&worker->board->command,
							   memory_order_relaxed)) == WORKER_RUN)
		ret = worker->ops->step(worker);
	slot->wall_ns = time_wall_ns() - wall;
	slot->cpu_ns = time_cpu_ns() - cpu;
	return ret ? ret : worker->ops->end(worker);
}

/* Opens a worker at the first command, then runs its windows until WORKER_QUIT or an error, and
   closes it. */
static int worker_main(struct worker *worker)
{
	uint32_t word = worker_wait_command(worker, WORKER_HOLD);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;
	int ret = 0;

	CPU_ZERO(&set);
	CPU_SET(worker->index % (uint32_t)(cpus > 0 ? cpus : 1), &set);
	if (worker->pin)
		(void)!sched_setaffinity(0, sizeof(set), &set); /* slower, no error */
	if (command_of(word) != WORKER_QUIT) {
		ret = worker->ops->open(worker);
		if (ret == 0)
			worker_set_state(worker, WORKER_READY);
	}
	while (ret == 0 && command_of(word) != WORKER_QUIT) {
		word = worker_wait_command(worker, word);
		if (command_of(word) != WORKER_RUN)
			continue;
		ret = worker_run_window(worker);
		if (ret == 0)
			worker_set_state(worker, WORKER_PAUSED);
	}
	worker->ops->close(worker);
	worker_set_state(worker, ret || worker->slot->error ? WORKER_FAILED : WORKER_DONE);
	return ret;
}

static void *worker_thread(void *arg)
{
	(void)worker_main(arg);
	return NULL;
}

/* -------- in the bench -------- */

int workers_start(struct workers *workers, struct worker *worker, bool process)
{
	int ret;

	worker->index = workers->n;
	worker->board = workers->board;
	worker->slot = &workers->board->slots[worker->index];
	workers->worker[workers->n++] = worker;
	if (!process) {
		ret = pthread_create(&worker->thread, NULL, worker_thread, worker);
		worker->alive = ret == 0;
		return ret ? error_set(-ret, "start a thread: %s", strerror(ret)) : 0;
	}
	ret = spawn_fork(&worker->pid);
	if (ret)
		return ret;
	if (worker->pid == 0)
		_exit(worker_main(worker) ? 1 : 0);
	worker->alive = true;
	return 0;
}

static void workers_command(struct workers *workers, enum worker_command what)
{
	/* relaxed: only this thread writes it */
	uint32_t old = atomic_load_explicit(&workers->board->command, memory_order_relaxed);
	uint32_t next = ((old >> COMMAND_BITS) + 1) << COMMAND_BITS | (uint32_t)what;

	/* H1 pairs with H2: the arguments, then the command */
	atomic_store_explicit(&workers->board->command, next, memory_order_release);
	futex_wake(&workers->board->command, WORKERS_MAX);
}

static enum worker_state state_of(const struct worker *worker)
{
	/* H4 pairs with H3: a worker's state, then its figures */
	return (enum worker_state)atomic_load_explicit(&worker->slot->state, memory_order_acquire);
}

int workers_look(struct workers *workers)
{
	char text[SPAWN_STATUS_BYTES];
	int status;

	for (uint32_t i = 0; i < workers->n; i++) {
		struct worker *worker = workers->worker[i];

		if (!worker->alive)
			continue;
		if (worker->pid > 0 && spawn_ended(worker->pid, &status)) {
			worker->alive = false;
			if (workers->may_die && WIFSIGNALED(status))
				continue;
			if (!worker->slot->error)
				return error_set(-ECONNRESET, "%s %u ended: %s", worker->name,
						 worker->index, spawn_status_text(status, text));
		} else if (state_of(worker) != WORKER_FAILED) {
			continue;
		}
		return error_set(worker->slot->error, "%s %u: %s", worker->name, worker->index,
				 worker->slot->why);
	}
	return 0;
}

static int workers_wait(struct workers *workers, enum worker_state state, int64_t timeout_ns)
{
	uint64_t deadline = deadline_after(clock_monotonic(), timeout_ns);
	uint32_t i = 0; /* all workers before it have reached the state, or ended */
	int ret = 0;

	while (ret == 0 && i < workers->n) {
		if (!workers->worker[i]->alive || state_of(workers->worker[i]) >= state) {
			i++;
			continue;
		}
		if (interrupt_pending())
			return error_set(-EINTR, "interrupted");
		if (deadline_expired(clock_monotonic(), deadline))
			return error_set(-ETIMEDOUT, "the processes of the bench do not answer");
		usleep(200);
		ret = workers_look(workers);
	}
	return ret ? ret : workers_look(workers);
}

int workers_open(struct workers *workers)
{
	workers_command(workers, WORKER_OPEN);
	return workers_wait(workers, WORKER_READY, START_NS);
}

int workers_run(struct workers *workers)
{
	for (uint32_t i = 0; i < workers->n; i++) {
		/* relaxed: the worker sleeps, the command word publishes it */
		if (workers->worker[i]->alive)
			atomic_store_explicit(&workers->worker[i]->slot->state, WORKER_READY,
					      memory_order_relaxed);
	}
	workers_command(workers, WORKER_RUN);
	return workers_wait(workers, WORKER_RUNNING, START_NS);
}

int workers_pause(struct workers *workers)
{
	workers_command(workers, WORKER_PAUSE);
	return workers_wait(workers, WORKER_PAUSED, 20 * CLOCK_NS_PER_S);
}

/* A process that does not obey WORKER_QUIT ignores SIGTERM, too, so that it is killed after 3 s. */
void workers_stop(struct workers *workers)
{
	if (!workers->board)
		return;
	workers_command(workers, WORKER_QUIT);
	for (uint32_t i = 0; i < workers->n; i++) {
		struct worker *worker = workers->worker[i];

		if (worker->alive && worker->pid == 0)
			pthread_join(worker->thread, NULL);
		else if (worker->alive)
			spawn_stop(worker->pid, 3 * CLOCK_NS_PER_S);
		worker->alive = false;
	}
	workers->n = 0;
}

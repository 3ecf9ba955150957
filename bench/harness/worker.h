/*
 * worker.h - workers of a bench, each a process or a thread, and the shared memory that commands
 * them.
 *
 *   bench:    workers_start .. workers_open .. (workers_run .. workers_pause) .. workers_stop
 *   worker:   opens its handles, then steps while a window is open
 *
 * The command word is a sequence number and a command. Workers sleep on it between windows, so that
 * windows of several cases can alternate.
 */
#ifndef RLV_BENCH_HARNESS_WORKER_H
#define RLV_BENCH_HARNESS_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

#define WORKERS_MAX 64

struct worker;

/* Operations of a worker. Each returns 0 or an error that worker_fail recorded. */
struct worker_ops {
	int (*open)(struct worker *worker);
	void (*begin)(struct worker *worker); /* start of a window */
	int (*step)(struct worker *worker);
	int (*end)(struct worker *worker);
	void (*close)(struct worker *worker); /* also after a failed open */
};

struct worker_slot {
	_Atomic uint32_t state; /* enum worker_state */
	int error;
	char why[256];
	uint64_t wall_ns, cpu_ns; /* for the last window, valid while paused */
};

/* In zeroed memory shared by all processes. */
struct worker_board {
	_Atomic uint32_t command; /* sequence << 3 | enum worker_command */
	struct worker_slot slots[WORKERS_MAX];
};

/* Embedded in the structure used by the ops. */
struct worker {
	const struct worker_ops *ops;
	const char *name; /* "actor" */
	bool pin;         /* to a CPU */
	uint32_t index;   /* this and the rest are set by workers_start */
	struct worker_board *board;
	struct worker_slot *slot;
	pid_t pid; /* 0 = a thread */
	pthread_t thread;
	bool alive;
};

struct workers {
	struct worker_board *board;
	uint32_t n;
	struct worker *worker[WORKERS_MAX];
	bool may_die; /* its kill is not a failure */
};

/* Adds a worker and forks it, or starts a thread. Thread: setup, for all of these. */
int workers_start(struct workers *workers, struct worker *worker, bool process) RLV_MUST_CHECK;

/* Command all workers to open, run, or pause; each call waits for all. -ETIMEDOUT, -EINTR, a
   worker's error. */
int workers_open(struct workers *workers) RLV_MUST_CHECK;
int workers_run(struct workers *workers) RLV_MUST_CHECK;
int workers_pause(struct workers *workers) RLV_MUST_CHECK;

/* True if a worker has failed or ended early. */
int workers_look(struct workers *workers) RLV_MUST_CHECK;

/* Stop all workers; a process that does not end is killed. */
void workers_stop(struct workers *workers);

/* Record an error and the failed operation. Returns code. Thread: the worker's. */
int worker_fail(struct worker *worker, int code, const char *what, const char *why);

#endif

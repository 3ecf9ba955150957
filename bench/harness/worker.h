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

/* Adds a worker and starts it, in a forked process or else in a thread; it waits for
   workers_open. Thread: setup, for all of these. */
int workers_start(struct workers *workers, struct worker *worker, bool process) RLV_MUST_CHECK;

/* Command all workers to open, run, or pause; each call waits until all have. -ETIMEDOUT: one
   did not in 30 s (pause: 20 s); -EINTR: Ctrl-C; a worker's error. */
int workers_open(struct workers *workers) RLV_MUST_CHECK;
int workers_run(struct workers *workers) RLV_MUST_CHECK;
int workers_pause(struct workers *workers) RLV_MUST_CHECK;

/* 0, or the error of a worker that failed; -ECONNRESET: a process ended early without one. */
int workers_look(struct workers *workers) RLV_MUST_CHECK;

/* Stops all workers: joins threads, ends processes; one that does not end in 3 s is killed. */
void workers_stop(struct workers *workers);

/* Records code and "what: why" in the worker's slot, for the bench; why "": the text of code.
   Returns code. Thread: the worker's. */
int worker_fail(struct worker *worker, int code, const char *what, const char *why);

#endif

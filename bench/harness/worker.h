/*
 * worker.h - what a bench lets run, each in a process or thread of its own, and the shared memory
 * through which the bench commands it.
 *
 *   bench:    workers_start .. workers_open .. (workers_run .. workers_pause) .. workers_stop
 *   worker:   opens its handles, then steps while a window is open
 *
 * The command word is a sequence number and a command; workers sleep on it between windows, so that
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

/* What a worker does. Each returns 0 or an error that worker_fail recorded. */
struct worker_ops {
	int (*open)(struct worker *worker);
	void (*begin)(struct worker *worker); /* a window */
	int (*step)(struct worker *worker);
	int (*end)(struct worker *worker);
	void (*close)(struct worker *worker); /* also after a failed open */
};

struct worker_slot {
	_Atomic uint32_t state; /* enum worker_state */
	int error;
	char why[256];
	uint64_t wall_ns, cpu_ns; /* of the last window, valid while paused */
};

/* In memory that all processes share, zeroed. */
struct worker_board {
	_Atomic uint32_t command; /* sequence << 3 | enum worker_command */
	struct worker_slot slots[WORKERS_MAX];
};

/* Embedded in what the ops know it as. */
struct worker {
	const struct worker_ops *ops;
	const char *name; /* "actor" */
	bool pin;         /* to a CPU */
	uint32_t index;   /* the rest is set by workers_start */
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
	bool may_die; /* one that was killed is no failure */
};

/* Adds a worker and forks it, or starts a thread. Thread: setup, for all of these. */
int workers_start(struct workers *workers, struct worker *worker, bool process) RLV_MUST_CHECK;

/* Let all of them open, run, pause; each waits until they do. -ETIMEDOUT, -EINTR, what failed. */
int workers_open(struct workers *workers) RLV_MUST_CHECK;
int workers_run(struct workers *workers) RLV_MUST_CHECK;
int workers_pause(struct workers *workers) RLV_MUST_CHECK;

/* Has one failed, or ended before its time? */
int workers_look(struct workers *workers) RLV_MUST_CHECK;

/* Ends all of them; a process that does not end is killed. */
void workers_stop(struct workers *workers);

/* Records an error: what failed, and why. Returns code. Thread: the worker's. */
int worker_fail(struct worker *worker, int code, const char *what, const char *why);

#endif

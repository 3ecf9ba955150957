/*
 * role.h - one actor or learner of a case, in a process or thread of its own, and the block
 * of shared memory through which the bench commands it.
 *
 *   bench:   OPEN .. (all READY) .. RUN .. PAUSE .. (all PAUSED) .. RUN .. QUIT
 *   role:    opens its handles, then appends, samples and updates while RUN holds
 *
 * The command word is a sequence number and a command; roles sleep on it between windows, so that
 * windows of several cases can alternate.
 */
#ifndef RLV_BENCH_REPLAY_ROLE_H
#define RLV_BENCH_REPLAY_ROLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "relive/relive.h"

#include "base/stats.h"
#include "bench/replay/config.h"
#include "bench/replay/data.h"
#include "bench/replay/pattern.h"

enum role_command { ROLE_HOLD, ROLE_OPEN, ROLE_RUN, ROLE_PAUSE, ROLE_QUIT };
#define ROLE_COMMAND_BITS 3

enum role_state { ROLE_STARTING, ROLE_READY, ROLE_RUNNING, ROLE_PAUSED, ROLE_DONE, ROLE_FAILED };

enum role_op_kind { ROLE_INSERT, ROLE_SAMPLE, ROLE_UPDATE, ROLE_OPS };

/* One kind of operation in one window. */
struct role_op {
	uint64_t calls;
	uint64_t items;
	uint64_t counted;     /* calls of which the next two are known */
	uint64_t phases;      /* dependent round trips */
	uint64_t moved_bytes; /* read and written by one-sided operations */
	struct stats_hist latency_ns;
};

struct role_window {
	uint64_t wall_ns;
	uint64_t cpu_ns;
	struct role_op op[ROLE_OPS];
	uint64_t limiter_waits, limiter_wait_ns;
	uint64_t stale_updates, redraws, timeouts;
	uint64_t items_checked, items_wrong;
};

struct role_slot {
	_Atomic uint32_t state;
	int error;
	char why[256];
	uint64_t batch_bytes;                /* that a sample writes */
	struct stats_counter live[ROLE_OPS]; /* items so far */
	uint64_t classes[PATTERN_CLASSES];   /* of all windows */
	struct role_window window;           /* the last one, valid while paused */
};

struct role_shared {
	_Atomic uint32_t command; /* sequence << ROLE_COMMAND_BITS | enum role_command */
	char uri[256];
	char table[RLV_NAME_BYTES];
	struct role_slot slots[];
};

/* What a role knows from the start. */
struct role {
	const struct replay_config *config;
	const struct replay_data *data;
	const struct replay_data *vector; /* of environments, or NULL */
	struct role_shared *shared;
	struct role_slot *slot;
	struct rlv_store *store; /* of the process, for threads; NULL = open one */
	bool appends, samples;
	uint32_t index; /* among the roles of the case */
	uint32_t actor; /* among its actors */
	pid_t pid;
	pthread_t thread;
	bool alive;
};

/* Lives until ROLE_QUIT. 0, or the error that is in its slot, too. */
int role_main(struct role *role);

/* Is the window over? Thread: the role's. */
bool role_must_stop(const struct role *role);

/* Errors of the library, with what failed, into the slot. Returns code. */
int role_fail(struct role *role, int code, const char *what);

#endif

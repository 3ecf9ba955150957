/*
 * role.h - an actor, a learner, or both in turn: a worker (bench/harness/worker.h) of a case, with
 * its results in shared memory.
 */
#ifndef RLV_BENCH_REPLAY_ROLE_H
#define RLV_BENCH_REPLAY_ROLE_H

#include <stdbool.h>
#include <stdint.h>

#include "relive/relive.h"

#include "base/stats.h"
#include "bench/harness/worker.h"
#include "bench/replay/config.h"
#include "bench/replay/data.h"
#include "bench/replay/pattern.h"

enum role_op_kind { ROLE_INSERT, ROLE_SAMPLE, ROLE_UPDATE, ROLE_OPS };

/* One kind of operation in one window. */
struct role_op {
	uint64_t calls;
	uint64_t items;
	uint64_t counted;     /* calls counted in the next two */
	uint64_t phases;      /* dependent round trips */
	uint64_t moved_bytes; /* read and written by one-sided operations */
	struct stats_hist latency_ns;
};

struct role_window {
	struct role_op op[ROLE_OPS];
	uint64_t limiter_waits, limiter_wait_ns;
	uint64_t stale_updates, redraws, timeouts;
	uint64_t items_checked, items_wrong;
};

struct role_slot {
	uint64_t batch_bytes;                /* written by one sample */
	struct stats_counter live[ROLE_OPS]; /* items so far */
	uint64_t classes[PATTERN_CLASSES];   /* over all windows */
	struct role_window window;           /* the last one, valid while paused */
};

struct role_shared {
	struct worker_board board;
	char uri[256];
	char table[RLV_NAME_BYTES];
	struct role_slot slots[];
};

struct hands;

/* Configuration of a role. */
struct role {
	struct worker worker; /* first member: pointers convert to each other */
	const struct replay_config *config;
	const struct replay_data *data;
	const struct replay_data *vector; /* rows for environments, or NULL */
	struct role_shared *shared;
	struct role_slot *slot;
	struct rlv_store *store; /* the process's store, for threads; NULL = open one */
	bool appends, samples;
	uint32_t actor;      /* index among the actors of the case */
	struct hands *hands; /* its open handles */
};

extern const struct worker_ops role_ops;

/* Record the library's last error and the failed operation. Returns code. */
int role_fail(struct role *role, int code, const char *what);

/* True if it has failed before: the first error is kept. */
static inline bool role_failed(const struct role *role)
{
	return role->worker.slot->error != 0;
}

#endif

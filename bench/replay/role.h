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

struct actor {
	struct rlv_writer *writer;
	struct replay_feed feed;
	uint64_t due_ns; /* time of a paced actor's next append */
};

#define LEARNER_MAX_HELD 64

struct learner {
	struct rlv_sampler *sampler;
	struct pattern_view view;
	const struct rlv_batch *held[LEARNER_MAX_HELD]; /* a ring of `inflight` batches */
	uint64_t loops;
	float *td; /* values for updates, used in turn: TD_VALUES + batch of them */
};

struct replay_case;

/* A role of a case, and in its process its open handles. */
struct role {
	struct worker worker; /* first member: pointers convert to each other */
	const struct replay_case *of;
	struct role_slot *slot;
	bool appends, samples;

	struct rlv_store *store; /* of a process; threads use the store of the case */
	struct rlv_table *table;
	struct actor actor;
	struct learner learner;
	struct rlv_stats before[ROLE_UPDATE]; /* counters at the start of the window */
};

extern const struct worker_ops role_ops;

/* Records code, the failed operation and the library's last error, for the bench. Returns code. */
int role_fail(struct role *role, int code, const char *what);

/* Records code, the result of a close, if it is an error other than -ESTALE (the table was
   dropped) and no error was recorded before. */
void role_closed(struct role *role, int code, const char *what);

/* Reads the counters of the role's writer (ROLE_INSERT) or sampler (other kinds); all 0 if it
   has none. An error is recorded. */
int role_stats(struct role *role, enum role_op_kind kind, struct rlv_stats *stats_out)
	RLV_MUST_CHECK;

/* Adds to op the number of calls, and the round trips and bytes by which the counters `now`
   exceed `before`. */
void role_count(struct role_op *op, uint64_t calls, const struct rlv_stats *now,
		const struct rlv_stats *before);

/* The actor's part: opens a writer; actor_step makes one append of the next rows, cyclically, at
   full speed or paced. Errors are recorded. */
int actor_open(struct role *role) RLV_MUST_CHECK;
void actor_close(struct role *role);
int actor_step(struct role *role) RLV_MUST_CHECK;

/* The learner's part: opens a sampler; learner_step samples a batch, updates its priorities and,
   with --check, checks each byte. Errors are recorded. */
int learner_open(struct role *role) RLV_MUST_CHECK;
void learner_close(struct role *role);
int learner_step(struct role *role) RLV_MUST_CHECK;

#endif

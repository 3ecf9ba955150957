/*
 * loop.h - the whole loop on one host: actors, a store of two memory nodes, learners that share a device,
 * and weights that go back to the actors.
 *
 *   actors ── steps ──> table on two memory nodes ── batches land in the pool ──> learners
 *      └───────────── weights of the policies in the store <───────────────────────┘
 */
#ifndef RLV_CLI_DEMO_LOOP_H
#define RLV_CLI_DEMO_LOOP_H

#include <stdatomic.h>
#include <stdint.h>

#include "relive/pool.h"
#include "relive/weights.h"

#include "bench/harness/worker.h"
#include "cli/demo/network.h"
#include "cli/host/host_store.h"
#include "program/progress.h"

#define LOOP_ACTORS 4u
#define LOOP_LEARNERS 2u /* each has a policy of its own; actors share them out */
#define LOOP_ROLES (LOOP_ACTORS + LOOP_LEARNERS)
#define LOOP_ENVS 8u /* of an actor */
#define LOOP_TABLE "cartpole"
#define LOOP_POOL "demo"
#define LOOP_JOB "learner-" /* and the number of its policy */
#define LOOP_N_STEP 3
#define LOOP_GAMMA 0.99

/* What a role says of itself. Each word has one writer. */
struct loop_gauge {
	_Atomic uint64_t steps;   /* of an actor; items of a learner */
	_Atomic uint64_t updates; /* of a learner */
	_Atomic uint64_t episodes;
	_Atomic uint64_t mean_return; /* of the last episodes, in 1/1000 */
	_Atomic uint64_t publish_lag; /* generations that an actor is behind */
	_Atomic uint64_t staleness;   /* of a learner's items, mean in 1/1000 */
	_Atomic uint64_t repeats; /* calls that failed while a node was away, and were made again */
};

/* In zeroed memory shared by all processes. */
struct loop_shared {
	struct worker_board board;
	struct loop_gauge gauges[LOOP_ROLES];
	char uri[HOST_STORE_URI_BYTES];
};

/* An actor or a learner, in a process of its own. */
struct loop_role {
	struct worker worker;
	struct loop_shared *shared;
	struct loop_gauge *gauge;
	uint32_t policy;
	struct rlv_store *store;
	struct rlv_table *table;
	struct rlv_generations *weights;
	void *own; /* of actor.c or learner.c */
};

extern const struct worker_ops loop_actor_ops, loop_learner_ops;

/* For both: opens store, table and weights; closes them. */
int loop_role_open(struct loop_role *role) RLV_MUST_CHECK;
void loop_role_close(struct loop_role *role);
void loop_role_begin(struct worker *worker);
int loop_role_end(struct worker *worker) RLV_MUST_CHECK;

/* 0 if the call is to be made again: a node that it needed is away, or it was not admitted in time, or what it read was
   replaced meanwhile. Else ret, recorded as the role's failure. */
int loop_role_failed(struct loop_role *role, int ret, const char *what) RLV_MUST_CHECK;

/* The weights as a tensor for rlv_weights_publish and rlv_generation_copy. */
struct rlv_tensor loop_tensor(float *weights);

/* Bytes of the device: extents, the budget, and what a learner says it needs. */
#define LOOP_EXTENT UINT64_C(65536)
#define LOOP_STAYS (3 * LOOP_EXTENT) /* weights, moments, batches */
#define LOOP_ITERATION (4 * LOOP_EXTENT)
#define LOOP_BUDGET (LOOP_LEARNERS * LOOP_STAYS + LOOP_ITERATION) /* for one iteration at a time */

struct loop_opts {
	int64_t ns;          /* that actors and learners run */
	const char *picture; /* path of a PNG */
};

/*
 * Plays the loop on a store that is up, and adds a second memory node to it; kills an actor and that node on
 * the way. Prints what it sees and, at the end, a summary; writes the picture. Errors are printed.
 */
int loop_play(const struct loop_opts *opts, struct host_store *store, struct progress *progress)
	RLV_MUST_CHECK;

#endif

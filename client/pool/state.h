/*
 * state.h - private to client/pool: a job, and what calls share.
 */
#ifndef RLV_CLIENT_POOL_STATE_H
#define RLV_CLIENT_POOL_STATE_H

#include "relive/pool.h"

#include "client/pool/backend_lease.h"
#include "client/pool/park_store.h"
#include "client/pool/profile.h"
#include "device/pool.h"

#include <sys/types.h>

struct rlv_pool {
	struct backend_lease *backend;
	struct backend *inner;
	struct pool *pool;
	uint32_t job;
	pid_t pid;
	char name[LEASE_NAME_BYTES];
	int64_t timeout_ns;
	uint64_t keep;
	_Atomic uint32_t runs; /* an iteration; relaxed: iterations do not overlap */
	uint32_t resumed;      /* times that the job had come back when it began */
	bool obeyed;           /* it parked because the broker wished so */
	uint64_t refuses_ns;   /* it could not park: until then it obeys no wish */
	struct park_store park;
	struct lock lock; /* of profile */
	struct profile profile;
	_Atomic uint32_t measures; /* the profile is not complete; relaxed: a hint beside the lock */
	uint32_t told; /* the broker knows the profile: 1 + times that the job had come back then */
};

/* -EINVAL: NULL; -ECHILD. */
RLV_MUST_CHECK int pool_enter(const struct rlv_pool *pool);
/* The same between iterations. -EBUSY: one runs. */
RLV_MUST_CHECK int pool_enter_pause(const struct rlv_pool *pool);

/* An iteration runs. */
bool pool_runs(const struct rlv_pool *pool);
/* Tells the profile what the job holds, in an iteration. */
RLV_MUST_CHECK int pool_measure_held(struct rlv_pool *pool);
extern const struct lock_role profile_role; /* of pool->lock */

uint64_t pool_deadline(int64_t timeout_ns);

/* Work of a host's streams is done when somebody looks. */
void pool_advance(const struct rlv_pool *pool);

/* Gives back what the job has free, but `keep` bytes. */
RLV_MUST_CHECK int pool_give(struct rlv_pool *pool, uint64_t keep);

/* A request to the broker, within the job's timeout. */
RLV_MUST_CHECK int pool_ask(struct rlv_pool *pool, enum lease_type type,
			    struct lease_message *message);
/* Asks until it is had, at most until the deadline. -ETIMEDOUT: the job waits no more. */
RLV_MUST_CHECK int pool_ask_until(struct rlv_pool *pool, enum lease_type type,
				  uint64_t deadline_ns);
/* The job waits no more. Keeps the message of the error. */
void pool_give_up(struct rlv_pool *pool);

/* Brings a parked job back. Errors as of rlv_pool_resume. */
RLV_MUST_CHECK int pool_resume(struct rlv_pool *pool, uint64_t deadline_ns);
/* Parks, as the broker wishes. A job that cannot stays whole. */
void pool_obey(struct rlv_pool *pool);

#endif

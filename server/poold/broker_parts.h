/*
 * broker_parts.h - the inside of the broker: broker.c jobs, broker_memory.c extents, broker_give.c those that jobs
 * have, broker_gate.c iterations, broker_safe.c whether they can all end, broker_limits.c what they may have.
 */
#ifndef RLV_SERVER_POOLD_BROKER_PARTS_H
#define RLV_SERVER_POOLD_BROKER_PARTS_H

#include "server/poold/broker.h"

#include <errno.h>

static inline uint64_t broker_now(const struct broker *broker)
{
	return clock_now_ns(broker->opts.clock);
}

/* Extents of that many bytes. */
static inline uint64_t broker_extents_of(const struct broker *broker, uint64_t bytes)
{
	return bytes / broker->opts.extent_bytes + (bytes % broker->opts.extent_bytes != 0);
}

/* The roster's entry of an extent. */
static inline struct roster_extent *broker_kept(struct broker *broker, uint32_t extent)
{
	return &broker->roster.file->extents[extent];
}

static inline int broker_is_parked(const struct broker_job *job)
{
	return error_set(-EBUSY, "job %s is parked: rlv_pool_resume first", job->kept->name);
}

/* The job begins to wait, or goes on. */
void broker_waits(struct broker *broker, struct broker_job *job);
/* It got what it waited for, or gave up. */
void broker_waited(struct broker *broker, struct broker_job *job);

/* -------- broker_memory.c -------- */

/* Extents that no roster entry names from now on. */
void broker_forget_extents(struct broker *broker, uint32_t job);
/* Takes back what a job was granted and has not fetched. */
void broker_withdraw(struct broker *broker, uint32_t job);
/* Releases physical extents above the budget that are FREE. */
void broker_shrink(struct broker *broker);
/* Reads progress, frees what is quiet, grants. Returns when it is due again. */
uint64_t broker_memory_turn(struct broker *broker);

/* -------- broker_give.c -------- */

/* All that a job has in use is PENDING until its last marks are reached; presented: but what it has
   presented. */
void broker_pend_all(struct broker *broker, uint32_t job, bool presented);
/* Takes over the numbers of a job's last marks. -EINVAL: one went back. */
RLV_MUST_CHECK int broker_marks(struct broker_job *job, const uint64_t marks[LEASE_STREAMS]);

/* -------- broker_gate.c -------- */

/* Enters a job with its needs. -ENOSPC. */
RLV_MUST_CHECK int broker_gate_arrive(struct broker *broker, uint32_t job);
void broker_gate_leave(struct broker *broker, uint32_t job);
bool broker_gate_admitted(const struct broker *broker, uint32_t job);
/* Call it after the job was lent memory. Once in an iteration it counts that the job holds more than it
   declared, and tells the gate. */
void broker_gate_taken(struct broker *broker, uint32_t job);
uint64_t broker_gate_turn(struct broker *broker);

/* -------- broker_safe.c -------- */

/* Whether a job may be lent so many extents: all iterations can still end then. Where that is not so already, as jobs
   took more than they said or the budget has shrunk, the oldest may; and a job beside which none runs. */
bool broker_is_safe(const struct broker *broker, uint32_t job, uint32_t n);

#endif

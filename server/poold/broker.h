/*
 * broker.h - the memory of one device and the jobs that share it: ledger, gate, and queues.
 *
 *   TAKE ─> who waits for extents, first come first served ─ ledger ─> granted, until it is fetched
 *   BEGIN ─> gate ─> it runs, until END or the limit of an iteration
 *   GIVE ─> PENDING until the marks are reached on the job's page of progress ─> FREE
 *   its process has ended ─> all of it FREE: the device's work of a process ends with it
 *
 * A job is known by its place, 0 to LEDGER_JOBS - 1. What a job says is checked: an extent that is
 * not its own, a mark that goes back. What it was granted and does not fetch within
 * BROKER_FETCH_NS, as a stopped process, goes to the next one.
 *
 * No sockets. Nothing waits: broker_turn does what is due. Thread: owner, for all calls.
 */
#ifndef RLV_SERVER_POOLD_BROKER_H
#define RLV_SERVER_POOLD_BROKER_H

#include "device/gate.h"
#include "device/ledger.h"

#include "wire/lease_message.h"
#include "wire/lease_permit.h"

#include "base/os/clock.h"
#include "base/os/process.h"

#include "server/poold/roster.h"
#include "server/poold/scrub.h"

#define BROKER_USERS 32u
#define BROKER_FETCH_NS (500 * CLOCK_NS_PER_MS)
#define BROKER_SCRUB_NS (2 * CLOCK_NS_PER_MS) /* that a request awaits zeros */
#define BROKER_AGAIN_NS CLOCK_NS_PER_S        /* a job that asks again so soon never stopped */
#define BROKER_POLL_NS (1 * CLOCK_NS_PER_MS)  /* pages of progress, while an extent is PENDING */

struct broker_opts {
	struct backend *backend; /* borrowed */
	const struct clock *clock;
	const char *roster; /* path; NULL: it is not kept */
	uint64_t bytes;     /* of the device */
	uint64_t extent_bytes;
	uint64_t budget; /* 0: bytes */
	bool strict;
	bool scrubs; /* with strict: new memory of the backend may have somebody's bytes */
	enum gate_order order;
	enum gate_sharing sharing;
	uint32_t aging;
	uint64_t iteration_ns; /* the longest iteration; 0: any */
	uint64_t park_ns; /* so long one waits for admission before another is asked to park; 0: never */
	/* A job may repeat what was -EAGAIN. */
	void (*wake)(void *ctx, uint32_t job);
	/* Extents of a user's jobs that count beside those of this device; NULL: none. */
	uint64_t (*elsewhere)(void *ctx, uint32_t uid);
	void *ctx;
};

struct broker_job {
	enum { BROKER_NOBODY, BROKER_MEMBER, BROKER_LEAVING } state;
	bool connected;
	struct roster_job *kept; /* name, process, needs */
	const struct backend_progress *page;
	struct lease_permit *permit; /* the job writes it, too */
	struct mark_clock clock;
	uint32_t gate;
	struct curve curve;
	bool wants;                    /* it has asked to begin, and does not run */
	bool runs, told;               /* an iteration; it knows that it runs */
	bool exceeds;                  /* this iteration took more than it said */
	bool cut;                      /* its last iteration was ended by the limit */
	bool parked;                   /* its tensors are in its own memory: it needs nothing */
	bool returns;                  /* it waits to be resident again */
	bool parks, wish;              /* it parks if asked to; it is asked to */
	uint64_t resident_ns;          /* since when it is admitted; 0 = it is not */
	uint64_t began_ns, asked_ns;   /* asked_ns: 0 = it does not wait */
	uint64_t waited_ns, served_ns; /* sums */
	uint64_t first_ns, left_ns; /* it asked for admission first, 0 = never; it gave up last */
	uint64_t iterations;
	uint32_t want;    /* extents that it waits for */
	uint64_t turn;    /* among those who wait for extents */
	uint32_t granted; /* references that it has not fetched */
	uint64_t granted_ns;
	struct extent_ref refs[LEASE_REFS];
};

struct broker_extent {
	uint64_t handle;           /* 0: not created, or its descriptor has not come back */
	uint64_t last_incarnation; /* of the job that had it; 0 = none */
	bool presented;            /* by its job, which came back */
	bool dirty;                /* new, and not filled with zeros */
	bool exposed;              /* RDMA devices may know it: it goes to no other job */
};

struct broker_stats {
	uint64_t handovers, deaths, adopted, iterations, overshoots, cut;
};

struct broker_user {
	uint32_t uid;
	uint64_t quota; /* extents; 0: this place is free */
};

struct broker {
	struct broker_opts opts;
	struct ledger ledger;
	struct gate gate;
	struct roster roster;
	struct broker_job jobs[LEDGER_JOBS];
	struct broker_extent *extents;
	struct scrub scrub; /* all zero: none */
	struct broker_user users[BROKER_USERS];
	struct broker_stats stats;
	struct broker_job *alone; /* it has a permit; NULL: none has */
	uint64_t pending;         /* extents */
	uint64_t turn;            /* given last */
	uint64_t wished_ns;       /* when a job was asked to park last */
	bool drains;
};

/* Opens the pool, with the jobs of the roster. -EINVAL sizes, -ENOMEM; errors of roster_open. */
RLV_MUST_CHECK int broker_open(const struct broker_opts *opts, struct broker **broker_out);
void broker_close(struct broker **broker);

/* The process behind a request. */
struct broker_peer {
	struct process_id process;
	uint32_t uid;
};

/*
 * A new job, or one that comes back with its incarnation. pages: of progress, and with its permit; they stay the
 * caller's. -EEXIST: name
 * taken; -ESTALE: no such job here, it is to begin anew; -EINVAL: name, needs or pages; -EACCES: a
 * trusted pool has jobs of another user; -ENOSPC: it could not run even alone, or too many jobs;
 * -EBUSY: the pool is being drained.
 */
RLV_MUST_CHECK int broker_hello(struct broker *broker, const struct broker_peer *peer,
				const struct lease_hello *hello, const int pages[2],
				uint32_t *job_out);
/* A job presents extents that it holds, with their descriptors. -EINVAL: not its own, or no such
   memory. */
RLV_MUST_CHECK int broker_hold(struct broker *broker, uint32_t job,
			       const struct lease_message *message);
/* The extents that it waited for, in message: references and descriptors, which are the caller's.
   -EAGAIN: it waits for them; -ENOSPC: never as many. */
RLV_MUST_CHECK int broker_take(struct broker *broker, uint32_t job, uint32_t n,
			       struct lease_message *message_out);
RLV_MUST_CHECK int broker_give(struct broker *broker, uint32_t job, const struct lease_refs *refs);
/* A job is about to tell an RDMA device of extents that it holds. READs of a queue pair that outlives the job, as in a
   forked child, may fill them at any time: no other job gets the same physical memory. */
RLV_MUST_CHECK int broker_expose(struct broker *broker, uint32_t job,
				 const struct lease_refs *refs);
/* 0: its iteration runs. -EAGAIN: it waits. -EBUSY: one runs already. A job beside which there is none gets a permit: it
   begins and ends iterations by itself, until it or a new job calls, or broker_recall is called. */
RLV_MUST_CHECK int broker_begin(struct broker *broker, uint32_t job);
/* -EINVAL: none runs; -ETIMEDOUT: it was ended before, by the limit. */
RLV_MUST_CHECK int broker_end(struct broker *broker, uint32_t job, uint64_t remaining_ns);
/* -EBUSY: an iteration runs. */
RLV_MUST_CHECK int broker_profile(struct broker *broker, uint32_t job,
				  const struct lease_profile *profile);
/* Its tensors are in its own memory: others may be resident in its place. -EBUSY: an iteration runs. */
RLV_MUST_CHECK int broker_park(struct broker *broker, uint32_t job);
/* 0: it is resident again. -EAGAIN: it waits for admission; -ENOSPC: the budget has become too small. */
RLV_MUST_CHECK int broker_resume(struct broker *broker, uint32_t job);
/* It waits no more: a job that was to return is parked. */
void broker_cancel(struct broker *broker, uint32_t job);
/* It leaves; what it holds is free when its marks are reached. */
void broker_bye(struct broker *broker, uint32_t job, const struct lease_refs *refs);
/* What the broker says of jobs is as of now: a job that has a permit has none from now on. */
void broker_recall(struct broker *broker);
/* Its connection is gone, or new. */
void broker_connected(struct broker *broker, uint32_t job, bool connected);
/* Its process has ended. */
void broker_died(struct broker *broker, uint32_t job);

/* -EINVAL: bytes, as of broker_limit. */
RLV_MUST_CHECK int broker_check_limit(const struct broker *broker, const struct lease_limit *limit);
/* -EINVAL: bytes or name; -ENOENT: no such job; -ENOSPC: too many users. */
RLV_MUST_CHECK int broker_limit(struct broker *broker, const struct lease_limit *limit);
void broker_drain(struct broker *broker, bool on);

/* Does what is due. Returns when something is due again; DEADLINE_NEVER: after the next call of
   another function. */
uint64_t broker_turn(struct broker *broker);

/* Where a job stands, and bytes that it may take. */
struct gate_place broker_place(const struct broker *broker, uint32_t job);
uint64_t broker_room(const struct broker *broker, uint32_t job);
/* Extents that a user's jobs hold. */
uint64_t broker_user_held(const struct broker *broker, uint32_t uid);
/* The job of that name; LEDGER_JOBS: there is none. */
uint32_t broker_find(const struct broker *broker, const char *name);
/* It has no place for a job more. */
bool broker_is_full(const struct broker *broker);

/* Ledger, roster and jobs agree. -EPROTO. */
RLV_MUST_CHECK int broker_check(const struct broker *broker);

#endif

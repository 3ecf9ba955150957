/*
 * ledger.h - who holds which extent of the device, and when it may have another owner.
 *
 *             lease          map           use            last user gone
 *     FREE ────────> LEASED ─────> MAPPED ─────> ACTIVE ────────────────> PENDING(marks)
 *      ^               │             │            ^  ^─── use, same job ───┘      │ all reached
 *      └───────────────┴─────────────┴── give back│                               v
 *      └───────────────────────────────────────── │ ────────────────────────── QUIET
 *                                                 └───────── use ─────────────────┘
 *
 * Plain bookkeeping without clock, device or input. Invariants, which ledger_check proves:
 *   - an extent that is not FREE has one owner; a FREE one has none and no marks;
 *   - what all jobs hold is what they hold each, never more than their quota, and grows only while
 *     it stays within the budget;
 *   - PENDING ends only when each stream has reached its mark;
 *   - the generation rises with each lease, so that a reference to an earlier lease is -ESTALE.
 *
 * Thread: owner, for all calls. Sizes are counted in extents.
 */
#ifndef RLV_DEVICE_LEDGER_H
#define RLV_DEVICE_LEDGER_H

#include "device/marks.h"

#define LEDGER_JOBS 64u
#define LEDGER_NOBODY UINT32_MAX
#define LEDGER_NAME_BYTES 64

enum extent_state {
	EXTENT_FREE,
	EXTENT_LEASED,
	EXTENT_MAPPED,
	EXTENT_ACTIVE,
	EXTENT_PENDING,
	EXTENT_QUIET,
};

struct extent {
	enum extent_state state;
	uint32_t job; /* LEDGER_NOBODY while FREE */
	uint64_t generation;
	struct marks marks; /* of PENDING */
};

/* A lease of one extent. */
struct extent_ref {
	uint32_t extent;
	uint64_t generation;
};

struct ledger_job {
	bool attached;
	char name[LEDGER_NAME_BYTES];
	uint32_t uid;
	uint64_t quota; /* extents, at most */
	uint64_t held, peak;
	const struct mark_clock *clock; /* of its own streams; NULL: the ledger's */
};

struct ledger {
	struct extent *extents;
	uint32_t n;
	uint32_t first_free; /* none below it is FREE */
	uint64_t budget;     /* extents that jobs may hold together */
	uint64_t held;
	struct mark_clock clock;
	struct ledger_job jobs[LEDGER_JOBS];
};

/* n FREE extents. -EINVAL n 0, -ENOMEM. */
RLV_MUST_CHECK int ledger_init(struct ledger *ledger, uint32_t n, uint64_t budget);
void ledger_destroy(struct ledger *ledger);

/* -EEXIST: an attached job has that name, -EINVAL: name empty or too long, -ENOSPC: too many. */
RLV_MUST_CHECK int ledger_attach(struct ledger *ledger, const char *name, uint32_t uid,
				 uint64_t quota, uint32_t *job_out);
/* The same for a certain number. -EBUSY: it is attached. */
RLV_MUST_CHECK int ledger_attach_at(struct ledger *ledger, const char *name, uint32_t uid,
				    uint64_t quota, uint32_t job);
/* -EBUSY: it holds extents. */
RLV_MUST_CHECK int ledger_detach(struct ledger *ledger, uint32_t job);

/*
 * Leases n extents to a job, with consecutive numbers if there are such, and writes them to refs.
 * All or none. -EINVAL no such job or n 0, -ENOSPC more than budget or quota can ever give,
 * -EAGAIN others hold too much now.
 */
RLV_MUST_CHECK int ledger_lease(struct ledger *ledger, uint32_t job, uint32_t n,
				struct extent_ref *refs);

/* LEASED -> MAPPED. Here and below: -ESTALE another generation, -EINVAL another state. */
RLV_MUST_CHECK int ledger_map(struct ledger *ledger, struct extent_ref ref);
/* MAPPED, PENDING, QUIET -> ACTIVE. Reuse of PENDING is right only on the stream that used it. */
RLV_MUST_CHECK int ledger_use(struct ledger *ledger, struct extent_ref ref);
/* ACTIVE, QUIET -> PENDING until the marks are reached. */
RLV_MUST_CHECK int ledger_pend(struct ledger *ledger, struct extent_ref ref,
			       const struct marks *marks);
/* PENDING -> QUIET. -EAGAIN: a mark is not reached. */
RLV_MUST_CHECK int ledger_settle(struct ledger *ledger, struct extent_ref ref);
/* LEASED, MAPPED, QUIET -> FREE. */
RLV_MUST_CHECK int ledger_give_back(struct ledger *ledger, struct extent_ref ref);

/* A job that held an extent before holds it again, ACTIVE. -EINVAL no such job or extent, -EBUSY it
   is not FREE, -ESTALE there was a later lease. */
RLV_MUST_CHECK int ledger_adopt(struct ledger *ledger, uint32_t job, struct extent_ref ref);
/* Frees all that a job holds, whatever its marks: its process has ended, and with it all its work
   on the device. */
void ledger_reclaim(struct ledger *ledger, uint32_t job);

/* Sets the budget. What is held stays; nothing is leased while it is above. */
void ledger_limit(struct ledger *ledger, uint64_t budget);
/* -EINVAL no such job. */
RLV_MUST_CHECK int ledger_quota(struct ledger *ledger, uint32_t job, uint64_t quota);

/* Extents that a job may lease now: what is free for it, never the device's total. */
uint64_t ledger_room(const struct ledger *ledger, uint32_t job);

/* Walks everything. -EPROTO: an invariant is broken; the message names it. */
RLV_MUST_CHECK int ledger_check(const struct ledger *ledger);

/* "free", "leased", .. Static. */
const char *extent_state_name(enum extent_state state);

#endif

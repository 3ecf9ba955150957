/*
 * lease_permit.h - the permit of a job that is alone: iterations that begin and end without a message.
 *
 * It is one page, a memfd of the job that is sealed against shrinking, which job and broker both write.
 *
 *   word   0        no permit: BEGIN and END are messages
 *          4k + 1   a permit; k iterations have ended under it, and none runs
 *          4k + 2   a permit; k have ended, and one runs
 *
 *   broker   lend     0 -> 2, with the answer to BEGIN
 *            recall   any -> 0, by one exchange, which says whether an iteration runs
 *   job      begin    4k + 1 -> 4k + 2       by a CAS. If it fails there is no permit, and a message
 *            end      4k + 2 -> 4(k+1) + 1   is sent instead
 *            drop     4k + 1 -> 0
 *
 * So the two agree on whether an iteration runs, wherever the recall comes, and neither waits for the other: a job that
 * is stopped or dead, too. Each side takes what it reads as a hint of the other's: the broker bounds it, and decides
 * nothing by it that a message of the job could not have said.
 *
 *   offset size
 *        0    8  word
 *        8    8  when the last iteration began, CLOCK_MONOTONIC in ns
 *       16   16  ns of the iterations that have ended: of the first k at k mod 2, as the job may have written
 *                the next one when its CAS fails
 */
#ifndef RLV_WIRE_LEASE_PERMIT_H
#define RLV_WIRE_LEASE_PERMIT_H

#include <stdbool.h>

#include "wire/le.h"

struct lease_permit {
	_Atomic uint64_t word;
	_Atomic uint64_t began_ns;
	_Atomic uint64_t used_ns[2];
};

WIRE_SIZE(lease_permit, 32);
WIRE_AT(lease_permit, began_ns, 8);
WIRE_AT(lease_permit, used_ns, 16);

/* What a job says of its iterations under a permit. */
struct lease_permit_use {
	uint64_t ended;    /* so many, */
	uint64_t used_ns;  /* which took so long */
	uint64_t began_ns; /* of the one that runs */
	bool runs;
};

/* -------- the broker -------- */

/* To a job without a permit, whose iteration has begun. */
void lease_permit_lend(struct lease_permit *permit, uint64_t began_ns);
/* It has none from now on. */
struct lease_permit_use lease_permit_recall(struct lease_permit *permit);

/* -------- the job; one thread at a time -------- */

/* True if it may begin by the permit. */
bool lease_permit_allows(const struct lease_permit *permit);
/* False: there is no permit, ask. */
bool lease_permit_begin(struct lease_permit *permit, uint64_t now_ns);
/* False: there is no permit, say so. */
bool lease_permit_end(struct lease_permit *permit, uint64_t now_ns);
/* Between iterations: the broker is gone. */
void lease_permit_drop(struct lease_permit *permit);

#endif

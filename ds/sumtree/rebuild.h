/*
 * Rebuild: makes the inner sums of all views of a shard exact again, during normal operation
 * (rule 7).
 *
 *            CAS            wait for pins >= e,               walk: CAS every leaf's
 *   NORMAL(e) --> ZERO(me)  then zero arr[e+1]  --> DUAL(me)  tag e -> e+1, its priority
 *      ^                                                      added to arr[e+1]
 *      +----------------- CAS {e, DUAL, me} -> {e+1, NORMAL} ----------+
 *
 * Leaves are the truth. No data path ever waits for a pass; a pass waits for clients in a call
 * of an older epoch, and reports which.
 *
 * The state is in the epoch word of the shard, so an interrupted pass can be continued: by the
 * same owner (its earlier life has ended), or by another once the owner was fenced
 * (ds/part/fence.h makes the word ownerless). In ZERO a successor waits and zeroes again. In
 * DUAL it finishes the walk; the pending additions of its predecessor are lost, so it raises
 * `dirty`, and another pass must follow.
 *
 * Exact = dirty was equal before and after, and no answer was lost: then clean := dirty.
 */
#ifndef RLV_DS_SUMTREE_REBUILD_H
#define RLV_DS_SUMTREE_REBUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/os/clock.h"
#include "base/error.h"

/* A rebuild pass waits until this client withdraws its epoch pin (ds/part/epoch.h). */
struct rebuild_wait {
	uint32_t owner;
	uint32_t pid;
	uint64_t pin;
	uint32_t epoch; /* epoch that the pin must reach */
};

struct rebuild_opts {
	uint32_t owner;            /* the rebuilder: 1 + its client slot */
	const struct clock *clock; /* NULL = monotonic */
	uint64_t deadline_ns;      /* for all waiting, on clock; 0 = check once */
	/*
	 * Called between two checks of the pins; may sleep. A non-zero result ends the wait, and is
	 * the result of the pass. NULL = sleep 200 us.
	 */
	int (*idle)(void *ctx, const struct rebuild_wait *wait);
	void *ctx;
};

struct rebuild_report {
	uint32_t epoch;     /* in force now */
	uint32_t passes;    /* finished */
	uint32_t takeovers; /* passes found begun */
	bool clean;         /* the sums are exact: no further pass is needed */
	bool waiting;       /* the call ended while it waited for `wait` */
	struct rebuild_wait wait;
	uint64_t live_leaves;   /* seen by the last pass, all views */
	uint64_t repaired_tags; /* leaves found with a tag of no current epoch */
	uint64_t lost_answers;  /* atomics without a result: another pass follows */
};

/*
 * Runs one rebuild pass, or finishes the one that was begun in the shard. Adds to *report, which
 * the caller zeroes once.
 * Errors: -EINVAL (owner), -EBUSY (another live owner runs it; the message names it), -EAGAIN
 * (still waiting for report->wait at the deadline), the code of the idle hook, those of the
 * transport. After any of them call again: the pass continues.
 * Cost: leaves / 256 x 2 phases, and nodes / 256; about 25 ns a leaf on shm.
 * Thread: one at a time for each owner.
 */
RLV_MUST_CHECK int sumtree_rebuild_pass(struct shard *shard, const struct rebuild_opts *opts,
					struct rebuild_report *report);

/*
 * Runs passes until one is clean, at most max_passes. Errors: those of sumtree_rebuild_pass, and
 * -EAGAIN if none was clean.
 */
RLV_MUST_CHECK int sumtree_rebuild_until_clean(struct shard *shard, const struct rebuild_opts *opts,
					       uint32_t max_passes, struct rebuild_report *report);

#endif

/*
 * Rebuild: makes the inner sums of all views of a shard exact again, while others go on (rule 7).
 *
 *            CAS            wait for promises >= e,           walk: CAS every leaf's
 *   NORMAL(e) --> ZERO(me)  then zero arr[e+1]  --> DUAL(me)  tag e -> e+1, its priority
 *      ^                                                      added to arr[e+1]
 *      +----------------- CAS {e, DUAL, me} -> {e+1, NORMAL} ----------+
 *
 * Leaves are the truth. Nobody on a data path ever waits for a pass; a pass waits for
 * clients that are in the middle of a call of an older epoch, and says for whom.
 *
 * The state stands in the shard's epoch word, so a pass can be left at any point and gone on with:
 * by the same owner (its earlier life is over), or by another one once the owner was fenced
 * (ds/part/fence.h makes the word ownerless). In ZERO a successor waits and zeroes again; in DUAL it
 * finishes the walk, and since the additions that its predecessor had not made are lost, it
 * raises `dirty`, so that another pass must follow.
 *
 * Exact = dirty was the same before and after, and no answer got lost: then clean := dirty.
 */
#ifndef RLV_DS_SUMTREE_REBUILD_H
#define RLV_DS_SUMTREE_REBUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/os/clock.h"
#include "base/error.h"

/* Whose promise a pass waits for. */
struct rebuild_wait {
	uint32_t owner;
	uint32_t pid;
	uint64_t pin;
	uint32_t epoch; /* that it would have to reach */
};

struct rebuild_opts {
	uint32_t owner;            /* the rebuilder: 1 + its client slot */
	const struct clock *clock; /* NULL = monotonic */
	uint64_t deadline_ns;      /* of all waiting, on clock; 0 = look once */
	/* Called between two looks, sleeps as it likes; non-zero ends the wait with that code. NULL
	   = sleep 200 us. */
	int (*idle)(void *ctx, const struct rebuild_wait *wait);
	void *ctx;
};

struct rebuild_report {
	uint32_t epoch;     /* in force now */
	uint32_t passes;    /* finished */
	uint32_t takeovers; /* passes that were found begun */
	bool clean;         /* the sums are exact: nothing happened that needs another pass */
	bool waiting;       /* the call ended in front of `wait` */
	struct rebuild_wait wait;
	uint64_t live_leaves;   /* seen by the last pass, all views */
	uint64_t repaired_tags; /* leaves found with a tag of no current epoch */
	uint64_t lost_answers;  /* atomics without a result: another pass follows */
};

/*
 * One pass from where the shard stands. *report is added to, so the caller zeroes it once.
 * Errors: -EINVAL (owner), -EBUSY (another live owner runs it; the message says who), -EAGAIN
 * (waits for report->wait at the deadline), the idle hook's, those of the transport. After any of
 * them call again: the pass goes on where it was.
 * Cost: leaves / 256 x 2 phases, and nodes / 256; about 25 ns a leaf on shm. Thread: one at a time
 * for each owner.
 */
RLV_MUST_CHECK int sumtree_rebuild_pass(struct shard *shard, const struct rebuild_opts *opts,
					struct rebuild_report *report);

/*
 * Passes until one is clean, at most max_passes. -EAGAIN also when the last of them was not.
 */
RLV_MUST_CHECK int sumtree_rebuild_until_clean(struct shard *shard, const struct rebuild_opts *opts,
					       uint32_t max_passes, struct rebuild_report *report);

#endif

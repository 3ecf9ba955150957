/*
 * Admission: the limiter of one view (ds/limiter/limiter.h) for a handle, in the current control
 * shard.
 *
 * The shard whose words count is named by the metadata server, which names another when that one is
 * lost and carries the counts over. A handle opens the limiter there anew. In between, views
 * without limiter bounds continue uncounted; calls on the others get -EHOSTDOWN.
 *
 * No call waits for the sample counts of a view without bounds: over a wire, one FAA adds those of
 * HELD_CALLS calls.
 */
#ifndef RLV_CLIENT_TABLE_ADMISSION_H
#define RLV_CLIENT_TABLE_ADMISSION_H

#include "client/table/handle.h"

#include "ds/limiter/limiter.h"

struct admission {
	struct limiter lim;
	uint32_t view;
	uint32_t control; /* shard that lim is of */
	uint32_t owner;   /* slot that holds its counts; 0 = a reader, without a slot */
	uint64_t opened;  /* when that shard was opened: of another connection, lim is stale */
	bool here;        /* the control shard is open */
	uint64_t inserts, samples; /* admitted in the call in progress */
	uint64_t held;             /* samples not counted yet, */
	uint32_t held_calls;       /* from this many calls */
};

/* Begins with the limiter of that view in the control shard, if that is open. The slot of h must
   be a fresh one, without counts. */
void admission_init(struct admission *adm, const struct handle *h, uint32_t view);

/* Called before a shard is closed; if it is the control shard, its memory is not accessed any
   more until admission_follow. */
static inline void admission_leave(struct admission *adm, uint32_t shard)
{
	adm->here = adm->here && shard != adm->control;
}

/* Called after the shards or slot of h changed: opens the limiter in the current control shard,
   and reserves there what the call in progress has admitted. Errors: those of the transport. */
RLV_MUST_CHECK int admission_follow(struct admission *adm, const struct handle *h);

/* Admits n items, with the errors of limiter_try_*. While the control shard is unreachable:
   -EHOSTDOWN if the limiter has bounds, else 0. */
RLV_MUST_CHECK int admission_try_insert(struct admission *adm, uint64_t n);
RLV_MUST_CHECK int admission_try_sample(struct admission *adm, uint64_t n);

/*
 * Commits `done` of the n admitted items and gives the rest back, as limiter_commit_*. Losing the
 * control shard is not an error: published and returned items stay, and the server settles the
 * counts.
 */
RLV_MUST_CHECK int admission_commit_insert(struct admission *adm, uint64_t n, uint64_t done);
RLV_MUST_CHECK int admission_commit_sample(struct admission *adm, uint64_t n, uint64_t done);

/* Waits until what was committed is counted, as limiter_wait; a no-op while the control shard is away. */
RLV_MUST_CHECK int admission_wait(struct admission *adm);

/* Adds adm->held, samples not counted yet, to the counts in the control shard; a no-op while
   that is away. */
RLV_MUST_CHECK int admission_flush(struct admission *adm);

/* Writes why an insert or sample of n waits: at most WATCH_TEXT_BYTES. */
void admission_explain_insert(struct admission *adm, const struct table_desc *desc, uint64_t n,
			      char *text);
void admission_explain_sample(struct admission *adm, const struct table_desc *desc, uint64_t n,
			      char *text);

/* Reads the limiter's counts. -EHOSTDOWN: the control shard is unreachable. */
RLV_MUST_CHECK int admission_read(struct admission *adm, struct limiter_words *out);

#endif

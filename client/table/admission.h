/*
 * Admission: the limiter of one view (ds/limiter/limiter.h) for a handle, wherever the control shard is.
 *
 * The shard whose words count is named by the metadata server, which names another when that one is
 * lost and carries the counts over. A handle takes the law up there as a fresh one. In between,
 * views whose law has no bounds go on, uncounted; calls on the others get -EHOSTDOWN.
 *
 * Nobody waits for the samples of a view without bounds: over a wire they are counted together, those of
 * HELD_CALLS calls by one FAA.
 */
#ifndef RLV_CLIENT_TABLE_ADMISSION_H
#define RLV_CLIENT_TABLE_ADMISSION_H

#include "client/table/handle.h"

#include "ds/limiter/limiter.h"

struct admission {
	struct limiter lim;
	uint32_t view;
	uint32_t control; /* shard that lim is of */
	uint32_t owner;   /* slot that it counts in; 0 = a reader's, who has none */
	uint64_t opened;  /* when that shard was opened: of another connection, lim is stale */
	bool here;        /* the control shard is open */
	uint64_t inserts, samples; /* admitted in the call in progress */
	uint64_t held;             /* samples that are not counted yet, */
	uint32_t held_calls;       /* of so many calls */
};

/* The slot of h is fresh. */
void admission_init(struct admission *adm, const struct handle *h, uint32_t view);

/* A shard will be closed: nothing of it is touched any more. */
static inline void admission_leave(struct admission *adm, uint32_t shard)
{
	adm->here = adm->here && shard != adm->control;
}

/* Shards or slot of h have changed. */
RLV_MUST_CHECK int admission_follow(struct admission *adm, const struct handle *h);

/* As limiter_try_*; -EHOSTDOWN: the law has bounds, and the control shard is away. */
RLV_MUST_CHECK int admission_try_insert(struct admission *adm, uint64_t n);
RLV_MUST_CHECK int admission_try_sample(struct admission *adm, uint64_t n);

/*
 * As limiter_commit_*. That the control shard was lost is no error: what was published or handed
 * over is, and the server settles the counts.
 */
RLV_MUST_CHECK int admission_commit_insert(struct admission *adm, uint64_t n, uint64_t done);
RLV_MUST_CHECK int admission_commit_sample(struct admission *adm, uint64_t n, uint64_t done);

/* Counts what is held. */
RLV_MUST_CHECK int admission_flush(struct admission *adm);

/* Writes what an insert or sample of n waits for: at most WATCH_TEXT_BYTES. */
void admission_explain_insert(struct admission *adm, const struct table_desc *desc, uint64_t n,
			      char *text);
void admission_explain_sample(struct admission *adm, const struct table_desc *desc, uint64_t n,
			      char *text);

/* -EHOSTDOWN: away. */
RLV_MUST_CHECK int admission_read(struct admission *adm, struct limiter_words *out);

#endif

/*
 * Change: the changes of one call to the leaves of several shards, in all of their views.
 *
 *   in place   shard by shard, by the verbs of ds/sumtree/sumtree.h
 *   chained    a chain for each shard: pin | rows | CAS of every leaf; the chains of all shards run
 *              together, which is one phase. A CAS that found another word is repeated in the next
 *              round. Then the additions are posted, with the withdrawal of the pin behind them
 *              (access_leave).
 *
 * Rows travel ahead of the CASes that publish them (P1), so a steady insert is one phase.
 */
#ifndef RLV_DS_REPLAY_CHANGE_H
#define RLV_DS_REPLAY_CHANGE_H

#include <stdint.h>
#include <string.h>

#include "ds/replay/shard.h"

#include "base/error.h"

struct shard_change {
	struct access *acc;
	struct leaf_op *ops[RING_MAX_VIEWS]; /* distinct leaves of each view; in and out */
	uint32_t n[RING_MAX_VIEWS];
	uint64_t most; /* update: no priority is above it; 0 = unknown */
	/* Publish, rows not built in place: WRITEs sent ahead; kept until the call returns. */
	const struct transport_io *rows;
	uint32_t n_rows;
	int ret; /* out: 0 or the error of this shard */
};

/* Begins a change of a shard, as yet without ops. Field by field: this is done for each shard of a call. */
static inline void change_begin(struct shard_change *ch, struct access *acc)
{
	ch->acc = acc;
	memset(ch->n, 0, sizeof(ch->n)); /* without which nobody reads ops */
	ch->most = 0;
	ch->rows = NULL;
	ch->n_rows = 0;
	ch->ret = 0;
}

/*
 * Publishes, updates or consumes the ops of n changes, one for each shard: enters and leaves their
 * accesses, and raises the running maxima of prioritized views to the priorities stored. Returns
 * the first non-zero ret; the other shards are still changed. If ret is 0 each op has its result;
 * after an error ops without an answer are LEAF_UNKNOWN.
 * Errors: those of access_enter and access_leave; publish: those of sumtree_publish_ops.
 * Cost: publish 1 phase; update and consume 1 if the words are still the leaves, 2 if they were not
 * read; for up to 64 shards. A CAS that loses against another client repeats.
 * Thread: owner of the accesses.
 */
RLV_MUST_CHECK int change_publish(struct shard_change *changes, uint32_t n);
RLV_MUST_CHECK int change_update(struct shard_change *changes, uint32_t n);
RLV_MUST_CHECK int change_consume(struct shard_change *changes, uint32_t n);

#endif

/*
 * Change: what one call changes in the leaves of several shards, in all of their views.
 *
 *   in place   shard by shard, by the verbs of ds/sumtree/sumtree.h
 *   chained    a chain for each shard: promise | rows | CAS of every leaf; the chains of all shards
 *              run together, which is one phase. What a CAS finds that it did not expect goes into
 *              the next round. Then the additions are posted, and the end of the promise behind
 *              them (access_leave).
 *
 * Rows travel ahead of the CASes that publish them (P1), so a steady insert is one phase.
 */
#ifndef RLV_DS_REPLAY_CHANGE_H
#define RLV_DS_REPLAY_CHANGE_H

#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/error.h"

struct shard_change {
	struct access *acc;
	struct leaf_op *ops[RING_MAX_VIEWS]; /* distinct leaves of each view; results go there */
	uint32_t n[RING_MAX_VIEWS];
	/* Publish, where rows are not built in place: WRITEs that go before. The caller keeps the
	   rows until the call returns. */
	const struct transport_io *rows;
	uint32_t n_rows;
	int ret; /* out: what became of this shard */
};

/*
 * Each enters and leaves the accesses of its changes, one for each shard, n of any number; raises
 * the running maxima of prioritized views by what was stored. Returns the first ret that is not 0;
 * the others are done all the same. Where ret is 0 each op has its result; after an error those
 * without an answer are LEAF_UNKNOWN.
 * Errors: those of access_enter and access_leave; publish: those of sumtree_publish_ops.
 * Cost: publish 1 phase, update and take 1 when the words are still the leaves, 2 when they were
 * not seen; for up to 64 shards. A CAS that loses against another client repeats. Thread: owner of
 * the accesses.
 */
RLV_MUST_CHECK int change_publish(struct shard_change *changes, uint32_t n);
RLV_MUST_CHECK int change_update(struct shard_change *changes, uint32_t n);
RLV_MUST_CHECK int change_consume(struct shard_change *changes, uint32_t n);

#endif

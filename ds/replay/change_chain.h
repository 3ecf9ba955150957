/*
 * change_chain.h - private to ds/: rounds of chains that change leaves, without enter and leave.
 */
#ifndef RLV_DS_REPLAY_CHANGE_CHAIN_H
#define RLV_DS_REPLAY_CHANGE_CHAIN_H

#include "ds/replay/change.h"
#include "ds/sumtree/change.h"

#define CHANGE_SHARDS 64u /* chains that run together */

/* A word that is no leaf, to be set whatever it holds: counts. Claims only. */
struct word_op {
	uint64_t off;
	uint64_t seen; /* as last read */
	uint64_t want;
};

struct chain_change {
	struct shard_change *change;
	struct word_op *words;
	uint32_t n_words;
	bool damaged; /* the last round met tags of no epoch */
};

/*
 * Runs n <= CHANGE_SHARDS of them to their end, of entered and chained accesses; those whose ret is
 * not 0 are left out. What happened is in ret and in the results.
 */
void change_by_chains(enum change_verb verb, struct chain_change *ccs, uint32_t n);

#endif

/* change_chain.h - private to ds/: rounds of chains that change leaves, without enter and leave. */
#ifndef RLV_DS_REPLAY_CHANGE_CHAIN_H
#define RLV_DS_REPLAY_CHANGE_CHAIN_H

#include "ds/replay/change.h"
#include "ds/sumtree/change.h"

#define CHANGE_SHARDS 64u /* chains that run together */

/*
 * A word other than a leaf (a count of samples), set without a check of its old value. Claims only.
 */
struct word_op {
	uint64_t off;
	uint64_t seen; /* as last read */
	uint64_t want;
};

struct chain_change {
	struct shard_change *change;
	struct word_op *words;
	uint32_t n_words;
	bool leaves;  /* the access is left behind it: its chain may withdraw the pin */
	bool guarded; /* the chain has what follows its CASes, too */
	bool damaged; /* the last round found tags of no epoch */
};

/*
 * Runs rounds of chains until n <= CHANGE_SHARDS changes are complete, of accesses that are chained
 * and entered. Skips changes with a non-zero ret. Sets ret of each, and the results of its ops.
 */
void change_by_chains(enum change_verb verb, struct chain_change *ccs, uint32_t n);

#endif

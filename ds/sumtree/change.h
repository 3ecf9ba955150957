/*
 * change.h - private to ds/: how a leaf word is changed, independent of the carrier: an
 * instruction in place (ds/sumtree/sumtree.c), or a chain over a wire (ds/replay/change.c).
 */
#ifndef RLV_DS_SUMTREE_CHANGE_H
#define RLV_DS_SUMTREE_CHANGE_H

#include "ds/part/epoch.h"
#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/deferred.h"
#include "ds/sumtree/nodes.h"

#include "wire/sumtree_layout.h"

#include "base/bits.h"
#include "base/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/* Every lost CAS is another client's success; this many in a row are a bug, not contention. */
#define CHANGE_ROUNDS 10000

enum change_verb { CHANGE_CLAIM, CHANGE_PUBLISH, CHANGE_UPDATE, CHANGE_CONSUME };

/* One call of a verb. */
struct change {
	const struct sumtree *tree;
	struct epoch *ep;
	struct tree_deltas *deltas;
	uint32_t steady; /* the tag that most leaves have and keep; UINT32_MAX = none */
	bool refresh;    /* a tag outside our view of the epoch was found */
	bool damaged;    /* the view was current, so the tag belongs to no epoch */
};

/*
 * True if the verb may replace this word: a claim any; else one of op->gen, publish without, update
 * and consume with a priority.
 */
static inline bool word_fits(enum change_verb verb, const struct leaf_op *op, uint64_t word)
{
	if (verb == CHANGE_CLAIM)
		return true;
	return leaf_gen(word) == op->gen && (leaf_priority(word) == 0) == (verb == CHANGE_PUBLISH);
}

static inline uint32_t steady_tag(const struct epoch *ep)
{
	return ep->mode == EPOCH_DUAL ? UINT32_MAX : ep->number & 3u;
}

/*
 * Adds the difference of the swap `from` -> `to` of a leaf to the deltas, in the array that each
 * word's tag names (rule 7). The mode of the view only tells whether a migrated leaf is still
 * counted in the older array, too.
 */
static inline void count_swap(const struct change *c, uint32_t slot, uint64_t from, uint64_t to)
{
	uint64_t old = leaf_priority(from), new = leaf_priority(to);
	uint32_t node = c->tree->flat + node_parent(c->tree, 0, slot), tag = leaf_tag(from);
	int64_t sum = (int64_t)(new - old), size = (int64_t)(new != 0) - (int64_t)(old != 0);
	struct delta_side *side = &c->deltas->side[tag & 1];

	tree_deltas_add(side, node, sum);
	side->size += size;
	if (__builtin_expect(c->ep->mode != EPOCH_DUAL, 1))
		return;
	side = &c->deltas->side[~tag & 1];
	if (tag != leaf_tag(to)) { /* it migrates: all of it is new there */
		sum = (int64_t) new;
		size = new != 0;
	}
	tree_deltas_add(side, node, sum);
	side->size += size;
}

/*
 * Returns the tag of words written under ep's view: the next epoch's in DUAL mode, else the current
 * one's.
 */
static inline uint32_t tag_now(const struct epoch *ep)
{
	return (ep->number + (ep->mode == EPOCH_DUAL)) & 3u;
}

/*
 * Replaces *tag, of the word found, by the tag to write over it; false if the view has none, so the
 * epoch must be read again. A tag of no epoch is damage: a rebuild moves it on like any other
 * (ds/sumtree/migrate.c), and so does a client that changes the leaf.
 */
static inline bool find_tag(const struct change *c, uint32_t *tag)
{
	if (*tag == c->steady || epoch_next_tag(c->ep, *tag, tag) == 0)
		return true;
	*tag = tag_now(c->ep);
	return c->damaged;
}

/*
 * Returns the word as counted in the sums; with the current epoch's tag if its own is damaged: that
 * carries no information, and the sums may be wrong.
 */
static inline uint64_t counted_word(const struct change *c, uint64_t word)
{
	uint32_t tag = leaf_tag(word);

	if (tag == c->steady || epoch_next_tag(c->ep, tag, &tag) == 0)
		return word;
	return leaf_make(c->ep->number, leaf_gen(word), leaf_priority(word));
}

/* Returns the word that an op writes over op->word. *look_out: it writes nothing and only reads. */
static inline uint64_t wanted_word(const struct change *c, enum change_verb verb,
				   const struct leaf_op *op, bool *look_out)
{
	uint32_t tag = leaf_tag(op->word);
	uint64_t priority = 0;

	*look_out = !word_fits(verb, op, op->word) || !find_tag(c, &tag);
	if (*look_out)
		return op->word;
	if (verb == CHANGE_UPDATE)
		priority = max_u64(1, min_u64(op->priority, c->tree->max_prio));
	else if (verb == CHANGE_PUBLISH)
		priority = min_u64(op->priority, c->tree->max_prio);
	return leaf_make(tag, op->gen, priority);
}

/*
 * Handles the word found by an op that changed nothing; op->word becomes that word. True = retry
 * with it. False = op->result is LEAF_STALE (another generation) or LEAF_ABSENT.
 */
static inline bool judge(struct change *c, enum change_verb verb, struct leaf_op *op,
			 uint64_t found)
{
	bool as_seen = found == op->word;

	op->word = found;
	if (!word_fits(verb, op, found)) {
		op->result = leaf_gen(found) != op->gen ? LEAF_STALE : LEAF_ABSENT;
		return false;
	}
	/* The word was as expected but not replaceable: its tag is outside our view. */
	c->refresh |= as_seen;
	return true;
}

/*
 * Re-reads the epoch after a tag outside the view. *damaged_out: the view was and still is
 * current, so the tag belongs to no epoch.
 */
static inline int see_epoch_again(struct epoch *ep, bool *damaged_out)
{
	uint32_t number = ep->number;
	enum epoch_mode mode = ep->mode;
	int ret = epoch_refresh(ep);

	*damaged_out = ret == 0 && ep->number == number && ep->mode == mode;
	ep->damaged |= *damaged_out;
	return ret;
}

static inline int refresh_view(struct change *c)
{
	int ret = c->refresh ? see_epoch_again(c->ep, &c->damaged) : 0;

	c->refresh = false;
	c->steady = steady_tag(c->ep);
	return ret;
}

static inline int too_many_rounds(const struct leaf_op *op)
{
	return error_set(-EAGAIN, "sum tree: slot %u changed under %d CAS", op->slot,
			 CHANGE_ROUNDS);
}

/*
 * Returns the word that a publish expects: gen without a priority, usually claimed under the epoch
 * of the view.
 */
static inline uint64_t claimed_word(const struct epoch *ep, uint32_t gen)
{
	return leaf_make(tag_now(ep), gen, 0);
}

/*
 * Updates leaves of c->tree that all have the tag c->steady and their words as seen. Stops at the first other
 * op; returns the number done. Room for n deltas was reserved.
 */
uint32_t sumtree_update_steadily(const struct change *c, struct leaf_op *ops, uint32_t n);

/*
 * Returns 0 if all n leaves are published, else the worst: -EOWNERDEAD (another generation) or -EIO
 * (an answer was lost) before -EEXIST (published already).
 */
RLV_MUST_CHECK int sumtree_publish_result(const struct leaf_op *ops, size_t n);

#endif

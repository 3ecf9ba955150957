/*
 * change_chain.c - rounds of chains: makes them, and handles their answers.
 */
#include "ds/replay/change_chain.h"

#include "ds/replay/priority.h"
#include "ds/sumtree/tops.h"

#include "transport/wait_set.h"

#include "base/bits.h"

#include <errno.h>

/*
 * Note of a request: a leaf op of a view, which may only read (LOOK), or a word op. All are
 * below NOTE_MAX.
 */
#define INDEX_BITS 26
#define INDEX_MASK ((UINT32_C(1) << INDEX_BITS) - 1)
#define WORD_OP (UINT32_C(8) << INDEX_BITS) /* in place of a view */
#define LOOK (UINT32_C(16) << INDEX_BITS)

static uint32_t note_view(uint32_t note)
{
	return note >> INDEX_BITS & 7u;
}

/* -------- one round -------- */

static struct change view_change(const struct chain_change *cc, uint32_t view)
{
	struct access *owner = cc->change->acc;
	const struct access *acc = owner;

	return (struct change){
		.tree = &acc->shard->trees[view],
		.ep = &owner->epoch,
		.deltas = acc->deltas[view],
		.steady = steady_tag(&acc->epoch),
		.damaged = cc->damaged,
	};
}

static uint32_t prepare_leaf(const struct change *c, enum change_verb verb,
			     const struct leaf_op *op, struct transport_wr *wr)
{
	bool look;
	uint64_t wanted = wanted_word(c, verb, op, &look);

	*wr = wr_swap(c->tree->region, leaf_off(c->tree, op->slot), op->word, wanted);
	return look ? LOOK : 0;
}

static struct transport_wr word_swap(const struct access *acc, const struct word_op *op)
{
	return wr_swap(acc->shard->tree, op->off, op->seen, op->want);
}

/*
 * Makes the chain of a change: pin and rows, once, ahead of all changes; then the CASes.
 * E7 pairs with E8: the pin, then the CASes that it covers.
 * P1 pairs with V1: the rows, then the leaves that publish them.
 */
static int first_round(enum change_verb verb, struct chain_change *cc)
{
	struct shard_change *ch = cc->change;
	struct access *acc = ch->acc;
	struct wr_list *list = &acc->chain;
	uint64_t total = 1 + (uint64_t)ch->n_rows + cc->n_words;
	uint32_t n_views = acc->shard->desc.n_views;
	struct transport_wr pin;
	int ret;

	for (uint32_t v = 0; v < n_views; v++)
		total += (uint64_t)ch->n[v] + 1;
	if (total > INDEX_MASK)
		return error_set(-EINVAL, "%llu changes in one call: too many",
				 (unsigned long long)total);
	ret = wr_list_reserve(list, (uint32_t)total);
	if (ret)
		return ret;
	list->n = 0;
	if (epoch_pin(&acc->epoch, &pin))
		*wr_list_add(list, NOTE_NONE) = pin;
	for (uint32_t i = 0; i < ch->n_rows; i++)
		*wr_list_add(list, NOTE_NONE) =
			(struct transport_wr){ .verb = VERB_WRITE, .io = ch->rows[i] };
	for (uint32_t v = 0; v < n_views; v++) {
		struct change c = view_change(cc, v);

		for (uint32_t i = 0; i < ch->n[v]; i++) {
			struct transport_wr *wr = wr_list_add(list, v << INDEX_BITS | i);

			list->notes[list->n - 1] |= prepare_leaf(&c, verb, &ch->ops[v][i], wr);
		}
	}
	for (uint32_t i = 0; i < cc->n_words; i++)
		*wr_list_add(list, WORD_OP | i) = word_swap(acc, &cc->words[i]);
	/* Updates read the maxima, which they may have to raise. */
	for (uint32_t v = 0; verb == CHANGE_UPDATE && v < n_views; v++)
		if (ch->n[v])
			*wr_list_add(list, NOTE_NONE) =
				wr_read(acc->shard->tree, priority_max_off(acc->shard, v),
					&acc->max_seen[v], sizeof(acc->max_seen[v]));
	return 0;
}

/* The word op of a note; NULL = the note is of a leaf. */
static struct word_op *word_of(const struct chain_change *cc, uint32_t note)
{
	return cc->words && (note & WORD_OP) ? &cc->words[note & INDEX_MASK] : NULL;
}

/*
 * Handles the answers of a round: sets the results of ops that are done, and moves the notes of ops
 * to be tried again to the front of the list, whose length is then their number. *refresh: a tag
 * was outside the view of the epoch.
 */
static int change_digest(enum change_verb verb, struct chain_change *cc, bool *refresh)
{
	struct shard_change *ch = cc->change;
	struct wr_list *list = &ch->acc->chain;
	uint32_t left = 0;

	for (uint32_t k = 0; k < list->n; k++) {
		uint32_t note = list->notes[k];
		const struct transport_atomic *cas = &list->wrs[k].atomic;
		bool answered = cas->status == ATOMIC_DONE, again = false;
		struct word_op *word;
		struct leaf_op *op;
		struct change c;
		int ret;

		if (note >= NOTE_MAX) /* of no op */
			continue;
		word = word_of(cc, note);
		if (word) { /* with no answer again from the same word: all outcomes are safe */
			if (answered)
				word->seen = cas->old;
			if (!answered || cas->old != cas->expected)
				list->notes[left++] = note;
			continue;
		}
		c = view_change(cc, note_view(note));
		ret = tree_deltas_reserve(c.tree, c.deltas, 1);
		if (ret)
			return ret;
		op = &ch->ops[note_view(note)][note & INDEX_MASK];
		if (!answered) {
			op->result = LEAF_UNKNOWN;
		} else if (cas->old != cas->expected || note & LOOK) {
			again = judge(&c, verb, op, cas->old);
		} else {
			op->result = LEAF_DONE;
			count_swap(&c, op->slot, counted_word(&c, cas->expected), cas->value);
		}
		*refresh |= c.refresh;
		if (again)
			list->notes[left++] = note;
	}
	list->n = left;
	return 0;
}

/* -------- what follows if all succeed -------- */

/* Counts the swaps of a chain as if each of them had succeeded. */
static int count_all(struct chain_change *cc, uint32_t n)
{
	struct wr_list *list = &cc->change->acc->chain;

	for (uint32_t k = 0; k < n; k++) {
		uint32_t note = list->notes[k];
		const struct transport_atomic *cas;
		struct change c;
		int ret;

		if (note >= NOTE_MAX || word_of(cc, note))
			continue;
		c = view_change(cc, note_view(note));
		ret = tree_deltas_reserve(c.tree, c.deltas, 1);
		if (ret)
			return ret;
		cas = &list->wrs[k].atomic;
		count_swap(&c, cc->change->ops[note_view(note)][note & INDEX_MASK].slot,
			   counted_word(&c, cas->expected), cas->value);
	}
	return 0;
}

/* Additions that were shown to private sums did not happen: these are read again. */
static void forget_tops(struct access *acc)
{
	for (uint32_t v = 0; v < acc->shard->desc.n_views; v++)
		if (acc->deltas[v] && acc->deltas[v]->tops)
			acc->deltas[v]->tops->due = true;
}

/* True if a request only looks at a leaf. */
static bool looks(const struct wr_list *list)
{
	bool found = false;

	for (uint32_t k = 0; k < list->n; k++)
		found |= list->notes[k] < NOTE_MAX && list->notes[k] & LOOK;
	return found;
}

/*
 * Adds to the chain of the first round, guarded, what is otherwise posted behind it: the additions, and the
 * withdrawal of the pin. A chain that is too long for that stays as it was.
 */
static int add_guarded(struct chain_change *cc)
{
	struct access *acc = cc->change->acc;
	const struct transport *tr = acc->shard->tree->tr;
	struct wr_list *list = &acc->chain;
	uint32_t n = list->n;
	struct transport_wr withdraw;
	int ret;

	if (!(tr->caps & TRANSPORT_GUARDS) || looks(list))
		return 0;
	access_add_to(acc, list);
	ret = count_all(cc, n);
	if (ret == 0)
		ret = access_flush_sums(acc);
	if (ret == 0)
		ret = wr_list_reserve(list, list->n + 1);
	access_add_to(acc, &acc->unwaited.chains[acc->unwaited.next].list);
	acc->unwaited.lost |= ret != 0; /* deltas that belong to nothing may be left */
	if (ret || list->n >= transport_chain_most(tr)) {
		list->n = n;
		forget_tops(acc);
		return ret;
	}
	if (epoch_withdrawal(&acc->epoch, &withdraw))
		*wr_list_add(list, NOTE_NONE) = withdraw;
	for (uint32_t k = n; k < list->n; k++)
		list->wrs[k].guard = true;
	cc->guarded = list->n > n;
	return 0;
}

/*
 * True if a chain with guarded requests is done with all of them: then its ops are, too, and counted. Else
 * what was guarded was skipped.
 */
static bool digest_guarded(struct chain_change *cc)
{
	struct shard_change *ch = cc->change;
	struct wr_list *list = &ch->acc->chain;
	bool done = true;

	cc->guarded = false;
	for (uint32_t k = 0; done && k < list->n; k++) {
		const struct transport_wr *wr = &list->wrs[k];

		done = wr->verb != VERB_CAS ||
		       (wr->atomic.status == ATOMIC_DONE && wr->atomic.old == wr->atomic.expected);
	}
	if (!done) {
		forget_tops(ch->acc);
		return false;
	}
	for (uint32_t k = 0; k < list->n; k++) {
		uint32_t note = list->notes[k];

		if (note == NOTE_SUM && list->wrs[k].atomic.status != ATOMIC_DONE)
			ch->acc->unwaited.lost = true;
		if (note < NOTE_MAX && !word_of(cc, note))
			ch->ops[note_view(note)][note & INDEX_MASK].result = LEAF_DONE;
	}
	list->n = 0;
	ch->acc->epoch.standing = false;
	return true;
}

/* -------- all rounds -------- */

/*
 * Prepares the next chain of this change: in round 0 of all ops, then of the ops to be tried again,
 * whose notes are at the front of the list. False = none is left, or ch->ret is an error (-EAGAIN:
 * too many rounds).
 */
static bool prepare_round(enum change_verb verb, struct chain_change *cc, int round)
{
	struct shard_change *ch = cc->change;
	struct wr_list *list = &ch->acc->chain;

	if (ch->ret == 0 && round == 0)
		ch->ret = first_round(verb, cc);
	if (ch->ret == 0 && round == 0 && cc->leaves)
		ch->ret = add_guarded(cc);
	for (uint32_t k = 0; round > 0 && ch->ret == 0 && k < list->n; k++) {
		uint32_t note = list->notes[k], view = note_view(note);
		const struct word_op *word = word_of(cc, note);
		struct change c;

		if (word) {
			list->wrs[k] = word_swap(ch->acc, word);
			continue;
		}
		c = view_change(cc, view);
		list->notes[k] =
			(note & ~LOOK) |
			prepare_leaf(&c, verb, &ch->ops[view][note & INDEX_MASK], &list->wrs[k]);
	}
	if (ch->ret == 0 && list->n > 0 && round == CHANGE_ROUNDS)
		ch->ret = error_set(-EAGAIN, "shard %u: a leaf changed under %d CAS",
				    ch->acc->shard->desc.shard, CHANGE_ROUNDS);
	return ch->ret == 0 && list->n > 0;
}

void change_by_chains(enum change_verb verb, struct chain_change *ccs, uint32_t n)
{
	struct wait_set set;
	uint32_t which[CHANGE_SHARDS], m = 1;
	int failed;

	for (int round = 0; m > 0; round++) {
		m = 0;
		wait_set_begin(&set);
		for (uint32_t i = 0; i < n; i++) {
			struct access *acc = ccs[i].change->acc;

			if (!prepare_round(verb, &ccs[i], round))
				continue;
			which[m++] = i;
			wait_set_chain(&set, acc->shard->tree->tr, acc->chain.wrs, acc->chain.n);
		}
		failed = wait_set_wait(&set);
		for (uint32_t k = 0; k < m; k++) {
			struct chain_change *cc = &ccs[which[k]];
			struct shard_change *ch = cc->change;
			bool refresh = false;

			ch->ret = failed ? set.legs[k].error : 0;
			if (ch->ret) /* some may be done, but uncounted */
				ch->acc->unwaited.lost = true;
			else if (!cc->guarded || !digest_guarded(cc))
				ch->ret = change_digest(verb, cc, &refresh);
			cc->damaged = false;
			if (ch->ret == 0 && refresh)
				ch->ret = see_epoch_again(&ch->acc->epoch, &cc->damaged);
		}
	}
}

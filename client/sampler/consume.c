/*
 * Consuming views. max_times_sampled 1: an item is taken by the CAS {gen, p} -> {gen, 0}, so nobody
 * else can have it. More: a word {gen, count} for each item; FAA decides who is among the first,
 * and the last of them retires the leaf ("at most" so many times).
 */
#include "client/sampler/sampler.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>

/* Candidates of one shard, order[first, end), as ops from `at` on; spare: where each came from. */
static uint32_t sampler_add_candidates(struct rlv_sampler *sp, uint32_t first, uint32_t end,
				       uint32_t at)
{
	struct draw_scratch *s = &sp->scratch;

	for (uint32_t k = first; k < end; k++) {
		uint64_t i = s->order[k];

		if (leaf_priority(s->again[i]) == 0 ||
		    leaf_gen(s->again[i]) != leaf_gen(s->word[i]))
			continue;
		s->ops[at] = (struct leaf_op){ .slot = s->slot[i],
					       .gen = leaf_gen(s->word[i]),
					       .word = s->again[i] };
		s->spare[at++] = i;
	}
	return at;
}

/* A change for each shard that has candidates among order[0, n). */
static uint32_t sampler_make_takes(struct rlv_sampler *sp, uint32_t n)
{
	struct draw_scratch *s = &sp->scratch;
	uint32_t n_changes = 0, at = 0;
	uint32_t end;

	for (uint32_t first = 0; first < n; first = end) {
		uint32_t shard = s->shard[s->order[first]];
		uint32_t from = at;

		for (end = first; end < n && s->shard[s->order[end]] == shard; end++)
			;
		at = sampler_add_candidates(sp, first, end, at);
		if (at == from)
			continue;
		sp->changes[n_changes] =
			(struct shard_change){ .acc = handle_access(&sp->h, shard) };
		sp->changes[n_changes].ops[sp->view_index] = s->ops + from;
		sp->changes[n_changes++].n[sp->view_index] = at - from;
	}
	return n_changes;
}

/* Another client took the item, or its shard is lost. */
static void sampler_give_up(struct rlv_sampler *sp, const struct leaf_op *op)
{
	sp->scratch.again[sp->scratch.spare[op - sp->scratch.ops]] = 0;
}

static bool change_is_lost(const struct shard_change *ch, int ret)
{
	return ret && ch->acc->shard->tree->tr->broken;
}

/* After a change that failed. */
static void sampler_give_all_up(struct rlv_sampler *sp, const struct shard_change *ch)
{
	for (uint32_t k = 0; k < ch->n[sp->view_index]; k++)
		sampler_give_up(sp, &ch->ops[sp->view_index][k]);
}

/* -------- once -------- */

/* Items consumed in a shard that was lost meanwhile are dropped; those of other shards are ours. */
static int sampler_judge_taken(struct rlv_sampler *sp, const struct shard_change *ch)
{
	const struct leaf_op *ops = ch->ops[sp->view_index];

	if (change_is_lost(ch, ch->ret)) {
		sampler_give_all_up(sp, ch);
		return 0;
	}
	if (ch->ret)
		return handle_failed(ch->acc, ch->ret);
	for (uint32_t k = 0; k < ch->n[sp->view_index]; k++)
		if (ops[k].result != LEAF_DONE)
			sampler_give_up(sp, &ops[k]);
	return 0;
}

/* T1 pairs with C1: their rows were copied, then they are taken. */
static int sampler_take_once(struct rlv_sampler *sp, uint32_t n_changes)
{
	int first = 0;

	if (change_consume(sp->changes, n_changes)) /* judged below, shard by shard */
		log_debug("consume: %s", error_last());
	for (uint32_t i = 0; i < n_changes; i++) {
		int ret = sampler_judge_taken(sp, &sp->changes[i]);

		first = first ? first : ret;
	}
	return first;
}

/* -------- counted -------- */

/* Checks the counts of n ops; packs those whose last sample this was to the front. */
static uint32_t sampler_judge_counts(struct rlv_sampler *sp, const struct transport_atomic *counts,
				     struct leaf_op *ops, uint32_t n, struct leaf_op *last)
{
	uint32_t packed = 0;

	for (uint32_t k = 0; k < n; k++) {
		struct leaf_op op = ops[k];
		uint64_t old = counts[k].old;
		bool ours = counts[k].status == ATOMIC_DONE && old >> 32 == op.gen &&
			    (uint32_t)old < sp->view->max_times_sampled;

		if (!ours)
			sampler_give_up(sp, &ops[k]);
		else if ((uint32_t)old + 1 == sp->view->max_times_sampled)
			last[packed++] = op;
	}
	return packed;
}

/* Counts the samples of a shard's items; the change keeps the ops of items to retire. */
static int sampler_count_shard(struct rlv_sampler *sp, struct shard_change *ch)
{
	struct region *tree = ch->acc->shard->tree;
	struct leaf_op *ops = ch->ops[sp->view_index];
	struct transport_atomic counts[TRANSPORT_VECTOR];
	uint32_t n = ch->n[sp->view_index];
	uint32_t last = 0;
	uint32_t now;

	for (uint32_t done = 0; done < n; done += now) {
		int ret;

		now = n - done < TRANSPORT_VECTOR ? n - done : TRANSPORT_VECTOR;
		for (uint32_t k = 0; k < now; k++)
			counts[k] = (struct transport_atomic){
				.region = tree,
				.off = sp->view->counts_off + (uint64_t)ops[done + k].slot * 8,
				.value = 1,
			};
		ret = transport_faa(tree->tr, counts, now);
		if (ret)
			return ret;
		last += sampler_judge_counts(sp, counts, ops + done, now, ops + last);
	}
	ch->n[sp->view_index] = last;
	return 0;
}

/* An item is ours by its count, even if retiring its leaf fails. */
static int sampler_take_counted(struct rlv_sampler *sp, uint32_t n_changes)
{
	uint32_t left = 0;
	int first = 0;

	for (uint32_t i = 0; i < n_changes; i++) {
		struct shard_change ch = sp->changes[i];
		int ret = sampler_count_shard(sp, &ch);

		if (change_is_lost(&ch, ret))
			sampler_give_all_up(sp, &ch);
		else if (ret)
			return ret;
		else if (ch.n[sp->view_index])
			sp->changes[left++] = ch;
	}
	if (change_consume(sp->changes, left)) /* judged below, shard by shard */
		log_debug("consume: %s", error_last());
	for (uint32_t i = 0; i < left; i++) {
		const struct shard_change *ch = &sp->changes[i];
		int ret = change_is_lost(ch, ch->ret) ? 0 : handle_failed(ch->acc, ch->ret);

		first = first ? first : ret;
	}
	return first;
}

int sampler_take(struct rlv_sampler *sp, uint32_t n)
{
	struct draw_scratch *s = &sp->scratch;
	uint32_t n_changes;

	for (uint32_t i = 0; i < n; i++)
		s->quanta[i] = key_make(0, s->shard[i], 0, s->slot[i]);
	sampler_order(sp, s->quanta, n);
	for (uint32_t i = 1; i < n; i++) { /* items drawn twice in one round */
		uint64_t a = s->order[i - 1], b = s->order[i];

		if (s->shard[a] == s->shard[b] && s->slot[a] == s->slot[b])
			s->again[b] = 0;
	}
	n_changes = sampler_make_takes(sp, n);
	return sp->view->max_times_sampled == 1 ? sampler_take_once(sp, n_changes)
						: sampler_take_counted(sp, n_changes);
}

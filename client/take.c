/*
 * Consuming views. max_times_sampled 1: an item is taken by the CAS {gen, p} -> {gen, 0}, so nobody
 * else can have it. More: a word {gen, count} for each item; FAA decides who is among the first,
 * and the last of them retires the leaf ("at most" so many times).
 */
#include "client/sampler.h"

#include <errno.h>
#include <string.h>

/* Drops the items of scratch order[0, n) that were drawn twice in one round. */
static void drop_twins(struct rlv_sampler *sp, uint32_t n)
{
	struct draw_scratch *s = &sp->scratch;

	for (uint32_t i = 1; i < n; i++) {
		uint64_t a = s->order[i - 1];
		uint64_t b = s->order[i];

		if (s->shard[a] == s->shard[b] && s->slot[a] == s->slot[b])
			s->again[b] = 0;
	}
}

static bool is_candidate(const struct draw_scratch *s, uint64_t i)
{
	return leaf_priority(s->again[i]) != 0 && leaf_gen(s->again[i]) == leaf_gen(s->word[i]);
}

/* The candidates of one shard, order[first, end), as ops; index[k] is where op k came from. */
static uint32_t candidates(struct rlv_sampler *sp, uint32_t first, uint32_t end)
{
	struct draw_scratch *s = &sp->scratch;
	uint32_t n = 0;

	for (uint32_t k = first; k < end; k++) {
		uint64_t i = s->order[k];

		if (!is_candidate(s, i))
			continue;
		s->ops[n] = (struct leaf_op){ .slot = s->slot[i],
					      .gen = leaf_gen(s->word[i]),
					      .word = s->again[i] };
		s->spare[n++] = i;
	}
	return n;
}

/*
 * Retires n ops of a shard; what became of each is its result.
 * T1 pairs with C1: their rows were copied, then they are taken.
 */
static int retire(struct rlv_sampler *sp, uint32_t shard, struct leaf_op *ops, uint32_t n)
{
	struct access *acc = sp->h.access[shard];
	int left;
	int ret;

	ret = access_enter(acc);
	if (ret)
		return ret;
	ret = sumtree_take(&acc->shard->trees[sp->view_index], &acc->epoch, ops, n,
			   acc->deltas[sp->view_index]);
	left = access_leave(acc); /* else its promise would hold the next rebuild up */
	return handle_failed(acc, ret ? ret : left);
}

static int take_once(struct rlv_sampler *sp, uint32_t shard, uint32_t n)
{
	struct draw_scratch *s = &sp->scratch;
	int ret = retire(sp, shard, s->ops, n);

	for (uint32_t k = 0; ret == 0 && k < n; k++)
		if (s->ops[k].result != LEAF_DONE)
			s->again[s->spare[k]] = 0;
	return ret;
}

/* Judges the counts of n ops; packs those that this sample was the last of to the front. */
static uint32_t judge_counts(struct rlv_sampler *sp, const struct transport_atomic *counts,
			     uint32_t first, uint32_t n, uint32_t last)
{
	struct draw_scratch *s = &sp->scratch;

	for (uint32_t k = 0; k < n; k++) {
		struct leaf_op op = s->ops[first + k];
		uint64_t old = counts[k].old;
		bool ours = counts[k].status == ATOMIC_DONE && old >> 32 == op.gen &&
			    (uint32_t)old < sp->view->max_times_sampled;

		if (!ours)
			s->again[s->spare[first + k]] = 0;
		else if ((uint32_t)old + 1 == sp->view->max_times_sampled)
			s->ops[last++] = op;
	}
	return last;
}

static int take_counted(struct rlv_sampler *sp, uint32_t shard, uint32_t n)
{
	struct region *tree = sp->h.nodes.shards[shard]->tree;
	struct transport_atomic counts[TRANSPORT_VECTOR];
	uint32_t last = 0;
	uint32_t now;

	for (uint32_t done = 0; done < n; done += now) {
		int ret;

		now = n - done < TRANSPORT_VECTOR ? n - done : TRANSPORT_VECTOR;
		for (uint32_t k = 0; k < now; k++)
			counts[k] = (struct transport_atomic){
				.region = tree,
				.off = sp->view->counts_off +
				       (uint64_t)sp->scratch.ops[done + k].slot * 8,
				.value = 1,
			};
		ret = transport_faa(tree->tr, counts, now);
		if (ret)
			return ret;
		last = judge_counts(sp, counts, done, now, last);
	}
	return last ? retire(sp, shard, sp->scratch.ops, last) : 0;
}

/* A node was lost over it: what was taken there nobody has. The others' are ours all the same. */
static bool is_lost(struct rlv_sampler *sp, uint32_t shard, uint32_t first, uint32_t end)
{
	struct draw_scratch *s = &sp->scratch;

	if (!sp->h.nodes.shards[shard]->tree->tr->broken)
		return false;
	for (uint32_t k = first; k < end; k++)
		s->again[s->order[k]] = 0;
	return true;
}

int sampler_take(struct rlv_sampler *sp, uint32_t n)
{
	struct draw_scratch *s = &sp->scratch;
	uint32_t end;
	int ret = 0;

	for (uint32_t i = 0; i < n; i++)
		s->quanta[i] = key_make(0, s->shard[i], 0, s->slot[i]);
	sampler_order(sp, s->quanta, n);
	drop_twins(sp, n);
	for (uint32_t first = 0; ret == 0 && first < n; first = end) {
		uint32_t shard = s->shard[s->order[first]];
		uint32_t m;

		for (end = first; end < n && s->shard[s->order[end]] == shard; end++)
			;
		m = candidates(sp, first, end);
		if (m == 0)
			continue;
		ret = sp->view->max_times_sampled == 1 ? take_once(sp, shard, m)
						       : take_counted(sp, shard, m);
		if (ret && is_lost(sp, shard, first, end))
			ret = 0;
	}
	return ret;
}

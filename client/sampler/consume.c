/*
 * Consuming views. max_times_sampled 1: an item is taken by the CAS {gen, p} -> {gen, 0}, so nobody
 * else can have it. More: a word {gen, count} for each item; FAA decides who is among the first,
 * and the last of them retires the leaf ("at most" so many times).
 */
#include "client/sampler/sampler.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>

/* Sets the item's `again` to 0: another client took it, or its shard is lost. */
static void sampler_give_up(struct rlv_sampler *sp, const struct leaf_op *op)
{
	sp->scratch.again[sp->scratch.spare[op - sp->scratch.ops]] = 0;
}

static bool change_is_lost(const struct shard_change *ch, int ret)
{
	return ret && access_is_broken(ch->acc);
}

/* Gives up all items of a change that failed. */
static void sampler_give_all_up(struct rlv_sampler *sp, const struct shard_change *ch)
{
	for (uint32_t k = 0; k < ch->n[sp->view_index]; k++)
		sampler_give_up(sp, &ch->ops[sp->view_index][k]);
}

/*
 * Adds 1 to the sample count of each item of the change; gives up items that had all their samples.
 * The change keeps the ops of items for which this was the last: they are to be retired.
 */
static int sampler_count_shard(struct rlv_sampler *sp, struct shard_change *ch)
{
	struct region *tree = ch->acc->shard->tree;
	struct leaf_op *ops = ch->ops[sp->view_index];
	struct transport_atomic counts[TRANSPORT_VECTOR];
	uint32_t most = sp->view->max_times_sampled;
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
		for (uint32_t k = 0; k < now; k++) {
			struct leaf_op op = ops[done + k];
			uint64_t old = counts[k].old;

			if (counts[k].status != ATOMIC_DONE || old >> 32 != op.gen ||
			    (uint32_t)old >= most)
				sampler_give_up(sp, &ops[done + k]);
			else if ((uint32_t)old + 1 == most)
				ops[last++] = op;
		}
	}
	ch->n[sp->view_index] = last;
	return 0;
}

/* Counts the samples of all changes, gives up items of lost shards, and keeps in sp->changes
   only the *n_changes changes that have leaves to retire. */
static int sampler_count_all(struct rlv_sampler *sp, uint32_t *n_changes)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < *n_changes; i++) {
		struct shard_change ch = sp->changes[i];
		int ret = sampler_count_shard(sp, &ch);

		if (change_is_lost(&ch, ret))
			sampler_give_all_up(sp, &ch);
		else if (ret)
			return ret;
		else if (ch.n[sp->view_index])
			sp->changes[left++] = ch;
	}
	*n_changes = left;
	return 0;
}

/*
 * Consumes the items of the changes by retiring their leaves. Items of a shard that is lost
 * meanwhile, or that others took, are given up; but a counted item is ours by its count, even if
 * retiring its leaf fails. Returns the first error of a shard that is not lost.
 */
static int sampler_consume(struct rlv_sampler *sp, uint32_t n_changes, bool counted)
{
	int first = 0;

	/* T1 pairs with C1: their rows were copied, then they are taken. */
	if (change_consume(sp->changes, n_changes)) /* judged below, shard by shard */
		log_debug("consume: %s", error_last());
	for (uint32_t i = 0; i < n_changes; i++) {
		const struct shard_change *ch = &sp->changes[i];
		const struct leaf_op *ops = ch->ops[sp->view_index];
		bool lost = change_is_lost(ch, ch->ret);
		int ret = lost ? 0 : handle_failed(ch->acc, ch->ret);

		if (lost && !counted)
			sampler_give_all_up(sp, ch);
		for (uint32_t k = 0; !ch->ret && !counted && k < ch->n[sp->view_index]; k++)
			if (ops[k].result != LEAF_DONE)
				sampler_give_up(sp, &ops[k]);
		first = first ? first : ret;
	}
	return first;
}

int sampler_consume_found(struct rlv_sampler *sp, uint32_t n)
{
	struct draw_scratch *s = &sp->scratch;
	bool counted = sp->view->max_times_sampled != 1;
	struct shard_change *ch = NULL;
	uint32_t n_changes = 0, at = 0;
	uint32_t shard = 0;
	int ret;

	for (uint32_t i = 0; i < n; i++)
		s->quanta[i] = key_make(0, s->shard[i], 0, s->slot[i]);
	sampler_order(sp, s->quanta, n);
	for (uint32_t i = 1; i < n; i++) { /* items drawn twice in one round */
		uint64_t a = s->order[i - 1], b = s->order[i];

		if (s->shard[a] == s->shard[b] && s->slot[a] == s->slot[b])
			s->again[b] = 0;
	}
	/* A change for each shard that has candidates; spare: where each op came from. */
	for (uint32_t k = 0; k < n; k++) {
		uint64_t i = s->order[k];
		uint32_t gen = leaf_gen(s->word[i]);

		if (leaf_priority(s->again[i]) == 0 || leaf_gen(s->again[i]) != gen)
			continue;
		if (!ch || s->shard[i] != shard) {
			shard = s->shard[i];
			ch = &sp->changes[n_changes++];
			*ch = (struct shard_change){ .acc = handle_access(&sp->h, shard) };
			ch->ops[sp->view_index] = s->ops + at;
		}
		ch->n[sp->view_index]++;
		s->ops[at] =
			(struct leaf_op){ .slot = s->slot[i], .gen = gen, .word = s->again[i] };
		s->spare[at++] = i;
	}
	ret = counted ? sampler_count_all(sp, &n_changes) : 0;
	return ret ? ret : sampler_consume(sp, n_changes, counted);
}

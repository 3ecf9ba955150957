/*
 * One round of a sample: draw, gather, verify. Where all is addressable, in place, part by part so
 * that rows stay in the cache for their second look; else as an async sample that is waited for.
 */
#include "client/sampler/sampler.h"

#include "transport/barrier.h"

#include <errno.h>
#include <string.h>

/* -------- places -------- */

uint32_t sampler_window_bytes(const struct rlv_sampler *sp)
{
	return (sp->plan.stack + sp->plan.future) * sp->plan.row_bytes;
}

uint64_t sampler_window_off(const struct rlv_sampler *sp, const struct draw_scratch *s, uint32_t i)
{
	const struct shard *shard = handle_shard(&sp->h, s->shard[i]);

	return shard_row_off(shard, s->slot[i] + 1 - sp->view->window);
}

uint64_t sampler_leaf_off(const struct rlv_sampler *sp, const struct draw_scratch *s, uint32_t i)
{
	return shard_leaf_off(handle_shard(&sp->h, s->shard[i]), sp->view_index, s->slot[i]);
}

/* -------- draw -------- */

static bool slot_is_of_head(const struct block_head *head, uint32_t slot)
{
	return slot * head->recip < head->limit;
}

void sampler_name_draws(struct rlv_sampler *sp, struct draw_scratch *s, uint32_t n)
{
	const struct block_head head = sp->head;
	uint32_t of_head = 0;

	shard_trees_see_sizes(&sp->trees);
	shard_trees_name_shards(&sp->trees, s->shard, n);
#pragma GCC unroll 8
	for (uint32_t i = 0; i < n; i++)
		of_head += slot_is_of_head(&head, s->slot[i]);
	for (uint32_t i = 0; of_head && i < n; i++)
		if (slot_is_of_head(&head, s->slot[i])) {
			s->slot[i] = sp->view->window - 1;
			s->word[i] = 0;
		}
}

/* Finds the items in the order of the view; each has probability 1. */
int sampler_draw_in_order(struct rlv_sampler *sp, struct draw_scratch *s, struct round *round)
{
	const struct shard_trees_items out = { s->shard, s->slot, s->word };
	int ret = shard_trees_find(&sp->trees, round->n, &out, &round->found);

	for (uint32_t i = 0; ret == 0 && i < round->found; i++)
		s->probability[i] = 1;
	return ret;
}

/* -------- gather and verify -------- */

void sampler_copy_rows(struct rlv_sampler *sp, const struct draw_scratch *s, struct batch *batch,
		       uint32_t first, uint32_t n)
{
	sp->plan.outputs = batch->outputs;
	sp->plan.n_outputs = batch->is_apart ? batch->n_near : batch->n_outputs;
	window_gather(&sp->plan, s->window + first, s->at + first, n);
}

void sampler_look_in_place(struct rlv_sampler *sp, struct draw_scratch *s, uint32_t first,
			   uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++) {
		const void *leaf = sp->trees.places[s->shard[i]].leaves + s->slot[i] * 8ull;

		/* V2 pairs with C1: rows before the second look at their leaf. */
		s->again[i] = transport_read_validate(leaf);
	}
}

void sampler_find_windows(struct rlv_sampler *sp, uint32_t first, uint32_t n)
{
	struct draw_scratch *s = &sp->scratch;
	uint64_t row_bytes = sp->h.desc->row_bytes, past = sp->view->window - 1;

	for (uint32_t i = first; i < first + n; i++)
		s->window[i] = sp->trees.places[s->shard[i]].rows + (s->slot[i] - past) * row_bytes;
}

static void sampler_gather_in_place(struct rlv_sampler *sp, const struct round *round)
{
	struct draw_scratch *s = &sp->scratch;
	uint32_t now;

	if (!sp->reads_rows)
		sampler_trust_leaves(s, round->found);
	for (uint32_t done = 0; sp->reads_rows && done < round->found; done += now) {
		now = round->found - done < TRANSPORT_VECTOR ? round->found - done
							     : TRANSPORT_VECTOR;
		sampler_find_windows(sp, done, now);
		sampler_copy_rows(sp, s, round->batch, done, now);
		sampler_look_in_place(sp, s, done, now);
	}
}

void sampler_trust_leaves(struct draw_scratch *s, uint32_t n)
{
	memcpy(s->again, s->word, n * sizeof(*s->again));
}

/* -------- the round -------- */

struct draw_opts sampler_draw_opts(const struct rlv_sampler *sp, bool stratified,
				   int64_t *sizes_out)
{
	return (struct draw_opts){
		.stratified = stratified,
		.rank = sp->opts.rank,
		.world_size = sp->opts.world_size,
		.writes = sp->stats.updates > 0,
		.now_ns = clock_now_ns(sp->h.clock),
		.sizes_out = sizes_out,
	};
}

/* Waits for the phases of the sampler's own async sample. */
static int sampler_await_now(struct rlv_sampler *sp)
{
	int ret;

	do
		ret = async_sample_wait(sp, &sp->now);
	while (ret == -EAGAIN);
	return ret;
}

/* The random numbers of a round over a wire. With opts.prefetch they are seeded as those of a prefetched batch,
   so that the draws of a seed do not depend on which batches are prefetched. */
static struct rng *sampler_rng(struct rlv_sampler *sp)
{
	if (!sp->opts.prefetch || sp->ordered)
		return &sp->rng;
	rng_seed(&sp->now.rng, rng_next_u64(&sp->rng), sp->opts.rank);
	return &sp->now.rng;
}

int sampler_round(struct rlv_sampler *sp, struct round *round)
{
	struct draw_scratch *s = &sp->scratch;
	const struct draws out = { s->shard, s->slot, s->word, s->probability };
	struct draw_opts opts;
	int ret;

	round->began_ns = clock_now_ns(sp->h.clock);
	if (!sp->trees.addressable) { /* over a wire */
		sp->now.s = s;
		sp->now.draws = sampler_rng(sp);
		ret = async_sample_start(sp, &sp->now, round);
		ret = ret ? ret : sampler_await_now(sp);
		round->found = sp->now.found;
		return ret;
	}
	round->found = round->n;
	opts = sampler_draw_opts(sp, round->stratified, sp->trees.sizes);
	ret = sp->ordered ? sampler_draw_in_order(sp, s, round)
			  : sumtree_draw(&sp->trees.forest, &opts, &sp->rng, round->n, &out);
	if (ret)
		return ret;
	sampler_name_draws(sp, s, round->found);
	if (round->batch->is_apart)
		return apart_gather(sp, round);
	sampler_gather_in_place(sp, round);
	return 0;
}

int sampler_gather_round(struct rlv_sampler *sp, struct round *round)
{
	int ret;

	round->began_ns = clock_now_ns(sp->h.clock);
	if (sp->trees.addressable) {
		sampler_gather_in_place(sp, round);
		return 0;
	}
	sp->now.s = &sp->scratch;
	ret = async_sample_gather(sp, &sp->now, round);
	return ret ? ret : sampler_await_now(sp);
}

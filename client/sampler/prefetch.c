/*
 * Prefetched batches: async samples that advance whenever the sampler is called.
 *
 *   prefetched[]   a ring: n_prefetched from first_prefetch on are under way or done, oldest first
 *
 * They are drawn, gathered and verified ahead; admitted, consumed and weighed when returned, as a
 * batch that the call itself drew. All are of one size, that of the last call. After an error in
 * one of them, or when shards come or go, all are discarded: the next call draws itself, and meets
 * the error if it persists.
 */
#include "client/sampler/sampler.h"

#include "base/mem/alloc.h"
#include "base/log.h"

#include <errno.h>

/* -------- memory -------- */

/* The i-th oldest prefetched batch; i from n_prefetched on: an idle one. */
static struct async_sample *prefetch_at(const struct rlv_sampler *sp, uint32_t i)
{
	return &sp->prefetched[(sp->first_prefetch + i) % sp->opts.prefetch];
}

static bool prefetch_is_possible(const struct rlv_sampler *sp)
{
	return sp->opts.prefetch && !sp->trees.addressable && !sp->ordered;
}

int prefetch_prepare(struct rlv_sampler *sp)
{
	int ret = 0;

	if (sp->prefetched || !prefetch_is_possible(sp))
		return 0;
	sp->prefetched = mem_array(sp->opts.prefetch, sizeof(struct async_sample));
	if (!sp->prefetched)
		return error_set(-ENOMEM, "sampler: cannot allocate memory for prefetched batches");
	for (uint32_t i = 0; ret == 0 && i < sp->opts.prefetch; i++) {
		struct async_sample *async = &sp->prefetched[i];

		async->s = &async->own;
		async->draws = &async->rng;
		ret = scratch_init(&async->own, sp->opts.batch_size);
		if (ret == 0)
			ret = async_sample_init(async);
	}
	if (ret)
		prefetch_fini(sp);
	return ret;
}

void prefetch_fini(struct rlv_sampler *sp)
{
	for (uint32_t i = 0; sp->prefetched && i < sp->opts.prefetch; i++)
		async_sample_fini(&sp->prefetched[i]);
	mem_free(sp->prefetched);
	sp->prefetched = NULL;
}

/* -------- forgetting -------- */

void prefetch_cancel(struct rlv_sampler *sp)
{
	for (uint32_t i = 0; i < sp->n_prefetched; i++) {
		struct async_sample *async = prefetch_at(sp, i);

		async_sample_cancel(async);
		async->batch->prefetched = false;
	}
	sp->n_prefetched = 0;
}

/* -------- moving on -------- */

static bool prefetch_failed(struct rlv_sampler *sp, int ret)
{
	if (ret == 0 || ret == -EAGAIN)
		return false;
	log_debug("prefetch: %s", error_last());
	prefetch_cancel(sp);
	return true;
}

uint32_t prefetch_advance(struct rlv_sampler *sp)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < sp->n_prefetched; i++) {
		int ret = async_sample_look(sp, prefetch_at(sp, i));

		if (prefetch_failed(sp, ret))
			return 0;
		done += ret == 0;
	}
	return done;
}

struct batch *prefetch_buffer(struct rlv_sampler *sp, uint32_t n)
{
	if (sp->n_prefetched && prefetch_at(sp, 0)->n != n)
		prefetch_cancel(sp);
	return sp->n_prefetched ? prefetch_at(sp, 0)->batch : NULL;
}

int rlv_sampler_set_ahead(struct rlv_sampler *sampler, uint32_t ahead)
{
	if (!sampler)
		return error_set(-EINVAL, "sampler is NULL");
	if (ahead > RLV_AHEAD_LEAVE)
		return error_set(-EINVAL, "ahead %u: not an rlv_ahead", ahead);
	sampler->ahead = ahead;
	return 0;
}

uint32_t rlv_sampler_ahead(const struct rlv_sampler *sampler)
{
	return sampler ? sampler->n_prefetched : 0;
}

bool prefetch_hand_over(struct rlv_sampler *sp, struct round *round)
{
	struct draw_scratch mine = sp->scratch;
	struct async_sample *async;

	if (!sp->n_prefetched)
		return false;
	async = prefetch_at(sp, 0);
	if (async->batch != round->batch || async->n != round->n)
		return false;
	prefetch_advance(sp);
	while (sp->n_prefetched && async->stage != ASYNC_DONE) {
		if (prefetch_failed(sp, async_sample_wait(sp, async)))
			return false;
		prefetch_advance(sp); /* the others move on meanwhile */
	}
	if (!sp->n_prefetched)
		return false;
	sp->n_prefetched--;
	sp->first_prefetch = (sp->first_prefetch + 1) % sp->opts.prefetch;
	async->batch->prefetched = false;
	async->stage = ASYNC_IDLE;
	round->found = async->found;
	round->began_ns = async->began_ns;
	sp->scratch = async->own;
	async->own = mine;
	return true;
}

/* -------- beginning -------- */

void prefetch_refill(struct rlv_sampler *sp, uint32_t n)
{
	struct round round = { .n = n, .stratified = !sp->opts.independent };

	while (prefetch_is_possible(sp) && sp->n_prefetched < sp->opts.prefetch) {
		struct async_sample *async = prefetch_at(sp, sp->n_prefetched);

		round.batch = batch_find(sp);
		if (!round.batch)
			return;
		rng_seed(&async->rng, rng_next_u64(&sp->rng), sp->opts.rank);
		for (uint32_t i = 0; i < n; i++)
			async->own.at[i] = i;
		if (apart_begin(sp, round.batch) || async_sample_start(sp, async, &round)) {
			log_debug("prefetch: %s", error_last());
			return;
		}
		round.batch->prefetched = true;
		sp->n_prefetched++;
	}
}

/*
 * Draws: points of the whole mass, stratified or not, become nodes of the top levels
 * (sumtree_tops.h), and these become leaves (sumtree_descent.h). A draw that is lost on the way
 * begins again from the tops, re-read, over everything, when the others are done.
 */
#include "ds/sumtree.h"

#include "ds/sumtree_descent.h"
#include "ds/sumtree_kernel.h"
#include "ds/sumtree_tops.h"

#include "wire/sumtree_layout.h"
#include "wire/table_layout.h"

#include "base/bits.h"
#include "base/error.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define DRAW_RESTARTS 64 /* of one draw, before there is nothing to draw */

struct draw_call {
	double per_quantum; /* 1 / the whole mass */
	struct sumtree_descent down;
	struct sumtree_tops tops;
};

/* -------- points -------- */

/* The point at a fraction x / 2^64 of the mass. A second word fills in what 64 bits cannot say. */
static unsigned __int128 point_at(struct draw_call *call, uint64_t x)
{
	unsigned __int128 total = sumtree_tops_total(&call->tops), low, fine, point;
	uint64_t word;

	if (__builtin_expect(total >> 60 == 0, 1))
		return (unsigned __int128)x * (uint64_t)total >> 64;
	word = rng_next_u64(call->down.rng);
	fine = ((unsigned __int128)word * (uint64_t)total >> 64) +
	       (unsigned __int128)word * (uint64_t)(total >> 64);
	low = (unsigned __int128)x * (uint64_t)total;
	point = (unsigned __int128)x * (uint64_t)(total >> 64);
	if (low + fine < low)
		point += (unsigned __int128)1 << 64;
	return point + ((low + fine) >> 64);
}

/* Strata: where each begins, as a fraction of 2^64, and how wide they are. */
struct strata {
	uint64_t n;     /* 0 = independent draws */
	uint64_t width; /* 2^64 / n */
	uint64_t rest;  /* 2^64 mod n */
	uint64_t rank, step;
};

static struct strata make_strata(const struct draw_opts *opts, size_t n)
{
	struct strata s = { 0 };

	if (!opts || !opts->stratified)
		return s;
	s.step = opts->world_size > 1 ? opts->world_size : 1;
	s.rank = opts->rank % s.step;
	s.n = n * s.step;
	s.width = UINT64_MAX / s.n;
	s.rest = UINT64_MAX % s.n + 1;
	if (s.rest == s.n) {
		s.width++; /* wraps to 0 for a single stratum, which is none */
		s.rest = 0;
	}
	return s;
}

static inline uint64_t stratum_point(const struct strata *s, uint64_t i, uint64_t u)
{
	uint64_t j = i * s->step + s->rank, begin;

	begin = j * s->width;
	if (s->rest)
		begin += j * s->rest / s->n;
	return begin + (uint64_t)((unsigned __int128)u * s->width >> 64);
}

/* -------- the tops -------- */

static int place_draw(struct draw_call *call, uint32_t i, unsigned __int128 at)
{
	struct sumtree_descent *down = &call->down;
	struct top_pick pick;
	int ret = sumtree_tops_pick(&call->tops, at, down->rng, &pick);

	if (ret == -ESTALE) {
		down->shard[i] = 0;
		sumtree_descent_lose(down, i);
		return 0;
	}
	if (ret)
		return ret;
	down->shard[i] = pick.shard;
	down->ratio[i] = pick.ratio;
	down->lanes.node[i] = pick.node;
	down->lanes.r[i] = pick.r;
	down->lanes.expected[i] = pick.expected;
	return 0;
}

/* As place_draw for each of x, in the one tree there is. Its sum is at most 2^62. */
static int place_in_tree(struct draw_call *call, const uint64_t *x)
{
	struct sumtree_descent *down = &call->down;
	uint64_t total = (uint64_t)sumtree_tops_total(&call->tops);
	uint32_t node = 0;
	int ret = sumtree_tops_load(&call->tops, 0);

	if (ret)
		return ret;
	memset(down->shard, 0, sizeof(down->shard));
	for (uint32_t i = 0; i < down->n; i++)
		down->ratio[i] = 1;
	for (uint32_t i = 0; i < down->n; i++) {
		uint64_t r = (uint64_t)((unsigned __int128)x[i] * total >> 64);

		node = sumtree_tops_find(&call->tops, r, node);
		down->lanes.node[i] = node;
		down->lanes.r[i] = r - call->tops.prefix[node];
		down->lanes.expected[i] = call->tops.value[node];
	}
	return 0;
}

/* Lanes behind the last draw, so that there are whole groups. */
static void pad_lanes(struct sumtree_descent *down)
{
	for (uint32_t i = down->n; i < down->groups * DRAW_GROUP; i++) {
		down->shard[i] = down->shard[0];
		down->lanes.node[i] = down->lanes.node[0];
		down->lanes.r[i] = down->lanes.r[0];
		down->lanes.expected[i] = down->lanes.expected[0];
	}
}

/* Begins draws first .. first + n - 1. There is mass. */
static int place_draws(struct draw_call *call, const struct strata *strata, size_t first,
		       uint32_t n)
{
	struct sumtree_descent *down = &call->down;
	uint64_t x[DRAW_CHUNK];
	int ret = 0;

	down->n = n;
	down->groups = (n + DRAW_GROUP - 1) / DRAW_GROUP;
	memset(down->lost, 0, sizeof(down->lost));
	call->per_quantum = 1 / (double)sumtree_tops_total(&call->tops);
	rng_fill_u64(down->rng, x, n);
	for (uint32_t i = 0; strata->n > 1 && i < n; i++)
		x[i] = stratum_point(strata, first + i, x[i]);
	if (down->from->n == 1)
		ret = place_in_tree(call, x);
	for (uint32_t i = 0; down->from->n > 1 && ret == 0 && i < n; i++)
		ret = place_draw(call, i, point_at(call, x[i]));
	pad_lanes(down);
	return ret;
}

/* -------- chunks -------- */

/* The chunk's draws are out->...[to] and on. Loop by loop: so compilers make vectors of them. */
static void emit(const struct draw_call *call, const struct draws *out, size_t to)
{
	const struct sumtree_descent *down = &call->down;
	uint32_t n = down->n;

	memcpy(out->shard + to, down->shard, n * sizeof(out->shard[0]));
	memcpy(out->word + to, down->lanes.word, n * sizeof(out->word[0]));
	for (uint32_t i = 0; i < n; i++)
		out->slot[to + i] = (uint32_t)down->lanes.node[i];
	/* Signed: 40 bits, and CPUs convert them faster. */
	for (uint32_t i = 0; i < n; i++)
		out->probability[to + i] = down->ratio[i] * call->per_quantum *
					   (double)(int64_t)leaf_priority(down->lanes.word[i]);
}

/* Draws one anew over everything, tops re-read, until it is found. */
static int restart(struct draw_call *call, const struct draws *out, size_t to)
{
	const struct strata independent = { 0 };

	for (int tries = 0; tries < DRAW_RESTARTS; tries++) {
		int ret = sumtree_tops_read(&call->tops, call->down.from);

		if (ret)
			return ret;
		if (sumtree_tops_total(&call->tops) == 0)
			continue;
		ret = place_draws(call, &independent, 0, 1);
		if (ret == 0)
			ret = sumtree_descent_run(&call->down);
		if (ret)
			return ret;
		if (!sumtree_descent_is_lost(&call->down, 0)) {
			emit(call, out, to);
			return 0;
		}
	}
	return error_set(-ENODATA, "draw: no item found in %d tries", DRAW_RESTARTS);
}

static int draw_chunk(struct draw_call *call, const struct strata *strata, const struct draws *out,
		      size_t first, uint32_t n)
{
	uint64_t lost[DRAW_CHUNK / 64];
	int ret;

	memset(lost, 0xff, sizeof(lost));
	if (sumtree_tops_total(&call->tops) > 0) {
		ret = place_draws(call, strata, first, n);
		if (ret == 0)
			ret = sumtree_descent_run(&call->down);
		if (ret)
			return ret;
		emit(call, out, first);
		memcpy(lost, call->down.lost, sizeof(lost));
	}
	for (uint32_t w = 0; w < DRAW_CHUNK / 64; w++) {
		for (uint64_t bits = lost[w]; bits; bits &= bits - 1) {
			uint32_t i = w * 64 + bits_ctz(bits);

			ret = i < n ? restart(call, out, first + i) : 0;
			if (ret)
				return ret;
		}
	}
	return 0;
}

static int check_forest(const struct forest *from, struct sumtree_descent *down)
{
	down->in_place = true;
	if (from->n == 0 || from->n > TABLE_MAX_SHARDS)
		return error_set(-EINVAL, "draw from %u trees: must be 1..%u", from->n,
				 TABLE_MAX_SHARDS);
	for (uint32_t t = 0; t < from->n; t++) {
		down->in_place &= from->trees[t].region->base != NULL;
		if (memcmp(&from->trees[t].geo, &from->trees[0].geo, sizeof(from->trees[t].geo)) !=
		    0)
			return error_set(-EINVAL, "draw: tree %u differs from tree 0 in its shape",
					 t);
	}
	return 0;
}

int sumtree_draw(const struct forest *from, const struct draw_opts *opts, struct rng *rng, size_t n,
		 const struct draws *out)
{
	struct strata strata = make_strata(opts, n ? n : 1);
	struct draw_call call;
	int ret = check_forest(from, &call.down);

	if (ret || n == 0)
		return ret;
	call.down.from = from;
	call.down.rng = rng;
	call.down.kernel = sumtree_kernel_get();
	call.down.prefetch = !opts || !opts->no_prefetch;
	call.tops.sizes = opts ? opts->sizes_out : NULL;
	ret = sumtree_tops_read(&call.tops, from);
	for (size_t first = 0; ret == 0 && first < n; first += DRAW_CHUNK)
		ret = draw_chunk(&call, &strata, out, first,
				 (uint32_t)min_u64(DRAW_CHUNK, n - first));
	return ret;
}

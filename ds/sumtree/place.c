/* Maps fractions of the total mass to nodes of the tops, and leaves to results. */
#include "ds/sumtree/place.h"

#include "wire/sumtree_layout.h"

#include "base/bits.h"

#include <string.h>

/* -------- points -------- */

struct strata strata_make(const struct draw_opts *opts, size_t n)
{
	struct strata s = { 0 };

	if (!opts || !opts->stratified)
		return s;
	s.step = opts->world_size > 1 ? opts->world_size : 1;
	s.rank = opts->rank % s.step;
	s.n = n * s.step;
	if (s.n == 1) /* one stratum = independent draws */
		return s;
	s.width = UINT64_MAX / s.n;
	s.rest = UINT64_MAX % s.n + 1;
	if (s.rest == s.n) {
		s.width++;
		s.rest = 0;
	}
	return s;
}

/* -------- the tops -------- */

void sumtree_place(struct sumtree_descent *down, const struct sumtree_tops *tops,
		   const struct strata *strata, size_t first, uint32_t n)
{
	const struct strata s = *strata;
	const uint64_t *sums = tops->level[tops->top];
	struct draw_lanes *lanes = &down->lanes;
	uint64_t x[DRAW_CHUNK];
	uint32_t node = 0;

	down->tops = tops;
	down->n = n;
	down->groups = (n + DRAW_GROUP - 1) / DRAW_GROUP;
	down->per_quantum = 1 / (double)tops->total;
	lanes->rng = down->rng;
	lanes->n_fresh = 0;
	lanes->drifts[0] = lanes->drifts[1] = false;
	memset(down->lost, 0, sizeof(down->lost));
	rng_fill_u64(down->rng, x, n);
	for (uint32_t i = 0; s.n > 1 && i < n; i++) {
		uint64_t j = (first + i) * s.step + s.rank, begin = j * s.width;

		if (s.rest)
			begin += j * s.rest / s.n;
		x[i] = begin + (uint64_t)((unsigned __int128)x[i] * s.width >> 64);
	}
	for (uint32_t i = 0; i < down->groups * DRAW_GROUP; i++) {
		if (i < n) {
			/* x / 2^64 of the mass, below 2^62; from 2^60 on refined by a second word. */
			unsigned __int128 point = (unsigned __int128)x[i] * tops->total;
			uint64_t r;

			if (__builtin_expect(tops->total >> 60 != 0, 0))
				point += rng_uniform_u64(down->rng, tops->total);
			r = (uint64_t)(point >> 64);
			node = sumtree_tops_find(tops, r, node);
			lanes->r[i] = r - tops->prefix[node];
		} else { /* lanes behind the last draw repeat one: groups are whole */
			node = (uint32_t)lanes->node[0];
			lanes->r[i] = lanes->r[0];
		}
		lanes->node[i] = node;
		lanes->expected[i] = sums[node];
		lanes->ratio[i] = 1;
	}
}

/* -------- results -------- */

/*
 * Writes the results of all draws: tree, slot, leaf word and probability. Separate loops, so that
 * compilers vectorise them.
 */
void sumtree_emit(const struct sumtree_descent *down, const struct draws *out, size_t to)
{
	uint32_t n = down->n;

	memcpy(out->shard + to, down->shard, n * sizeof(out->shard[0]));
	memcpy(out->word + to, down->lanes.word, n * sizeof(out->word[0]));
	for (uint32_t i = 0; i < n; i++)
		out->slot[to + i] = (uint32_t)down->lanes.node[i];
	/* Signed: 40 bits fit, and CPUs convert signed words faster. */
	for (uint32_t i = 0; i < n; i++)
		out->probability[to + i] = down->lanes.ratio[i] * down->per_quantum *
					   (double)(int64_t)leaf_priority(down->lanes.word[i]);
}

void sumtree_emit_one(const struct sumtree_descent *down, uint32_t i, const struct draws *out,
		      size_t to)
{
	uint64_t word = down->lanes.word[i];

	out->shard[to] = down->shard[i];
	out->slot[to] = (uint32_t)down->lanes.node[i];
	out->word[to] = word;
	out->probability[to] =
		down->lanes.ratio[i] * down->per_quantum * (double)(int64_t)leaf_priority(word);
}

/* Maps fractions of the total mass to nodes of the tops, and leaves to results. */
#include "ds/sumtree/place.h"

#include "wire/sumtree_layout.h"

#include <string.h>

/* -------- points -------- */

/* The point at x / 2^64 of the mass. Above 2^60 a second random word refines it. */
static unsigned __int128 point_at(const struct sumtree_tops *tops, struct rng *rng, uint64_t x)
{
	unsigned __int128 total = sumtree_tops_total(tops), low, fine, point;
	uint64_t word;

	if (__builtin_expect(total >> 60 == 0, 1))
		return (unsigned __int128)x * (uint64_t)total >> 64;
	word = rng_next_u64(rng);
	fine = ((unsigned __int128)word * (uint64_t)total >> 64) +
	       (unsigned __int128)word * (uint64_t)(total >> 64);
	low = (unsigned __int128)x * (uint64_t)total;
	point = (unsigned __int128)x * (uint64_t)(total >> 64);
	if (low + fine < low)
		point += (unsigned __int128)1 << 64;
	return point + ((low + fine) >> 64);
}

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

#define LIST_END UINT16_MAX

/* Draws grouped by tree; each list in batch order. */
struct piles {
	uint16_t first[TABLE_MAX_SHARDS], next[DRAW_CHUNK];
};

/* Sets the position of a draw within its tree. */
static inline void place_put(struct sumtree_descent *down, uint32_t i, uint32_t node, uint64_t r,
			     uint64_t expected)
{
	down->ratio[i] = 1;
	down->lanes.node[i] = node;
	down->lanes.r[i] = r;
	down->lanes.expected[i] = expected;
}

/* Places draw i in the loaded tree. `near`: node of an earlier draw. Returns the node. */
static inline uint32_t put_in_tree(struct sumtree_descent *down, const struct sumtree_tops *tops,
				   uint32_t i, uint64_t r, uint32_t near)
{
	uint32_t node = sumtree_tops_find(tops, r, near);

	down->shard[i] = tops->shard;
	place_put(down, i, node, r - tops->prefix[node], tops->value[node]);
	return node;
}

static int place_pile(struct sumtree_descent *down, struct sumtree_tops *tops,
		      const struct piles *piles, const unsigned __int128 *at, uint32_t tree)
{
	uint64_t expected = (uint64_t)(tops->before[tree + 1] - tops->before[tree]);
	uint32_t node = 0;
	int ret = sumtree_tops_load(tops, tree);

	if (ret)
		return ret;
	for (uint32_t i = piles->first[tree]; i != LIST_END; i = piles->next[i]) {
		uint64_t r = (uint64_t)(at[i] - tops->before[tree]);

		if (__builtin_expect(tops->total == expected, 1)) {
			node = put_in_tree(down, tops, i, r, node);
		} else if (tops->total == 0) {
			down->shard[i] = 0;
			sumtree_descent_lose(down, i);
		} else { /* the sum of the tree has changed: repeats the draw within it */
			put_in_tree(down, tops, i, rng_uniform_u64(down->rng, tops->total), 0);
			down->ratio[i] = (double)expected / (double)tops->total;
		}
	}
	return 0;
}

static int place_in_trees(struct sumtree_descent *down, struct sumtree_tops *tops,
			  const uint64_t *x)
{
	unsigned __int128 at[DRAW_CHUNK];
	struct piles piles;
	int ret = 0;

	for (uint32_t i = 0; i < down->n; i++)
		at[i] = point_at(tops, down->rng, x[i]);
	memset(piles.first, 0xff, tops->from->n * sizeof(piles.first[0]));
	for (uint32_t i = down->n; i-- > 0;) {
		uint32_t tree = sumtree_tops_find_tree(tops, at[i]);

		piles.next[i] = piles.first[tree];
		piles.first[tree] = (uint16_t)i;
	}
	for (uint32_t t = 0; ret == 0 && t < down->from->n; t++)
		if (piles.first[t] != LIST_END)
			ret = place_pile(down, tops, &piles, at, t);
	return ret;
}

/*
 * Places all draws in the only tree. Its sum is at most 2^62. For few draws the top is scanned as
 * read instead of building prefix sums.
 */
static int place_in_tree(struct sumtree_descent *down, struct sumtree_tops *tops, const uint64_t *x)
{
	uint64_t total = (uint64_t)sumtree_tops_total(tops);
	const uint64_t *value = tops->kept[0];
	bool few = down->n <= DRAWS_FEW;
	uint32_t node = 0;
	int ret = few ? 0 : sumtree_tops_load(tops, 0);

	for (uint32_t i = 0; ret == 0 && i < down->n; i++) {
		uint64_t r = (uint64_t)((unsigned __int128)x[i] * total >> 64);

		if (!few) {
			node = put_in_tree(down, tops, i, r, node);
			continue;
		}
		for (node = 0; r >= value[node]; node++)
			r -= value[node];
		down->shard[i] = 0;
		place_put(down, i, node, r, value[node]);
	}
	return ret;
}

int sumtree_place(struct sumtree_descent *down, struct sumtree_tops *tops,
		  const struct strata *strata, size_t first, uint32_t n)
{
	const struct strata s = *strata;
	struct draw_lanes *lanes = &down->lanes;
	uint64_t x[DRAW_CHUNK];
	int ret;

	down->n = n;
	down->groups = (n + DRAW_GROUP - 1) / DRAW_GROUP;
	memset(down->lost, 0, sizeof(down->lost));
	down->per_quantum = 1 / (double)sumtree_tops_total(tops);
	rng_fill_u64(down->rng, x, n);
	for (uint32_t i = 0; s.n > 1 && i < n; i++) {
		uint64_t j = (first + i) * s.step + s.rank, begin = j * s.width;

		if (s.rest)
			begin += j * s.rest / s.n;
		x[i] = begin + (uint64_t)((unsigned __int128)x[i] * s.width >> 64);
	}
	ret = down->from->n == 1 ? place_in_tree(down, tops, x) : place_in_trees(down, tops, x);
	/* Fills lanes behind the last draw, so that groups are whole. */
	for (uint32_t i = n; i < down->groups * DRAW_GROUP; i++) {
		down->shard[i] = down->shard[0];
		lanes->node[i] = lanes->node[0];
		lanes->r[i] = lanes->r[0];
		lanes->expected[i] = lanes->expected[0];
	}
	return ret;
}

/* -------- results -------- */

/* Separate loops, so that compilers vectorise them. */
void sumtree_emit(const struct sumtree_descent *down, const struct draws *out, size_t to)
{
	uint32_t n = down->n;

	memcpy(out->shard + to, down->shard, n * sizeof(out->shard[0]));
	memcpy(out->word + to, down->lanes.word, n * sizeof(out->word[0]));
	for (uint32_t i = 0; i < n; i++)
		out->slot[to + i] = (uint32_t)down->lanes.node[i];
	/* Signed: 40 bits fit, and CPUs convert signed words faster. */
	for (uint32_t i = 0; i < n; i++)
		out->probability[to + i] = down->ratio[i] * down->per_quantum *
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
		down->ratio[i] * down->per_quantum * (double)(int64_t)leaf_priority(word);
}

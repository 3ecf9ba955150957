/*
 * Draws: from points of the whole mass to leaves, level by level for all draws of a chunk at once.
 *
 *   points -> tops -> [ aim: addresses of the children, prefetched | kernel: pick ] x levels
 *
 * Regions that are addressable are read in place, others through views; the kernels see pointers
 * either way. A draw that the kernel could not settle is looked at again alone (settle): most often
 * somebody's deltas are under way between two levels. One that finds nothing left below its node is
 * lost, and begins again from the tops when the others are done.
 */
#include "ds/sumtree.h"

#include "ds/sumtree_kernel.h"
#include "ds/sumtree_nodes.h"
#include "ds/sumtree_tops.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/sumtree_layout.h"

#include "base/bits.h"
#include "base/error.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define DRAW_RESTARTS 64 /* of one draw, before there is nothing to draw */
#define LINE_WORDS (WIRE_LINE / 8)

static_assert(DRAW_CHUNK <= TRANSPORT_VECTOR, "a level of a chunk is read in one call");

struct draw_call {
	const struct forest *from;
	struct rng *rng;
	const struct sumtree_kernel *kernel;
	bool prefetch;
	double per_quantum;             /* 1 / the whole mass */
	bool in_place;                  /* all regions are addressable */
	uint32_t n;                     /* draws of this chunk */
	uint32_t lanes_n;               /* n rounded up to whole groups */
	uint64_t lost[DRAW_CHUNK / 64]; /* a bit for each draw that found nothing */
	uint32_t shard[DRAW_CHUNK];
	double ratio[DRAW_CHUNK]; /* product of expected / found, where they differed */
	struct draw_lanes lanes;
	struct sumtree_tops tops;
};

/* -------- points -------- */

/* The point at a fraction x / 2^64 of the mass. A second word fills in what 64 bits cannot say. */
static unsigned __int128 point_at(const struct draw_call *call, uint64_t x)
{
	unsigned __int128 total = sumtree_tops_total(&call->tops), low, fine, point;
	uint64_t word;

	if (__builtin_expect(total >> 60 == 0, 1))
		return (unsigned __int128)x * (uint64_t)total >> 64;
	word = rng_next_u64(call->rng);
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
		s.width++; /* wraps to 0 for a single stratum: see stratum_point */
		s.rest = 0;
	}
	return s;
}

static inline uint64_t stratum_point(const struct strata *s, uint64_t i, uint64_t u)
{
	uint64_t j = i * s->step + s->rank, begin;

	if (s->n <= 1)
		return u;
	begin = j * s->width;
	if (s->rest)
		begin += (uint64_t)((unsigned __int128)j * s->rest / s->n);
	return begin + (uint64_t)((unsigned __int128)u * s->width >> 64);
}

/* -------- lanes -------- */

static inline void lose(struct draw_call *call, uint32_t i)
{
	call->lost[i / 64] |= (uint64_t)1 << i % 64;
	call->lanes.node[i] = 0;
	call->lanes.r[i] = 0;
	call->lanes.expected[i] = UINT64_MAX; /* so that no kernel settles it */
}

static inline bool is_lost(const struct draw_call *call, uint32_t i)
{
	return call->lost[i / 64] >> i % 64 & 1;
}

static int place_lane(struct draw_call *call, uint32_t i, uint64_t x)
{
	struct top_pick pick;
	int ret = sumtree_tops_pick(&call->tops, point_at(call, x), call->rng, &pick);

	if (ret == -ESTALE) {
		call->shard[i] = 0;
		lose(call, i);
		return 0;
	}
	if (ret)
		return ret;
	call->shard[i] = pick.shard;
	call->ratio[i] = pick.ratio;
	call->lanes.node[i] = pick.node;
	call->lanes.r[i] = pick.r;
	call->lanes.expected[i] = pick.expected;
	return 0;
}

/* Begins a chunk of n draws; total > 0. */
static int place_lanes(struct draw_call *call, const struct strata *strata, size_t first,
		       uint32_t n)
{
	uint64_t u[DRAW_CHUNK];
	int ret = 0;

	call->n = n;
	call->per_quantum = 1 / (double)sumtree_tops_total(&call->tops);
	call->lanes_n = (uint32_t)align_up(n, DRAW_GROUP);
	memset(call->lost, 0, sizeof(call->lost));
	rng_fill_u64(call->rng, u, n);
	for (uint32_t i = 0; ret == 0 && i < n; i++)
		ret = place_lane(call, i, stratum_point(strata, first + i, u[i]));
	for (uint32_t i = n; i < call->lanes_n; i++) { /* padding does as lane 0 does */
		call->shard[i] = call->shard[0];
		call->lanes.node[i] = call->lanes.node[0];
		call->lanes.r[i] = call->lanes.r[0];
		call->lanes.expected[i] = call->lanes.expected[0];
	}
	return ret;
}

/* -------- children of the lanes' nodes -------- */

/* Where the children of nodes of a level are. */
struct level {
	uint32_t number; /* of the nodes; their children are one lower */
	uint32_t fanout;
	uint32_t lines;  /* of a node's children */
	uint64_t stride; /* bytes of a node's children */
};

static inline const uint8_t *level_base(const struct draw_call *call, uint32_t shard,
					const struct level *level)
{
	const struct sumtree *tree = &call->from->trees[shard];

	return tree->region->base +
	       node_level_off(tree, call->from->epochs[shard].number & 1, level->number - 1);
}

/* Sums that a broken region may hold can name a node in the padding: it must lead nowhere else. */
static inline uint64_t checked_node(struct draw_call *call, uint32_t i, const struct level *level)
{
	uint64_t node = call->lanes.node[i];

	if (__builtin_expect(node >= call->from->trees[call->shard[i]].nodes[level->number], 0)) {
		lose(call, i);
		return 0;
	}
	return node;
}

static inline void prefetch_node(const uint8_t *children, uint32_t lines)
{
	for (uint32_t k = 0; k < lines; k++)
		__builtin_prefetch(children + (size_t)k * WIRE_LINE);
}

static inline void aim_one_tree(struct draw_call *call, const struct level *level, uint32_t lines)
{
	const uint8_t *base = level_base(call, 0, level);

	for (uint32_t i = 0; i < call->lanes_n; i++) {
		const uint8_t *children = base + checked_node(call, i, level) * level->stride;

		call->lanes.children[i] = (const uint64_t *)(const void *)children;
		prefetch_node(children, lines);
	}
}

static void aim_in_place(struct draw_call *call, const struct level *level)
{
	uint32_t lines = call->prefetch ? level->lines : 0;

	if (call->from->n == 1 && lines == 1) {
		aim_one_tree(call, level, 1);
	} else if (call->from->n == 1 && lines == 2) {
		aim_one_tree(call, level, 2);
	} else if (call->from->n == 1) {
		aim_one_tree(call, level, lines);
	} else {
		for (uint32_t i = 0; i < call->lanes_n; i++) {
			const uint8_t *children = level_base(call, call->shard[i], level) +
						  checked_node(call, i, level) * level->stride;

			call->lanes.children[i] = (const uint64_t *)(const void *)children;
			prefetch_node(children, lines);
		}
	}
}

/* What the same reads would cost as calls: one vector for each transport. */
static void account_level(const struct draw_call *call, const struct level *level)
{
	struct transport *tr = call->from->trees[0].region->tr;
	struct transport_set used;

	if (call->from->n == 1) {
		transport_account(tr, 1, call->n, call->n * level->stride);
		return;
	}
	used.n = 0;
	for (uint32_t i = 0; i < call->n; i++) {
		tr = call->from->trees[call->shard[i]].region->tr;
		transport_account(tr, transport_set_add(&used, tr), 1, level->stride);
	}
}

/* Views for all draws of the transport of draw `first`; they go on one call. */
static int view_transport(struct draw_call *call, const struct level *level, uint32_t first)
{
	struct transport_view views[DRAW_CHUNK];
	uint16_t lane[DRAW_CHUNK];
	struct transport *tr = call->from->trees[call->shard[first]].region->tr;
	uint32_t n = 0;
	int ret;

	for (uint32_t i = first; i < call->n; i++) {
		const struct sumtree *tree = &call->from->trees[call->shard[i]];
		uint32_t parity = call->from->epochs[call->shard[i]].number & 1;

		if (tree->region->tr != tr || tree->region->base)
			continue;
		lane[n] = (uint16_t)i;
		views[n++] = (struct transport_view){
			.region = tree->region,
			.off = node_level_off(tree, parity, level->number - 1) +
			       checked_node(call, i, level) * level->stride,
			.len = (uint32_t)level->stride,
		};
	}
	ret = transport_view(tr, views, n);
	for (uint32_t i = 0; ret == 0 && i < n; i++)
		call->lanes.children[lane[i]] = views[i].ptr;
	return ret;
}

/* As aim_in_place, where some regions can only be viewed. used_out: to be given back. */
static int aim_views(struct draw_call *call, const struct level *level,
		     struct transport_set *used_out)
{
	struct transport_set counted;
	int ret = 0;

	used_out->n = counted.n = 0;
	for (uint32_t i = 0; i < call->n; i++) {
		const struct region *region = call->from->trees[call->shard[i]].region;

		if (region->base) {
			call->lanes.children[i] =
				(const uint64_t *)(const void *)(level_base(call, call->shard[i],
									    level) +
								 checked_node(call, i, level) *
									 level->stride);
			transport_account(region->tr, transport_set_add(&counted, region->tr), 1,
					  level->stride);
			continue;
		}
		if (used_out->n == TRANSPORT_SET_MAX)
			return error_set(-EINVAL, "draw: more than %u transports",
					 TRANSPORT_SET_MAX);
		if (!transport_set_add(used_out, region->tr))
			continue;
		ret = view_transport(call, level, i);
		if (ret) {
			used_out->n--;
			return ret;
		}
	}
	for (uint32_t i = call->n; i < call->lanes_n; i++)
		call->lanes.children[i] = call->lanes.children[0];
	return 0;
}

static void end_views(const struct transport_set *used)
{
	for (uint32_t i = 0; i < used->n; i++)
		transport_view_end(used->tr[i]);
}

/* -------- draws that the kernel left -------- */

/* Copies children as they are now: mass only, negative sums as 0. Returns what they add up to. */
static uint64_t read_children(const uint64_t *children, const struct level *level,
			      uint64_t words[TREE_MAX_FANOUT], uint64_t mass[TREE_MAX_FANOUT])
{
	const struct rword64 *from = (const struct rword64 *)(const void *)children;
	uint64_t total = 0;

	for (uint32_t k = 0; k < level->fanout; k++) {
		words[k] = rword64_load_acquire(&from[k]);
		if (level->number == 1)
			mass[k] = leaf_priority(words[k]);
		else
			mass[k] = (int64_t)words[k] > 0 ? words[k] : 0;
		total += mass[k];
	}
	return total;
}

/* Rule 6 for one draw. */
static void settle(struct draw_call *call, uint32_t i, const struct level *level)
{
	struct draw_lanes *lanes = &call->lanes;
	uint64_t words[TREE_MAX_FANOUT], mass[TREE_MAX_FANOUT];
	uint64_t total, r = lanes->r[i], prefix = 0;
	uint32_t child = 0;

	if (is_lost(call, i))
		return;
	total = read_children(lanes->children[i], level, words, mass);
	if (total == 0) {
		lose(call, i);
		return;
	}
	if (total != lanes->expected[i]) {
		call->ratio[i] *= (double)lanes->expected[i] / (double)total;
		r = rng_uniform_u64(call->rng, total);
	}
	while (child + 1 < level->fanout && prefix + mass[child] <= r)
		prefix += mass[child++];
	lanes->node[i] = lanes->node[i] * level->fanout + child;
	lanes->expected[i] = mass[child];
	lanes->r[i] = r - prefix;
	lanes->word[i] = words[child];
}

static void settle_lanes(struct draw_call *call, const struct level *level)
{
	for (uint32_t g = 0; g < call->lanes_n / DRAW_GROUP; g++) {
		for (uint32_t bits = call->lanes.redo[g]; bits; bits &= bits - 1) {
			uint32_t i = g * DRAW_GROUP + bits_ctz(bits);

			if (i < call->n)
				settle(call, i, level);
		}
	}
}

/* -------- the way down -------- */

static int descend_level(struct draw_call *call, const struct level *level)
{
	const struct sumtree_kernel *kernel = call->kernel;
	struct transport_set used;
	int ret = 0;

	used.n = 0;
	if (call->in_place) {
		aim_in_place(call, level);
		account_level(call, level);
	} else {
		ret = aim_views(call, level, &used);
	}
	if (ret == 0) {
		if (level->number == 1)
			kernel->leaves(&call->lanes, call->lanes_n / DRAW_GROUP, level->fanout);
		else
			kernel->inner(&call->lanes, call->lanes_n / DRAW_GROUP, level->fanout);
		settle_lanes(call, level);
	}
	end_views(&used);
	return ret;
}

static int descend(struct draw_call *call)
{
	const struct sumtree *tree = &call->from->trees[0];
	int ret = 0;

	for (uint32_t l = tree->geo.levels; ret == 0 && l > 0; l--) {
		uint32_t fanout = tree->geo.fanout[l - 1];
		struct level level = {
			.number = l,
			.fanout = fanout,
			.lines = fanout / LINE_WORDS,
			.stride = (uint64_t)fanout * 8,
		};

		ret = descend_level(call, &level);
	}
	return ret;
}

/* Draw i of the chunk is out->...[to]. False = it is lost. */
static inline bool emit(struct draw_call *call, uint32_t i, const struct draws *out, size_t to)
{
	uint64_t slot = call->lanes.node[i];
	uint32_t shard = call->shard[i];

	if (is_lost(call, i) || slot >= call->from->trees[shard].geo.leaves)
		return false;
	out->shard[to] = shard;
	out->slot[to] = (uint32_t)slot;
	out->word[to] = call->lanes.word[i];
	out->probability[to] =
		call->ratio[i] * call->per_quantum * (double)leaf_priority(call->lanes.word[i]);
	return true;
}

/* Draws one anew over everything, tops re-read, until it is found. */
static int restart(struct draw_call *call, const struct draws *out, size_t to)
{
	const struct strata independent = { 0 };

	for (int tries = 0; tries < DRAW_RESTARTS; tries++) {
		int ret = sumtree_tops_read(&call->tops, call->from);

		if (ret)
			return ret;
		if (sumtree_tops_total(&call->tops) == 0)
			continue;
		ret = place_lanes(call, &independent, 0, 1);
		if (ret == 0)
			ret = descend(call);
		if (ret)
			return ret;
		if (emit(call, 0, out, to))
			return 0;
	}
	return error_set(-ENODATA, "draw: no item found in %d tries", DRAW_RESTARTS);
}

static int draw_chunk(struct draw_call *call, const struct strata *strata, const struct draws *out,
		      size_t first, uint32_t n)
{
	uint16_t again[DRAW_CHUNK];
	uint32_t n_again = 0;
	int ret = 0;

	if (sumtree_tops_total(&call->tops) > 0) {
		ret = place_lanes(call, strata, first, n);
		if (ret == 0)
			ret = descend(call);
		for (uint32_t i = 0; ret == 0 && i < n; i++)
			if (!emit(call, i, out, first + i))
				again[n_again++] = (uint16_t)i;
	} else { /* between two flushes, perhaps */
		ret = restart(call, out, first);
		for (uint32_t i = 1; i < n; i++)
			again[n_again++] = (uint16_t)i;
	}
	for (uint32_t i = 0; ret == 0 && i < n_again; i++)
		ret = restart(call, out, first + again[i]);
	return ret;
}

static int check_forest(const struct forest *from, struct draw_call *call)
{
	const struct tree_geometry *geo;

	if (from->n == 0 || from->n > TABLE_MAX_SHARDS)
		return error_set(-EINVAL, "draw from %u trees: must be 1..%u", from->n,
				 TABLE_MAX_SHARDS);
	geo = &from->trees[0].geo;
	call->in_place = true;
	for (uint32_t t = 0; t < from->n; t++) {
		call->in_place &= from->trees[t].region->base != NULL;
		if (from->trees[t].geo.levels != geo->levels ||
		    memcmp(from->trees[t].geo.fanout, geo->fanout, sizeof(geo->fanout)) != 0)
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
	int ret = check_forest(from, &call);

	if (ret || n == 0)
		return ret;
	call.from = from;
	call.rng = rng;
	call.kernel = sumtree_kernel_get();
	call.prefetch = !opts || !opts->no_prefetch;
	ret = sumtree_tops_read(&call.tops, from);
	for (size_t first = 0; ret == 0 && first < n; first += DRAW_CHUNK)
		ret = draw_chunk(&call, &strata, out, first,
				 (uint32_t)min_u64(DRAW_CHUNK, n - first));
	return ret;
}

/*
 * Kernel for four draws at a time; otherwise as kernel_avx512.c. Sums are below 2^63, and a
 * larger one sends the draw back to the caller anyway: signed comparisons suffice.
 */
#include "ds/sumtree/kernel.h"

#if defined(__AVX2__)

#include "wire/sumtree_layout.h"

#include <immintrin.h>
#include <stdbool.h>

/* Separate code for each fan-out, and for leaves and sums. */
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define LANES 4u

struct picks {
	__m256i r;
	__m256i prefix; /* of the children so far */
	__m256i below;  /* prefix of the child picked */
	__m256i word;   /* the child picked */
	__m256i child;  /* its index */
	__m256i any;    /* all words of inner nodes and all prefixes or-ed: negative if one is */
};

static ALWAYS_INLINE __m256i load_words(const void *from)
{
	return _mm256_loadu_si256((const __m256i *)from);
}

/* Children at .. at + 3 of four draws, one vector for each child. */
static ALWAYS_INLINE void load_columns(const uint64_t *const *children, uint32_t at,
				       __m256i c[LANES])
{
	__m256i a0 = load_words(children[0] + at), a1 = load_words(children[1] + at);
	__m256i a2 = load_words(children[2] + at), a3 = load_words(children[3] + at);
	__m256i even01 = _mm256_unpacklo_epi64(a0, a1), odd01 = _mm256_unpackhi_epi64(a0, a1);
	__m256i even23 = _mm256_unpacklo_epi64(a2, a3), odd23 = _mm256_unpackhi_epi64(a2, a3);

	c[0] = _mm256_permute2x128_si256(even01, even23, 0x20);
	c[1] = _mm256_permute2x128_si256(odd01, odd23, 0x20);
	c[2] = _mm256_permute2x128_si256(even01, even23, 0x31);
	c[3] = _mm256_permute2x128_si256(odd01, odd23, 0x31);
}

static ALWAYS_INLINE void avx2_consider(struct picks *p, __m256i word, bool leaves)
{
	__m256i beyond = _mm256_cmpgt_epi64(p->prefix, p->r); /* -1 where it is beyond r */

	p->below = _mm256_blendv_epi8(p->prefix, p->below, beyond);
	p->word = _mm256_blendv_epi8(word, p->word, beyond);
	p->child = _mm256_add_epi64(p->child, _mm256_add_epi64(beyond, _mm256_set1_epi64x(1)));
	if (leaves)
		word = _mm256_and_si256(word, _mm256_set1_epi64x((long long)LEAF_PRIORITY_MASK));
	p->prefix = _mm256_add_epi64(p->prefix, word);
	if (!leaves)
		p->any = _mm256_or_si256(p->any, _mm256_or_si256(word, p->prefix));
}

static ALWAYS_INLINE struct picks pick_group(const struct draw_lanes *lanes, uint32_t i,
					     uint32_t fanout, bool leaves)
{
	const __m256i zero = _mm256_setzero_si256();
	struct picks p = { load_words(&lanes->r[i]), zero, zero, zero, zero, zero };
	__m256i c[LANES];

	p.child = _mm256_set1_epi64x(-1); /* the first child is always counted */
	for (uint32_t at = 0; at < fanout; at += LANES) {
		load_columns(&lanes->children[i], at, c);
		for (uint32_t k = 0; k < LANES; k++)
			avx2_consider(&p, c[k], leaves);
	}
	return p;
}

static ALWAYS_INLINE void store_words(uint64_t *to, __m256i value, __m256i where)
{
	_mm256_maskstore_epi64((long long *)to, where, value);
}

/* Returns a bit for each lane that the caller must settle. */
static ALWAYS_INLINE uint32_t store_group(struct draw_lanes *lanes, uint32_t i,
					  const struct picks *p, const struct draw_step *step,
					  bool leaves)
{
	__m256i good = _mm256_cmpeq_epi64(p->prefix, load_words(&lanes->expected[i]));
	__m256i node = load_words(&lanes->node[i]);
	__m256i value = p->word;

	if (leaves)
		value = _mm256_and_si256(value, _mm256_set1_epi64x((long long)LEAF_PRIORITY_MASK));
	else
		good = _mm256_andnot_si256(_mm256_cmpgt_epi64(_mm256_setzero_si256(), p->any),
					   good);
	node = _mm256_add_epi64(_mm256_mul_epu32(node, _mm256_set1_epi64x(step->fanout)), p->child);
	good = _mm256_and_si256(good, _mm256_cmpgt_epi64(_mm256_set1_epi64x(step->limit), node));
	store_words(&lanes->node[i], node, good);
	store_words(&lanes->r[i], _mm256_sub_epi64(p->r, p->below), good);
	store_words(&lanes->expected[i], value, good);
	if (leaves)
		_mm256_storeu_si256((__m256i *)(void *)&lanes->word[i], p->word);
	return ~(uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(good)) & 15u;
}

/* All children of four draws, at most 16, one vector for each; negative sums as 0. */
struct family {
	__m256i child[4 * LANES];
	__m256i total;
	uint32_t which; /* draws to be moved, a bit each */
};

static ALWAYS_INLINE __m256i mass_of(__m256i word, bool leaves)
{
	if (leaves)
		return _mm256_and_si256(word, _mm256_set1_epi64x((long long)LEAF_PRIORITY_MASK));
	return word;
}

static ALWAYS_INLINE void load_family(struct family *f, const uint64_t *const *children,
				      uint32_t fanout, bool leaves)
{
	f->total = _mm256_setzero_si256();
	for (uint32_t at = 0; at < fanout; at += LANES)
		load_columns(children, at, f->child + at);
	for (uint32_t k = 0; k < fanout; k++) {
		if (!leaves)
			f->child[k] = _mm256_andnot_si256(
				_mm256_cmpgt_epi64(_mm256_setzero_si256(), f->child[k]),
				f->child[k]);
		f->total = _mm256_add_epi64(f->total, mass_of(f->child[k], leaves));
	}
}

/* The upper half of the products of 64-bit words, b below 2^63. */
static ALWAYS_INLINE __m256i mul_high(__m256i a, __m256i b)
{
	const __m256i low = _mm256_set1_epi64x(UINT32_MAX);
	__m256i ah = _mm256_srli_epi64(a, 32), bh = _mm256_srli_epi64(b, 32);
	__m256i mid = _mm256_mul_epu32(ah, b), mid2 = _mm256_mul_epu32(a, bh);
	__m256i carry = _mm256_srli_epi64(_mm256_mul_epu32(a, b), 32);

	carry = _mm256_add_epi64(carry, _mm256_and_si256(mid, low));
	carry = _mm256_add_epi64(carry, _mm256_and_si256(mid2, low));
	mid = _mm256_add_epi64(_mm256_srli_epi64(mid, 32), _mm256_srli_epi64(mid2, 32));
	return _mm256_add_epi64(_mm256_add_epi64(_mm256_mul_epu32(ah, bh), mid),
				_mm256_srli_epi64(carry, 32));
}

/* A bit for each of four draws whose children do not sum to what was expected. */
static ALWAYS_INLINE uint32_t drifted(const struct draw_lanes *lanes, uint32_t i, __m256i total)
{
	__m256i same = _mm256_cmpeq_epi64(total, load_words(&lanes->expected[i]));

	return ~(uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(same)) & 15u;
}

/* All bits of a word set for each draw in `which`. */
static ALWAYS_INLINE __m256i mask_of(uint32_t which)
{
	const __m256i bits = _mm256_set_epi64x(8, 4, 2, 1);

	return _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(which), bits), bits);
}

/* Gives those of four draws a fresh remainder, and their ratio, that drifted. */
static ALWAYS_INLINE void draw_fresh_ones(struct draw_lanes *lanes, uint32_t i, uint32_t drift,
					  __m256i total, const uint64_t *fresh)
{
	uint64_t totals[LANES];

	store_words(&lanes->r[i], mul_high(load_words(fresh), total), mask_of(drift));
	_mm256_storeu_si256((__m256i *)(void *)totals, total);
	for (uint32_t k = 0; k < LANES; k++)
		if (drift >> k & 1 && totals[k] != 0)
			lanes->ratio[i + k] *= (double)(int64_t)lanes->expected[i + k] /
					       (double)(int64_t)totals[k];
}

/* Picks the children of the draws to be moved; returns a bit for each without mass. */
static ALWAYS_INLINE uint32_t pick_family(struct draw_lanes *lanes, uint32_t i,
					  const struct family *f, const struct draw_step *step,
					  bool leaves)
{
	const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi64x(1);
	struct picks p = { load_words(&lanes->r[i]),
			   mass_of(f->child[0], leaves),
			   zero,
			   f->child[0],
			   zero,
			   zero };
	__m256i node = load_words(&lanes->node[i]), good;

	for (uint32_t k = 1; k < step->fanout; k++) {
		__m256i beyond = _mm256_cmpgt_epi64(p.prefix, p.r);

		p.below = _mm256_blendv_epi8(p.prefix, p.below, beyond);
		p.word = _mm256_blendv_epi8(f->child[k], p.word, beyond);
		p.child = _mm256_add_epi64(p.child, _mm256_add_epi64(beyond, one));
		p.prefix = _mm256_add_epi64(p.prefix, mass_of(f->child[k], leaves));
	}
	node = _mm256_add_epi64(_mm256_mul_epu32(node, _mm256_set1_epi64x(step->fanout)), p.child);
	good = _mm256_andnot_si256(_mm256_cmpeq_epi64(f->total, zero),
				   _mm256_cmpgt_epi64(_mm256_set1_epi64x(step->limit), node));
	good = _mm256_and_si256(good, mask_of(f->which));
	store_words(&lanes->node[i], node, good);
	store_words(&lanes->r[i], _mm256_sub_epi64(p.r, p.below), good);
	store_words(&lanes->expected[i], mass_of(p.word, leaves), good);
	if (leaves)
		store_words(&lanes->word[i], p.word, good);
	return f->which & ~(uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(good));
}

/* Rule 6 for the draws in `which`, of up to 16 children. Out of line: only drift comes here. */
static __attribute__((noinline)) uint32_t draw_drifted(struct draw_lanes *lanes, uint32_t group,
						       uint32_t which, const struct draw_step *step,
						       bool leaves)
{
	uint32_t i = group * DRAW_GROUP, redo, drift[2];
	struct family half[2];

	for (uint32_t h = 0; h < 2; h++) {
		load_family(&half[h], &lanes->children[i + h * LANES], step->fanout, leaves);
		half[h].which = which >> h * LANES & 15u;
		drift[h] = half[h].which & drifted(lanes, i + h * LANES, half[h].total);
	}
	if (drift[0] | drift[1]) {
		const uint64_t *fresh = draw_fresh(lanes);

		draw_fresh_ones(lanes, i, drift[0], half[0].total, fresh);
		draw_fresh_ones(lanes, i + LANES, drift[1], half[1].total, fresh + LANES);
	}
	redo = pick_family(lanes, i, &half[0], step, leaves);
	redo |= pick_family(lanes, i + LANES, &half[1], step, leaves) << LANES;
	if (redo == 0 && step->next_base)
		draw_aim(lanes, group, step);
	return redo;
}

static ALWAYS_INLINE uint32_t pick_eight(struct draw_lanes *lanes, uint32_t group,
					 const struct draw_step *step, uint32_t fanout, bool leaves)
{
	uint32_t i = group * DRAW_GROUP, redo;
	struct picks low = pick_group(lanes, i, fanout, leaves);
	struct picks high = pick_group(lanes, i + LANES, fanout, leaves);

	redo = store_group(lanes, i, &low, step, leaves);
	redo |= store_group(lanes, i + LANES, &high, step, leaves) << LANES;
	if (redo == 0 && step->next_base)
		draw_aim(lanes, group, step);
	return redo;
}

/* Constants for the usual fan-outs, so that their loops unroll. */
static ALWAYS_INLINE uint32_t pick_by_fanout(struct draw_lanes *lanes, uint32_t group,
					     const struct draw_step *step, bool leaves)
{
	bool *drifts = &lanes->drifts[leaves];
	uint32_t redo = 0xff;

	if (step->fanout == 8 && !*drifts)
		redo = pick_eight(lanes, group, step, 8, leaves);
	else if (step->fanout == 16 && !*drifts)
		redo = pick_eight(lanes, group, step, 16, leaves);
	else if (step->fanout > 16)
		return pick_eight(lanes, group, step, step->fanout, leaves);
	if (__builtin_expect(redo == 0, 1))
		return 0;
	*drifts = true; /* of the groups that follow, too */
	return draw_drifted(lanes, group, redo, step, leaves);
}

static uint32_t pick_inner(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	return pick_by_fanout(lanes, group, step, false);
}

static uint32_t pick_leaves(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	return pick_by_fanout(lanes, group, step, true);
}

static uint32_t pick_sums(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	return pick_eight(lanes, group, step, 16, false);
}

static void avx2_copy(const uint64_t *from, uint32_t n, uint64_t *to, uint64_t *sums)
{
	const __m256i zero = _mm256_setzero_si256();

	for (uint32_t i = 0; i < n; i++) {
		__m256i sum = zero;
		uint64_t parts[LANES];

		for (uint32_t k = 0; k < SUMS_FANOUT; k += LANES, from += LANES, to += LANES) {
			__m256i word = load_words(from);

			word = _mm256_andnot_si256(_mm256_cmpgt_epi64(zero, word), word);
			_mm256_storeu_si256((__m256i *)(void *)to, word);
			sum = _mm256_add_epi64(sum, word);
		}
		_mm256_storeu_si256((__m256i *)(void *)parts, sum);
		sums[i] = parts[0] + parts[1] + parts[2] + parts[3];
	}
}

const struct sumtree_kernel sumtree_kernel_avx2 = { pick_inner, pick_leaves, pick_sums, avx2_copy };

#endif

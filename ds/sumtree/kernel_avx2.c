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
	switch (step->fanout) {
	case 8:
		return pick_eight(lanes, group, step, 8, leaves);
	case 16:
		return pick_eight(lanes, group, step, 16, leaves);
	default:
		return pick_eight(lanes, group, step, step->fanout, leaves);
	}
}

static uint32_t pick_inner(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	return pick_by_fanout(lanes, group, step, false);
}

static uint32_t pick_leaves(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	return pick_by_fanout(lanes, group, step, true);
}

const struct sumtree_kernel sumtree_kernel_avx2 = { pick_inner, pick_leaves };

#endif

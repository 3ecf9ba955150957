/*
 * Kernel for eight draws at a time. One load reads eight children of a draw; transposed, there
 * is one vector for each child, and prefixes are vector additions.
 *
 * Every CPU with AVX-512 reads an aligned 8-byte word of a vector load at once, and before later
 * reads of the caller (x86-64 does not reorder loads): V1 pairs with P1 here, too, without an
 * acquire.
 */
#include "ds/sumtree/kernel.h"

#if defined(__AVX512F__)

#include "wire/sumtree_layout.h"

#include <immintrin.h>
#include <stdbool.h>

/* Separate code for each fan-out, and for leaves and sums. */
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define LANES 8u

struct picks {
	__m512i r;
	__m512i prefix; /* of the children so far */
	__m512i below;  /* prefix of the child picked */
	__m512i word;   /* the child picked */
	__m512i child;  /* its index */
	__m512i any;    /* all words of inner nodes or-ed: negative if one is */
};

/* Target nodes of eight draws, valid if below limit. */
struct target {
	__m512i node;
	uint32_t limit;
};

static ALWAYS_INLINE __m512i load_row(const uint64_t *children, uint32_t at)
{
	return _mm512_loadu_si512((const void *)(children + at));
}

/* Children at .. at + 7 of eight draws, one vector for each child. */
static ALWAYS_INLINE void load_columns(const uint64_t *const *children, uint32_t at,
				       __m512i c[LANES])
{
	__m512i pair[LANES], quad[LANES];

	for (uint32_t i = 0; i < LANES; i += 2) {
		__m512i a = load_row(children[i], at), b = load_row(children[i + 1], at);

		pair[i] = _mm512_unpacklo_epi64(a, b);     /* columns 0 2 4 6 */
		pair[i + 1] = _mm512_unpackhi_epi64(a, b); /* columns 1 3 5 7 */
	}
	for (uint32_t i = 0; i < LANES; i += 4) {
		quad[i] = _mm512_shuffle_i64x2(pair[i], pair[i + 2], 0x88);         /* 0 4 */
		quad[i + 1] = _mm512_shuffle_i64x2(pair[i + 1], pair[i + 3], 0x88); /* 1 5 */
		quad[i + 2] = _mm512_shuffle_i64x2(pair[i], pair[i + 2], 0xdd);     /* 2 6 */
		quad[i + 3] = _mm512_shuffle_i64x2(pair[i + 1], pair[i + 3], 0xdd); /* 3 7 */
	}
	for (uint32_t i = 0; i < 4; i++) {
		c[i] = _mm512_shuffle_i64x2(quad[i], quad[i + 4], 0x88);
		c[i + 4] = _mm512_shuffle_i64x2(quad[i], quad[i + 4], 0xdd);
	}
}

static ALWAYS_INLINE void add_child(struct picks *p, __m512i word, bool leaves)
{
	if (leaves)
		word = _mm512_and_si512(word, _mm512_set1_epi64((long long)LEAF_PRIORITY_MASK));
	else
		p->any = _mm512_or_si512(p->any, word);
	p->prefix = _mm512_add_epi64(p->prefix, word);
}

static ALWAYS_INLINE void avx512_consider(struct picks *p, __m512i word, bool leaves)
{
	__mmask8 here = _mm512_cmple_epu64_mask(p->prefix, p->r);

	p->below = _mm512_mask_mov_epi64(p->below, here, p->prefix);
	p->word = _mm512_mask_mov_epi64(p->word, here, word);
	p->child = _mm512_mask_add_epi64(p->child, here, p->child, _mm512_set1_epi64(1));
	add_child(p, word, leaves);
}

static ALWAYS_INLINE struct picks pick_group(const struct draw_lanes *lanes, uint32_t i,
					     uint32_t fanout, bool leaves)
{
	const __m512i zero = _mm512_setzero_si512();
	struct picks p = {
		_mm512_loadu_si512((const void *)&lanes->r[i]), zero, zero, zero, zero, zero
	};
	__m512i c[LANES];

	load_columns(&lanes->children[i], 0, c);
	p.word = c[0];
	add_child(&p, c[0], leaves);
	for (uint32_t k = 1; k < LANES; k++)
		avx512_consider(&p, c[k], leaves);
	for (uint32_t at = LANES; at < fanout; at += LANES) {
		load_columns(&lanes->children[i], at, c);
		for (uint32_t k = 0; k < LANES; k++)
			avx512_consider(&p, c[k], leaves);
	}
	return p;
}

/* Returns a bit for each lane that the caller must settle. */
static ALWAYS_INLINE uint32_t store_group(struct draw_lanes *lanes, uint32_t i,
					  const struct picks *p, struct target to, bool leaves)
{
	__mmask8 good = _mm512_cmpeq_epi64_mask(p->prefix, load_row(lanes->expected, i));
	__m512i value = p->word;

	if (leaves)
		value = _mm512_and_si512(value, _mm512_set1_epi64((long long)LEAF_PRIORITY_MASK));
	else
		good &= (__mmask8)~_mm512_movepi64_mask(p->any);
	good &= _mm512_cmplt_epu64_mask(to.node, _mm512_set1_epi64(to.limit));
	_mm512_mask_storeu_epi64(&lanes->node[i], good, to.node);
	_mm512_mask_storeu_epi64(&lanes->r[i], good, _mm512_sub_epi64(p->r, p->below));
	_mm512_mask_storeu_epi64(&lanes->expected[i], good, value);
	if (leaves)
		_mm512_storeu_si512((void *)&lanes->word[i], p->word);
	return (uint8_t)~good;
}

/* As draw_aim, for nodes still in a register. */
static ALWAYS_INLINE void avx512_aim(struct draw_lanes *lanes, uint32_t i, __m512i node,
				     const struct draw_step *step)
{
	__m512i bytes = _mm512_mul_epu32(node, _mm512_set1_epi64(step->next_bytes));
	__m512i base = _mm512_set1_epi64((long long)(uintptr_t)step->next_base);

	if (step->next_at)
		base = _mm512_add_epi64(base, load_row(step->next_at, i));
	_mm512_storeu_si512((void *)&lanes->children[i], _mm512_add_epi64(base, bytes));
	draw_prefetch(lanes, i / LANES, step);
}

/* All children of eight draws, at most 16, one vector for each; negative sums as 0. */
struct family {
	__m512i child[2 * LANES];
	__m512i total;
};

static ALWAYS_INLINE __m512i mass_of(__m512i word, bool leaves)
{
	if (leaves)
		return _mm512_and_si512(word, _mm512_set1_epi64((long long)LEAF_PRIORITY_MASK));
	return word;
}

static ALWAYS_INLINE void load_family(struct family *f, const uint64_t *const *children,
				      uint32_t fanout, bool leaves)
{
	f->total = _mm512_setzero_si512();
	for (uint32_t at = 0; at < fanout; at += LANES)
		load_columns(children, at, f->child + at);
	for (uint32_t k = 0; k < fanout; k++) {
		if (!leaves)
			f->child[k] = _mm512_max_epi64(f->child[k], _mm512_setzero_si512());
		f->total = _mm512_add_epi64(f->total, mass_of(f->child[k], leaves));
	}
}

/* The upper half of the products of 64-bit words, b below 2^63. */
static ALWAYS_INLINE __m512i mul_high(__m512i a, __m512i b)
{
	const __m512i low = _mm512_set1_epi64(UINT32_MAX);
	__m512i ah = _mm512_srli_epi64(a, 32), bh = _mm512_srli_epi64(b, 32);
	__m512i mid = _mm512_mul_epu32(ah, b), mid2 = _mm512_mul_epu32(a, bh);
	__m512i carry = _mm512_srli_epi64(_mm512_mul_epu32(a, b), 32);

	carry = _mm512_add_epi64(carry, _mm512_and_si512(mid, low));
	carry = _mm512_add_epi64(carry, _mm512_and_si512(mid2, low));
	mid = _mm512_add_epi64(_mm512_srli_epi64(mid, 32), _mm512_srli_epi64(mid2, 32));
	return _mm512_add_epi64(_mm512_add_epi64(_mm512_mul_epu32(ah, bh), mid),
				_mm512_srli_epi64(carry, 32));
}

/* Gives those draws a fresh remainder, and their ratio, whose children sum to another total. */
static ALWAYS_INLINE void draw_fresh_ones(struct draw_lanes *lanes, uint32_t i, __mmask8 drifted,
					  __m512i total, const uint64_t *fresh)
{
	__m512i expected = load_row(lanes->expected, i);
	__m512d ratio = _mm512_loadu_pd(&lanes->ratio[i]);

	_mm512_mask_storeu_epi64(&lanes->r[i], drifted, mul_high(load_row(fresh, 0), total));
	drifted &= _mm512_cmpneq_epi64_mask(total, _mm512_setzero_si512());
	ratio = _mm512_mask_mul_pd(
		ratio, drifted, ratio,
		_mm512_div_pd(_mm512_cvtepi64_pd(expected), _mm512_cvtepi64_pd(total)));
	_mm512_storeu_pd(&lanes->ratio[i], ratio);
}

/* As pick_group, by children that are loaded. */
static ALWAYS_INLINE struct picks pick_family(const struct family *f, __m512i r, uint32_t fanout,
					      bool leaves)
{
	const __m512i zero = _mm512_setzero_si512();
	struct picks p = { r, mass_of(f->child[0], leaves), zero, f->child[0], zero, zero };

	for (uint32_t k = 1; k < fanout; k++) {
		__mmask8 here = _mm512_cmple_epu64_mask(p.prefix, r);

		p.below = _mm512_mask_mov_epi64(p.below, here, p.prefix);
		p.word = _mm512_mask_mov_epi64(p.word, here, f->child[k]);
		p.child = _mm512_mask_add_epi64(p.child, here, p.child, _mm512_set1_epi64(1));
		p.prefix = _mm512_add_epi64(p.prefix, mass_of(f->child[k], leaves));
	}
	return p;
}

/* Some draws of a group. */
struct some {
	uint32_t group;
	__mmask8 which;
};

/* Rule 6 for some draws of up to 16 children. Returns a bit for each that has no mass below it. */
static ALWAYS_INLINE uint32_t draw_again(struct draw_lanes *lanes, struct some some,
					 const struct draw_step *step, uint32_t fanout, bool leaves)
{
	uint32_t i = some.group * LANES;
	__m512i node = load_row(lanes->node, i);
	struct family f;
	struct picks p;
	__mmask8 drifted, good;

	load_family(&f, &lanes->children[i], fanout, leaves);
	drifted = some.which & _mm512_cmpneq_epi64_mask(f.total, load_row(lanes->expected, i));
	if (drifted)
		draw_fresh_ones(lanes, i, drifted, f.total, draw_fresh(lanes));
	p = pick_family(&f, load_row(lanes->r, i), fanout, leaves);
	node = _mm512_add_epi64(_mm512_mul_epu32(node, _mm512_set1_epi64(fanout)), p.child);
	good = some.which & _mm512_cmplt_epu64_mask(node, _mm512_set1_epi64(step->limit)) &
	       _mm512_cmpneq_epi64_mask(f.total, _mm512_setzero_si512());
	_mm512_mask_storeu_epi64(&lanes->node[i], good, node);
	_mm512_mask_storeu_epi64(&lanes->r[i], good, _mm512_sub_epi64(p.r, p.below));
	_mm512_mask_storeu_epi64(&lanes->expected[i], good, mass_of(p.word, leaves));
	if (leaves)
		_mm512_mask_storeu_epi64(&lanes->word[i], good, p.word);
	return some.which & (uint8_t)~good;
}

static ALWAYS_INLINE uint32_t pick_eight(struct draw_lanes *lanes, uint32_t group,
					 const struct draw_step *step, uint32_t fanout, bool leaves)
{
	struct picks p = pick_group(lanes, group * LANES, fanout, leaves);
	__m512i node = load_row(lanes->node, group * LANES);
	uint32_t redo;

	node = _mm512_add_epi64(_mm512_mul_epu32(node, _mm512_set1_epi64(fanout)), p.child);
	redo = store_group(lanes, group * LANES, &p, (struct target){ node, step->limit }, leaves);
	if (!leaves && redo == 0 && step->next_base)
		avx512_aim(lanes, group * LANES, node, step);
	return redo;
}

/* Out of line: only drift comes here. */
static __attribute__((noinline)) uint32_t draw_drifted(struct draw_lanes *lanes, uint32_t group,
						       uint32_t which, const struct draw_step *step,
						       bool leaves)
{
	const struct some some = { group, (__mmask8)which };
	uint32_t redo, i = group * LANES;

	if (step->fanout == 8)
		redo = leaves ? draw_again(lanes, some, step, 8, true)
			      : draw_again(lanes, some, step, 8, false);
	else
		redo = leaves ? draw_again(lanes, some, step, 16, true)
			      : draw_again(lanes, some, step, 16, false);
	if (redo == 0 && step->next_base)
		avx512_aim(lanes, i, load_row(lanes->node, i), step);
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

/* The sum modulo 2^64: damaged words may overflow. */
static ALWAYS_INLINE uint64_t sum_lanes(__m512i words)
{
	__m256i four = _mm256_add_epi64(_mm512_castsi512_si256(words),
					_mm512_extracti64x4_epi64(words, 1));
	__m128i two =
		_mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));

	return (uint64_t)_mm_cvtsi128_si64(two) + (uint64_t)_mm_extract_epi64(two, 1);
}

static void avx512_copy(const uint64_t *from, uint32_t n, uint64_t *to, uint64_t *sums)
{
	const __m512i zero = _mm512_setzero_si512();

	for (uint32_t i = 0; i < n; i++, from += SUMS_FANOUT, to += SUMS_FANOUT) {
		__m512i low = _mm512_max_epi64(load_row(from, 0), zero);
		__m512i high = _mm512_max_epi64(load_row(from, LANES), zero);

		_mm512_storeu_si512((void *)to, low);
		_mm512_storeu_si512((void *)(to + LANES), high);
		sums[i] = sum_lanes(_mm512_add_epi64(low, high));
	}
}

const struct sumtree_kernel sumtree_kernel_avx512 = { pick_inner, pick_leaves, pick_sums,
						      avx512_copy };

#endif

/*
 * kernel_vector.h - private to ds/sumtree/kernel_avx*.c: the kernel for vectors of LANES draws, one
 * source for all widths (ds/sumtree/vectors.h). A load reads LANES children of a draw; transposed,
 * there is one vector for each child, and prefixes are vector additions.
 *
 * Every CPU with these vectors reads an aligned 8-byte word of a vector load at once, and before
 * later reads of the caller (x86-64 does not reorder loads): V1 pairs with P1 here, too, without an
 * acquire.
 */
#ifndef RLV_DS_SUMTREE_KERNEL_VECTOR_H
#define RLV_DS_SUMTREE_KERNEL_VECTOR_H

#include "ds/sumtree/kernel.h"
#include "ds/sumtree/vectors.h"

#include "wire/sumtree_layout.h"

#if defined(LANES)

#define VECTORS (DRAW_GROUP / LANES) /* of a group */
#define LANE_BITS ((1u << LANES) - 1)
#define FAMILY_MOST 16u

struct picks {
	vec prefix; /* of the children so far */
	vec below;  /* prefix of the child picked */
	vec word;   /* the child picked */
	vec passed; /* children behind it */
	vec any;    /* what must not be negative, or-ed: words of inner nodes, and prefixes */
	vec node;   /* the child's, by picks_end */
};

ALWAYS_INLINE vec mass_of(vec word, bool leaves)
{
	return leaves ? word & splat(LEAF_PRIORITY_MASK) : word;
}

ALWAYS_INLINE void picks_add(struct picks *p, vec word, bool leaves)
{
	p->prefix += mass_of(word, leaves);
	if (!leaves)
		p->any |= SIGNED_ONLY ? word | p->prefix : word;
}

ALWAYS_INLINE struct picks picks_begin(vec word, bool leaves)
{
	const vec zero = splat(0);
	struct picks p = { zero, zero, word, zero, zero, zero };

	picks_add(&p, word, leaves);
	return p;
}

ALWAYS_INLINE void picks_consider(struct picks *p, vec r, vec word, bool leaves)
{
	some beyond = more_than(p->prefix, r);

	p->below = choose(beyond, p->below, p->prefix);
	p->word = choose(beyond, p->word, word);
	p->passed = add_one(p->passed, beyond);
	picks_add(p, word, leaves);
}

ALWAYS_INLINE void picks_end(struct picks *p, vec node, uint32_t fanout)
{
	p->node = mul_low(node, splat(fanout)) + (splat(fanout - 1) - p->passed);
}

/*
 * Moves the draws of the lanes in `good` to the children picked: stores node, remainder and
 * expected mass.
 */
ALWAYS_INLINE void picks_store(struct draw_lanes *lanes, uint32_t i, const struct picks *p,
			       some good, bool leaves)
{
	store_some(&lanes->node[i], good, p->node);
	store_some(&lanes->r[i], good, load(&lanes->r[i]) - p->below);
	store_some(&lanes->expected[i], good, mass_of(p->word, leaves));
}

/* As draw_aim, for nodes still in registers. */
ALWAYS_INLINE void aim(struct draw_lanes *lanes, uint32_t group, const vec node[VECTORS],
		       const struct draw_step *step)
{
	for (uint32_t h = 0; h < VECTORS; h++) {
		uint32_t i = group * DRAW_GROUP + h * LANES;
		vec at = splat((uintptr_t)step->next_base) +
			 mul_low(node[h], splat(step->next_bytes));

		if (step->next_at)
			at += load(&step->next_at[i]);
		store((uint64_t *)(void *)&lanes->children[i], at);
	}
	draw_prefetch(lanes, group, step);
}

/* -------- the usual step -------- */

ALWAYS_INLINE struct picks pick_children(const uint64_t *const *children, vec r, uint32_t fanout,
					 bool leaves)
{
	struct picks p;
	vec c[LANES];

	load_columns(children, 0, c);
	p = picks_begin(c[0], leaves);
	for (uint32_t k = 1; k < LANES; k++)
		picks_consider(&p, r, c[k], leaves);
	for (uint32_t at = LANES; at < fanout; at += LANES) {
		load_columns(children, at, c);
		for (uint32_t k = 0; k < LANES; k++)
			picks_consider(&p, r, c[k], leaves);
	}
	return p;
}

/* What draws move to: private sums, which are exact, or shared words. */
enum words { OF_PRIVATE, OF_INNER, OF_LEAVES };

/*
 * Moves the draws of a group one level down whose children sum up to what is expected, which private
 * sums do. Returns a bit for each lane that did not move: the caller must settle it.
 */
ALWAYS_INLINE uint32_t pick_eight(struct draw_lanes *lanes, uint32_t group,
				  const struct draw_step *step, uint32_t fanout, enum words words)
{
	bool leaves = words == OF_LEAVES;
	vec node[VECTORS];
	uint32_t redo = 0;

	for (uint32_t h = 0; h < VECTORS; h++) {
		uint32_t i = group * DRAW_GROUP + h * LANES;
		struct picks p =
			pick_children(&lanes->children[i], load(&lanes->r[i]), fanout, leaves);
		some good;

		picks_end(&p, load(&lanes->node[i]), fanout);
		node[h] = p.node;
		good = more_than(splat(step->limit), p.node);
		if (words != OF_PRIVATE)
			good &= equal(p.prefix, load(&lanes->expected[i]));
		if (words == OF_INNER)
			good &= not_negative(p.any);
		picks_store(lanes, i, &p, good, leaves);
		if (leaves)
			store(&lanes->word[i], p.word);
		redo |= (~some_bits(good) & LANE_BITS) << h * LANES;
	}
	if (!leaves && redo == 0 && step->next_base)
		aim(lanes, group, node, step);
	return redo;
}

/* -------- drift -------- */

/* All children of LANES draws, one vector for each; negative sums as 0. */
struct family {
	vec child[FAMILY_MOST];
	vec total;
};

ALWAYS_INLINE void load_family(struct family *f, const uint64_t *const *children, uint32_t fanout,
			       bool leaves)
{
	f->total = splat(0);
	for (uint32_t at = 0; at < fanout; at += LANES)
		load_columns(children, at, f->child + at);
	for (uint32_t k = 0; k < fanout; k++) {
		if (!leaves)
			f->child[k] = clamp(f->child[k]);
		f->total += mass_of(f->child[k], leaves);
	}
}

/* The upper half of the products of 64-bit words, b below 2^63. */
ALWAYS_INLINE vec mul_high(vec a, vec b)
{
	const vec low = splat(UINT32_MAX);
	vec ah = a >> 32, bh = b >> 32, mid = mul_low(ah, b), mid2 = mul_low(a, bh);
	vec carry = (mul_low(a, b) >> 32) + (mid & low) + (mid2 & low);

	return mul_low(ah, bh) + (mid >> 32) + (mid2 >> 32) + (carry >> 32);
}

/* Some draws of a group. */
struct redraw {
	uint32_t group;
	uint32_t which; /* a bit each */
};

/*
 * Rule 6 for the draws again.which of a group, of up to 16 children: moves them one level down,
 * with a fresh remainder where the children sum to another total. Returns a bit for each draw that
 * has no mass below it, or would land behind the last node.
 */
ALWAYS_INLINE uint32_t draw_again(struct draw_lanes *lanes, struct redraw again,
				  const struct draw_step *step, uint32_t fanout, bool leaves)
{
	struct family family[VECTORS];
	uint32_t first = again.group * DRAW_GROUP, drifted = 0, redo = again.which;
	const uint64_t *fresh;

	for (uint32_t h = 0; h < VECTORS; h++) {
		uint32_t i = first + h * LANES;

		load_family(&family[h], &lanes->children[i], fanout, leaves);
		drifted |= some_bits(differ(family[h].total, load(&lanes->expected[i])))
			   << h * LANES;
	}
	drifted &= again.which;
	fresh = drifted ? draw_fresh(lanes) : NULL;
	for (uint32_t h = 0; h < VECTORS; h++) {
		uint32_t i = first + h * LANES;
		const struct family *f = &family[h];
		some drift = some_of(drifted >> h * LANES & LANE_BITS), good;
		struct picks p = picks_begin(f->child[0], leaves);
		vec r;

		/* A fresh remainder, and its ratio, where the children sum to another total. */
		if (fresh) {
			store_some(&lanes->r[i], drift,
				   mul_high(load(fresh + h * LANES), f->total));
			scale_ratio(&lanes->ratio[i], drift & differ(f->total, splat(0)),
				    load(&lanes->expected[i]), f->total);
		}
		r = load(&lanes->r[i]);
		for (uint32_t k = 1; k < fanout; k++)
			picks_consider(&p, r, f->child[k], leaves);
		picks_end(&p, load(&lanes->node[i]), fanout);
		good = some_of(again.which >> h * LANES & LANE_BITS) & differ(f->total, splat(0)) &
		       more_than(splat(step->limit), p.node);
		picks_store(lanes, i, &p, good, leaves);
		if (leaves)
			store_some(&lanes->word[i], good, p.word);
		redo &= ~(some_bits(good) << h * LANES);
	}
	return redo;
}

/*
 * Calls draw_again for the draws `which` of a group, of 8 or 16 children. Out of line: only drift
 * comes here.
 */
static __attribute__((noinline)) uint32_t draw_drifted(struct draw_lanes *lanes, uint32_t group,
						       uint32_t which, const struct draw_step *step,
						       bool leaves)
{
	const struct redraw again = { group, which };
	uint32_t redo;

	if (step->fanout == 8)
		redo = leaves ? draw_again(lanes, again, step, 8, true)
			      : draw_again(lanes, again, step, 8, false);
	else
		redo = leaves ? draw_again(lanes, again, step, 16, true)
			      : draw_again(lanes, again, step, 16, false);
	if (redo == 0 && step->next_base)
		draw_aim(lanes, group, step);
	return redo;
}

/* -------- the kernel -------- */

/*
 * Moves a group one level down; returns a bit for each draw that the caller must settle. Constants
 * for the usual fan-outs, so that their loops unroll.
 */
ALWAYS_INLINE uint32_t pick_by_fanout(struct draw_lanes *lanes, uint32_t group,
				      const struct draw_step *step, enum words words)
{
	bool leaves = words == OF_LEAVES, *drifts = &lanes->drifts[leaves];
	uint32_t redo = 0xff;

	if (step->fanout == 8 && !*drifts)
		redo = pick_eight(lanes, group, step, 8, words);
	else if (step->fanout == 16 && !*drifts)
		redo = pick_eight(lanes, group, step, 16, words);
	else if (step->fanout > 16)
		return pick_eight(lanes, group, step, step->fanout, words);
	if (__builtin_expect(redo == 0, 1))
		return 0;
	*drifts = true; /* of the groups that follow, too */
	return draw_drifted(lanes, group, redo, step, leaves);
}

static uint32_t pick_inner(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	return pick_by_fanout(lanes, group, step, OF_INNER);
}

static uint32_t pick_leaves(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	return pick_by_fanout(lanes, group, step, OF_LEAVES);
}

static uint32_t pick_sums(struct draw_lanes *lanes, uint32_t group, const struct draw_step *step)
{
	return pick_eight(lanes, group, step, SUMS_FANOUT, OF_PRIVATE);
}

static void split_trees(struct draw_lanes *lanes, uint32_t group, const struct draw_trees *trees,
			const struct draw_step *step, uint32_t *shard)
{
	vec node[VECTORS];

	for (uint32_t h = 0; h < VECTORS; h++) {
		uint32_t i = group * DRAW_GROUP + h * LANES;
		vec tree = load(&lanes->node[i]) >> trees->log2;

		node[h] = load(&lanes->node[i]) - (tree << trees->log2);
		store_low(shard + h * LANES, tree);
		store(&lanes->node[i], node[h]);
		store(&lanes->inner_at[i], gather(trees->inner, tree));
		store(&lanes->leaves_at[i], gather(trees->leaves, tree));
	}
	if (step->next_base)
		aim(lanes, group, node, step);
}

static void copy_families(const uint64_t *from, uint32_t n, uint64_t *to, uint64_t *sums)
{
	for (uint32_t i = 0; i < n; i++) {
		vec sum = splat(0);

		for (uint32_t k = 0; k < SUMS_FANOUT; k += LANES, from += LANES, to += LANES) {
			vec word = clamp(load(from));

			store(to, word);
			sum += word;
		}
		sums[i] = sum_lanes(sum);
	}
}

#endif
#endif

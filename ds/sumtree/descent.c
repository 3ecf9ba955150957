/* Moves draws down the levels of a forest; see ds/sumtree/descent.h. */
#include "ds/sumtree/descent.h"

#include <stddef.h>

#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/kernel.h"
#include "ds/sumtree/nodes.h"
#include "ds/sumtree/tops.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/sumtree_layout.h"
#include "wire/table_layout.h"

#include "base/bits.h"
#include "base/error.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define APART 2u /* groups between two levels of the staircase */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* -------- draws that the kernel left -------- */

#define FAMILY TREE_MIN_FANOUT /* children that are summed together */

/* Returns the mass of FAMILY children; negative words count as 0, but they are rare. */
ALWAYS_INLINE uint64_t sum_family(const uint64_t *words, bool leaves)
{
	uint64_t mass = 0, any = 0;

	for (uint32_t k = 0; k < FAMILY; k++) {
		mass += leaves ? leaf_priority(words[k]) : words[k];
		any |= words[k];
	}
	if (leaves || __builtin_expect((int64_t)any >= 0, 1))
		return mass;
	mass = 0;
	for (uint32_t k = 0; k < FAMILY; k++)
		mass += draw_mass(words[k], leaves);
	return mass;
}

/*
 * Sets masses[] to the mass of each FAMILY of the fanout words; returns their sum. fanout: at least
 * FAMILY.
 */
ALWAYS_INLINE uint64_t sum_families(const uint64_t *words, uint32_t fanout, bool leaves,
				    uint64_t *masses)
{
	uint64_t total = 0;
	uint32_t f = 0;

	do {
		masses[f] = sum_family(words + f * FAMILY, leaves);
		total += masses[f];
	} while (++f < fanout / FAMILY);
	return total;
}

/*
 * Returns the child that the point *r_inout < the sum of all masses falls in; *r_inout is then its
 * distance from the child's beginning.
 */
static inline uint32_t find_child(const uint64_t *words, const uint64_t *masses, uint32_t fanout,
				  bool leaves, uint64_t *r_inout)
{
	uint64_t r = *r_inout, mass;
	uint32_t f = 0, k;

	while (r >= masses[f] && f + 1 < fanout / FAMILY)
		r -= masses[f++];
	for (k = f * FAMILY; k + 1 < fanout; k++) {
		mass = draw_mass(words[k], leaves);
		if (r < mass)
			break;
		r -= mass;
	}
	*r_inout = r;
	return k;
}

/*
 * Rule 6 for draw i, one level down: if its children do not sum up to the expected mass, it is
 * drawn again among them, and its ratio scaled; without any mass it is lost. Inlined separately for
 * leaves and sums.
 */
ALWAYS_INLINE void settle(struct sumtree_descent *down, uint32_t i, const struct draw_step *step,
			  bool leaves)
{
	struct draw_lanes *lanes = &down->lanes;
	uint64_t copy[TREE_MAX_FANOUT], masses[TREE_MAX_FANOUT / FAMILY];
	const uint64_t *words = lanes->children[i];
	uint64_t total, r = lanes->r[i];
	uint32_t child;

	if (sumtree_descent_is_lost(down, i) || step->fanout < FAMILY)
		return;
	if (!down->in_copies) { /* in place the children change while they are read */
		const struct rword64 *from = (const struct rword64 *)(const void *)words;

		for (uint32_t k = 0; k < step->fanout; k++)
			copy[k] = rword64_load_acquire(&from[k]); /* V1 pairs with P1 */
		words = copy;
	}
	total = sum_families(words, step->fanout, leaves, masses);
	if (total != lanes->expected[i] && total != 0) {
		lanes->ratio[i] *= (double)lanes->expected[i] / (double)total;
		r = rng_uniform_u64(down->rng, total);
	}
	child = find_child(words, masses, step->fanout, leaves, &r);
	lanes->node[i] = lanes->node[i] * step->fanout + child;
	lanes->word[i] = words[child];
	lanes->expected[i] = draw_mass(lanes->word[i], leaves);
	lanes->r[i] = r;
	/* Only a damaged region has mass behind its last node. */
	if (total == 0 || lanes->node[i] >= step->limit)
		sumtree_descent_lose(down, i);
}

/* Calls settle. Out of line, so that the loops of the kernel keep their registers. */
static __attribute__((noinline)) void settle_lane(struct sumtree_descent *down, uint32_t i,
						  const struct draw_step *step, bool leaves)
{
	if (leaves)
		settle(down, i, step, true);
	else
		settle(down, i, step, false);
}

/* Moves 8 draws one level down, or to leaves. */
static inline void step_down(struct sumtree_descent *down, uint32_t group,
			     const struct draw_step *step, bool leaves)
{
	const struct sumtree_kernel *kernel = down->kernel;
	uint32_t redo;

	if (down->n <= DRAWS_FEW)
		redo = (1u << down->n) - 1;
	else
		redo = leaves ? kernel->leaves(&down->lanes, group, step)
			      : kernel->inner(&down->lanes, group, step);
	if (__builtin_expect(redo == 0, 1))
		return;
	for (uint32_t bits = redo; bits; bits &= bits - 1) {
		uint32_t i = group * DRAW_GROUP + bits_ctz(bits);

		if (i >= down->n)
			break;
		settle_lane(down, i, step, leaves);
	}
	if (step->next_base)
		draw_aim(&down->lanes, group, step);
}

/* -------- private sums -------- */

/*
 * Splits the index that each draw of a group has in level 0 of the tops: into tree (down->shard)
 * and node. In place also sets the distance of its tree's words from those of the first tree, and the
 * addresses of the node's children by the step.
 */
static void name_trees(struct sumtree_descent *down, uint32_t group, const struct draw_step *step)
{
	const struct sumtree_tops *tops = down->tops;
	const struct draw_trees trees = { tops->stride_log2, down->inner, down->leaves };
	uint32_t first = group * DRAW_GROUP;

	if (tops->n_trees == 1) {
		memset(&down->shard[first], 0, DRAW_GROUP * sizeof(down->shard[0]));
		return;
	}
	if (tops->in_place) {
		down->kernel->split(&down->lanes, group, &trees, step, &down->shard[first]);
		return;
	}
	for (uint32_t i = first; i < first + DRAW_GROUP; i++) {
		down->shard[i] = (uint32_t)(down->lanes.node[i] >> tops->stride_log2);
		down->lanes.node[i] &= bits_mask(tops->stride_log2);
	}
}

/* Moves a group of draws from one level of private sums to the next. */
static inline void step_private(struct sumtree_descent *down, uint32_t group,
				const struct draw_step *step)
{
	struct draw_lanes *lanes = &down->lanes;

	if (__builtin_expect(down->kernel->sums(lanes, group, step) == 0, 1))
		return;
	/* Private sums are exact: not reached. */
	for (uint32_t i = group * DRAW_GROUP; i < (group + 1) * DRAW_GROUP; i++)
		sumtree_descent_lose(down, i);
	if (step->next_base)
		draw_aim(lanes, group, step);
}

/* Moves draw i down all levels of private sums. */
static void descend_one(struct sumtree_descent *down, uint32_t i)
{
	struct draw_lanes *lanes = &down->lanes;
	uint64_t r = lanes->r[i], node = lanes->node[i];

	for (uint32_t l = down->tops->top; l-- > 0;) {
		const uint64_t *words = down->tops->level[l];

		/* Sums of damaged words wrap, so r may be beyond the last child. */
		node *= SUMS_FANOUT;
		for (uint32_t k = 0; k + 1 < SUMS_FANOUT && r >= words[node]; k++, node++)
			r -= words[node];
	}
	lanes->r[i] = r;
	lanes->node[i] = node;
	lanes->expected[i] = down->tops->level[0][node];
}

/*
 * Returns the step to private level l; with l = top it only names the children of that level's
 * nodes.
 */
static struct draw_step private_step(const struct sumtree_descent *down, uint32_t l)
{
	const struct sumtree_tops *tops = down->tops;
	struct draw_step step = { .fanout = SUMS_FANOUT, .limit = tops->nodes[l] };

	if (l == 0)
		return step;
	step.next_base = (const uint8_t *)tops->level[l - 1];
	step.next_bytes = SUMS_FANOUT * 8;
	step.next_lines = l == 1 ? SUMS_FANOUT * 8 / WIRE_LINE : 0;
	return step;
}

void sumtree_descent_run_private(struct sumtree_descent *down)
{
	const struct draw_step none = { 0 };
	uint32_t top = down->tops->top;

	for (uint32_t g = 0; g < down->groups; g++) {
		for (uint32_t i = g * DRAW_GROUP; down->n <= DRAWS_FEW && i < (g + 1) * DRAW_GROUP;
		     i++)
			descend_one(down, i);
		for (uint32_t l = top; down->n > DRAWS_FEW && l > 0; l--) {
			struct draw_step aim = private_step(down, l),
					 step = private_step(down, l - 1);

			if (l == top)
				draw_aim(&down->lanes, g, &aim);
			step_private(down, g, &step);
		}
		name_trees(down, g, &none);
	}
}

/* -------- in place -------- */

/*
 * Returns the step from level + 1 to level; for the top level it only names the children of its
 * nodes.
 */
static struct draw_step make_step(const struct sumtree_descent *down, uint32_t level)
{
	const struct sumtree *tree = &down->from->trees[0];
	struct draw_step step = {
		.fanout = level < tree->geo.levels ? tree->geo.fanout[level] : 0,
		.limit = tree->nodes[level],
	};

	if (level == 0)
		return step;
	step.next_bytes = tree->geo.fanout[level - 1] * 8u;
	step.next_lines = down->prefetch ? step.next_bytes / WIRE_LINE : 0;
	/* An update will write the leaf and the sum above it. */
	step.next_write = down->writes && tree->prefetchw && level <= 2;
	if (tree->region->base)
		step.next_base = tree->region->base +
				 node_level_off(tree, down->from->epochs[0].number & 1, level - 1);
	if (down->from->n > 1)
		step.next_at = level > 1 ? down->lanes.inner_at : down->lanes.leaves_at;
	return step;
}

/*
 * Moves all draws down to leaves. Groups descend like a staircase, APART groups between two levels:
 * the cache lines of one group arrive while others compute.
 */
void sumtree_descent_run(struct sumtree_descent *down)
{
	uint32_t levels = down->from->trees[0].geo.levels;
	uint32_t top = down->n > DRAWS_FEW ? down->tops->top : 0, stairs = top + levels;
	struct draw_step step[TOPS_LEVELS + TREE_MAX_LEVELS + 1]; /* to shared levels, then private */
	struct draw_step last = private_step(down, 0);
	const struct tops_tree *first = &down->tops->trees[0];
	uintptr_t inner = (uintptr_t)first->inner[tops_parity(first)],
		  leaves = (uintptr_t)first->leaves;

	for (uint32_t t = 0; t < down->from->n; t++) {
		const struct tops_tree *at = &down->tops->trees[t];

		down->inner[t] = (uintptr_t)at->inner[tops_parity(at)] - inner;
		down->leaves[t] = (uintptr_t)at->leaves - leaves;
	}
	for (uint32_t l = 0; l <= levels; l++)
		step[l] = make_step(down, l);
	for (uint32_t l = 0; l < top; l++)
		step[levels + 1 + l] = private_step(down, l + 1);
	if (top == 0)
		sumtree_descent_run_private(down); /* few draws, or one level */
	if (down->from->n == 1) { /* its words are its nodes: the kernel knows where to go on */
		last = step[levels];
		last.fanout = SUMS_FANOUT;
		last.limit = down->tops->nodes[0];
	}
	for (uint32_t t = 0; t < down->groups + stairs * APART; t++) {
		if (t < down->groups)
			draw_aim(&down->lanes, t, &step[stairs]);
		for (uint32_t s = stairs; s > 0; s--) {
			uint32_t g = t - (stairs - s + 1) * APART;

			if (g >= down->groups) /* not started, or finished */
				continue;
			if (s <= levels) {
				step_down(down, g, &step[s - 1], s == 1);
			} else if (s > levels + 1) {
				step_private(down, g, &step[s - 1]);
			} else {
				step_private(down, g, &last);
				name_trees(down, g, &step[levels]);
			}
		}
	}
}

/* -------- in copies -------- */

void sumtree_descent_aim(const struct sumtree_descent *down, uint32_t i, uint32_t level,
			 struct transport_io *io)
{
	const struct sumtree *tree = &down->from->trees[down->shard[i]];
	uint32_t parity = down->from->epochs[down->shard[i]].number & 1;
	uint32_t bytes = tree->geo.fanout[level - 1] * 8u;

	*io = (struct transport_io){
		.region = tree->region,
		.off = node_level_off(tree, parity, level - 1) + down->lanes.node[i] * bytes,
		.len = bytes,
	};
}

void sumtree_descent_step(struct sumtree_descent *down, uint32_t level)
{
	struct draw_step step = make_step(down, level - 1);

	step.next_base = NULL;
	for (uint32_t i = down->n; down->n > DRAWS_FEW && i < down->groups * DRAW_GROUP; i++)
		down->lanes.children[i] = down->lanes.children[0]; /* for whole groups */
	for (uint32_t g = 0; g < down->groups; g++)
		step_down(down, g, &step, level == 1);
}

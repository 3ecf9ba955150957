/* Moves draws down the levels of a forest; see ds/sumtree/descent.h. */
#include "ds/sumtree/descent.h"

#include <stddef.h>

#include "ds/sumtree/sumtree.h"
#include "ds/sumtree/kernel.h"
#include "ds/sumtree/nodes.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/sumtree_layout.h"
#include "wire/table_layout.h"

#include "base/bits.h"
#include "base/error.h"
#include "base/rng.h"

#include <errno.h>

#define APART 2u /* groups between two levels of the staircase */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* -------- draws that the kernel left -------- */

static inline uint64_t mass_of(uint64_t word, bool leaves)
{
	if (leaves)
		return leaf_priority(word);
	return (int64_t)word > 0 ? word : 0;
}

#define FAMILY TREE_MIN_FANOUT /* children that are summed together */

/* Sums a family; negative words count as 0, but they are rare. */
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
		mass += mass_of(words[k], leaves);
	return mass;
}

/* Computes the mass of each family; returns their sum. fanout: at least FAMILY. */
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

/* Finds the child with mass at *r_inout < the sum; out: the remainder within it. */
static inline uint32_t find_child(const uint64_t *words, const uint64_t *masses, uint32_t fanout,
				  bool leaves, uint64_t *r_inout)
{
	uint64_t r = *r_inout, mass;
	uint32_t f = 0, k;

	while (r >= masses[f] && f + 1 < fanout / FAMILY)
		r -= masses[f++];
	for (k = f * FAMILY; k + 1 < fanout; k++) {
		mass = mass_of(words[k], leaves);
		if (r < mass)
			break;
		r -= mass;
	}
	*r_inout = r;
	return k;
}

/* Rule 6 for one draw. Inlined separately for leaves and sums. */
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
		down->ratio[i] *= (double)lanes->expected[i] / (double)total;
		r = rng_uniform_u64(down->rng, total);
	}
	child = find_child(words, masses, step->fanout, leaves, &r);
	lanes->node[i] = lanes->node[i] * step->fanout + child;
	lanes->word[i] = words[child];
	lanes->expected[i] = mass_of(lanes->word[i], leaves);
	lanes->r[i] = r;
	/* Only a damaged region has mass behind its last node. */
	if (total == 0 || lanes->node[i] >= step->limit)
		sumtree_descent_lose(down, i);
}

/* Out of line, so that the loops of the kernel keep their registers. */
static __attribute__((noinline)) void settle_lane(struct sumtree_descent *down, uint32_t i,
						  const struct draw_step *step, bool leaves)
{
	if (leaves)
		settle(down, i, step, true);
	else
		settle(down, i, step, false);
}

/* Moves one group one level down. */
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

/* -------- in place -------- */

/* The step from level + 1 to level; for the top level only its children are set. */
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
	if (tree->region->base)
		step.next_base = tree->region->base +
				 node_level_off(tree, down->from->epochs[0].number & 1, level - 1);
	if (down->from->n > 1)
		step.next_at = level > 1 ? down->lanes.inner_at : down->lanes.leaves_at;
	return step;
}

/* Sets the tree of each lane, as distances from the first tree. */
static void find_trees(struct sumtree_descent *down)
{
	const struct forest *from = down->from;
	uint64_t inner[TABLE_MAX_SHARDS], leaves[TABLE_MAX_SHARDS];

	for (uint32_t t = 0; t < from->n; t++) {
		const struct sumtree *tree = &from->trees[t];
		uint64_t base = (uintptr_t)tree->region->base;

		inner[t] = base + tree->inner_off[from->epochs[t].number & 1];
		leaves[t] = base + tree->leaves_off;
	}
	for (uint32_t i = 0; from->n > 1 && i < down->groups * DRAW_GROUP; i++) {
		down->lanes.inner_at[i] = inner[down->shard[i]] - inner[0];
		down->lanes.leaves_at[i] = leaves[down->shard[i]] - leaves[0];
	}
}

/*
 * Groups descend like a staircase, APART groups between two levels: the cache lines of one group
 * arrive while others compute.
 */
void sumtree_descent_run(struct sumtree_descent *down)
{
	uint32_t levels = down->from->trees[0].geo.levels;
	struct draw_step step[TREE_MAX_LEVELS + 1];

	find_trees(down);
	step[levels] = make_step(down, levels);
	for (uint32_t l = levels; l > 0; l--)
		step[l - 1] = make_step(down, l - 1);
	for (uint32_t t = 0; t < down->groups + levels * APART; t++) {
		if (t < down->groups)
			draw_aim(&down->lanes, t, &step[levels]);
		for (uint32_t l = levels; l > 0; l--) {
			uint32_t g = t - (levels - l + 1) * APART;

			if (g < down->groups) /* started and not finished */
				step_down(down, g, &step[l - 1], l == 1);
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

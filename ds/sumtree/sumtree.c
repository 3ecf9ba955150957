/*
 * Geometry, and the four verbs that change leaves in place. All verbs share one loop: CAS a leaf
 * from the word last seen; on success count the difference to the word replaced, else judge the
 * op by the word found and repeat. A leaf without a usable word is read first.
 *
 * Over a wire the same ops travel as chains (ds/replay/change.c).
 */
#include "ds/sumtree/sumtree.h"

#include "ds/sumtree/change.h"
#include "ds/sumtree/deferred.h"
#include "ds/sumtree/kernel.h"
#include "ds/sumtree/nodes.h"

#include "transport/barrier.h"
#include "transport/transport.h"

#include "wire/sumtree_layout.h"

#include "base/bits.h"
#include "base/os/cpu.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>

#define AHEAD 8u /* leaves prefetched ahead of the change */

/*
 * Leaves in groups of one line, the unit that a draw fetches. Wider above: each level with more
 * nodes than a batch has keys costs an update one locked addition per key. Where that takes three levels or
 * more, the nodes of level 1 are too many for caches: there a group is one line, too, if that adds no level.
 */
static const uint16_t wide_fanout[] = { 8, 16, 0 }, narrow_fanout[] = { 8, 8, 16, 0 };

/* -------- geometry -------- */

/*
 * Sets nodes[] of each level and, from the top level down, its offset off[] in an inner array;
 * returns the bytes of an inner array.
 */
static uint64_t lay_out(const struct tree_geometry *geo, uint32_t *nodes, uint64_t *off)
{
	uint64_t bytes = WIRE_LINE;

	nodes[0] = geo->leaves;
	for (uint32_t l = 1; l <= geo->levels; l++)
		nodes[l] = (uint32_t)div_up(nodes[l - 1], geo->fanout[l - 1]);
	for (uint32_t l = geo->levels; l > 0; l--) {
		off[l] = bytes; /* whole lines, and whole groups of its parents */
		bytes += 8 * round_up(nodes[l], l < geo->levels ? geo->fanout[l] : WIRE_LINE / 8);
	}
	return bytes;
}

static bool fanout_is_valid(uint32_t fanout)
{
	return fanout >= TREE_MIN_FANOUT && fanout <= TREE_MAX_FANOUT && fanout % 8 == 0;
}

static int make_geometry(struct tree_geometry *geo, uint32_t leaves, const uint16_t *fanout,
			 uint32_t top)
{
	struct tree_geometry new = { .leaves = leaves };
	uint32_t nodes[TREE_MAX_LEVELS + 1];
	uint64_t off[TREE_MAX_LEVELS + 1];
	uint64_t left = leaves;

	if (leaves == 0 || leaves > TREE_MAX_LEAVES)
		return error_set(-ERANGE, "leaves %u: must be 1..%u", leaves, TREE_MAX_LEAVES);
	if (!fanout[0])
		return error_set(-EINVAL, "fanout: the list is empty");
	do {
		if (new.levels == TREE_MAX_LEVELS)
			return error_set(-ERANGE, "fanout: %u leaves need more than %d levels",
					 leaves, TREE_MAX_LEVELS);
		if (!fanout_is_valid(*fanout))
			return error_set(-EINVAL, "fanout[%u] %u: must be a multiple of 8 in 8..%u",
					 new.levels, *fanout, TREE_MAX_FANOUT);
		new.fanout[new.levels++] = *fanout;
		left = div_up(left, *fanout);
		if (fanout[1])
			fanout++;
	} while (left > top);
	new.inner_bytes = lay_out(&new, nodes, off);
	*geo = new;
	return 0;
}

int sumtree_geometry_init(struct tree_geometry *geo, uint32_t leaves, const uint16_t *fanout,
			  uint32_t top)
{
	struct tree_geometry narrow;
	int ret = make_geometry(geo, leaves, fanout ? fanout : wide_fanout, top);

	if (ret || fanout || geo->levels < 3)
		return ret;
	if (make_geometry(&narrow, leaves, narrow_fanout, top) == 0 && narrow.levels == geo->levels)
		*geo = narrow;
	return 0;
}

uint64_t sumtree_leaf_bytes(const struct tree_geometry *geo)
{
	return 8 * round_up(geo->leaves, geo->fanout[0]);
}

int sumtree_geometry_check(const struct tree_geometry *geo)
{
	uint32_t nodes[TREE_MAX_LEVELS + 1];
	uint64_t off[TREE_MAX_LEVELS + 1];
	uint64_t bytes;

	if (geo->leaves == 0 || geo->leaves > TREE_MAX_LEAVES)
		return error_set(-EPROTO, "tree geometry: %u leaves are not possible", geo->leaves);
	if (geo->levels == 0 || geo->levels > TREE_MAX_LEVELS)
		return error_set(-EPROTO, "tree geometry: %u levels are not possible", geo->levels);
	for (uint32_t l = 0; l < geo->levels; l++)
		if (!fanout_is_valid(geo->fanout[l]))
			return error_set(-EPROTO, "tree geometry: fanout[%u] %u is not possible", l,
					 geo->fanout[l]);
	bytes = lay_out(geo, nodes, off);
	if (nodes[geo->levels] > SUMTREE_TOP_MAX)
		return error_set(-EPROTO,
				 "tree geometry: %u nodes in the top level, this library draws "
				 "from at most %u",
				 nodes[geo->levels], SUMTREE_TOP_MAX);
	if (bytes != geo->inner_bytes)
		return error_set(-EPROTO, "tree geometry: inner array of %llu bytes, not %llu",
				 (unsigned long long)geo->inner_bytes, (unsigned long long)bytes);
	return 0;
}

void sumtree_init(struct sumtree *tree, struct region *region, const struct tree_geometry *geo,
		  const struct tree_place *place)
{
	memset(tree, 0, sizeof(*tree));
	tree->region = region;
	tree->geo = *geo;
	tree->leaves_off = place->leaves_off;
	tree->inner_off[0] = place->inner_off[0];
	tree->inner_off[1] = place->inner_off[1];
	tree->max_prio = place->max_prio;
	tree->pairs = BARRIER_PAIRS && cpu_has_cas16() && region->base &&
		      (uintptr_t)(region->base + place->leaves_off) % 16 == 0;
	tree->prefetchw = cpu_has_prefetchw();
	lay_out(geo, tree->nodes, tree->level_off);
	for (uint32_t l = 0; l < geo->levels; l++)
		tree->recip[l] = div_up((uint64_t)1 << NODE_RECIP_SHIFT, geo->fanout[l]);
}

uint64_t sumtree_max_prio(uint32_t leaves)
{
	return min_u64(LEAF_PRIORITY_MASK, ((uint64_t)1 << TREE_SUM_HEADROOM_BITS) / leaves);
}

/* -------- changes -------- */

/*
 * Changes the leaf of an op without a usable word, or whose word was not the leaf: repeats until
 * op->result is set. -EAGAIN: not in CHANGE_ROUNDS rounds.
 */
static int change_slowly(struct change *c, enum change_verb verb, struct leaf_op *op)
{
	const struct rword64 *leaf = leaf_at(c->tree, op->slot);
	uint64_t failed = 0;
	bool again = true;
	int ret = 0;

	for (int round = 0; ret == 0 && again; round++) {
		uint64_t found = op->word, wanted;
		bool look;

		if (round == CHANGE_ROUNDS)
			return too_many_rounds(op);
		wanted = wanted_word(c, verb, op, &look);
		if (look) {
			found = rword64_load_acquire(leaf);
		} else if (rword64_cas(leaf, &found, wanted)) {
			op->result = LEAF_DONE;
			count_swap(c, op->slot, counted_word(c, op->word), wanted);
			break;
		}
		failed += found != op->word;
		again = judge(c, verb, op, found);
		ret = refresh_view(c);
	}
	c->damaged = false; /* damage was of this leaf only */
	transport_account_cas(c->tree->region->tr, failed, 0);
	return ret;
}

static inline int change_in_place(struct change *c, enum change_verb verb, struct leaf_op *ops,
				  uint32_t n)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		struct leaf_op *op = &ops[i];
		const struct rword64 *leaf = leaf_at(c->tree, op->slot);
		uint64_t found = op->word, wanted;
		bool look;

		if (i + AHEAD < n && c->tree->prefetchw)
			cpu_prefetch_to_write(leaf_at(c->tree, ops[i + AHEAD].slot));
		wanted = wanted_word(c, verb, op, &look);
		if (__builtin_expect(!look, 1) && rword64_cas(leaf, &found, wanted)) {
			op->result = LEAF_DONE;
			count_swap(c, op->slot, op->word, wanted);
		} else {
			ret = change_slowly(c, verb, op);
		}
	}
	return ret;
}

/* -------- the verbs -------- */

static int check_run(const struct sumtree *tree, const struct leaf_run *run)
{
	uint32_t leaves = tree->geo.leaves;

	if (run->n && (run->first >= leaves || run->n > leaves - run->first))
		return error_set(-ERANGE, "%u leaves from slot %u: the tree has %u", run->n,
				 run->first, leaves);
	return 0;
}

/* True if ep's view is of a single epoch, so that leaves usually have one tag: not in DUAL mode. */
static bool goes_steadily(const struct change *c)
{
	return c->ep->mode != EPOCH_DUAL;
}

/*
 * Returns how many leaves from `slot` on one instruction swaps, of `left` remaining ones: 1, or 2
 * with one parent.
 */
static inline uint32_t pair_at(const struct sumtree *tree, uint32_t slot, uint32_t left)
{
	return tree->pairs && slot % 2 == 0 && left > 1 ? 2 : 1;
}

/*
 * Swaps one leaf, or a pair (both or none), from the words from[] to to[]. False = a leaf had
 * another word.
 */
static inline bool swap_leaves(const struct sumtree *tree, uint32_t slot, uint32_t n,
			       const uint64_t from[2], const uint64_t to[2])
{
	const struct rword64 *leaf = leaf_at(tree, slot);
	uint64_t found = from[0];

	return n == 2 ? rword64_cas_pair(leaf, from, to) : rword64_cas(leaf, &found, to[0]);
}

/* Sum of consecutive changes below one node. */
struct node_sum {
	struct delta_side *side;
	uint32_t flat; /* of the tree */
	uint32_t node;
	uint64_t sum;
};

static inline void sum_end(const struct node_sum *s)
{
	tree_deltas_add(s->side, s->flat + s->node, (int64_t)s->sum);
}

static inline void sum_add(struct node_sum *s, uint32_t node, uint64_t delta)
{
	if (node != s->node) {
		sum_end(s);
		s->node = node;
		s->sum = 0;
	}
	s->sum += delta;
}

/*
 * Claims the leaves of a run in the usual case: all words are of our epoch and nobody else changes
 * them. Stops at the first other leaf; returns the number done.
 */
static uint32_t claim_steadily(const struct change *c, const struct leaf_run *run)
{
	const struct sumtree *tree = c->tree;
	uint64_t claimed = leaf_make(c->steady, run->gen, 0);
	const uint64_t to[2] = { claimed, claimed };
	struct node_sum sum = { .side = &c->deltas->side[c->steady & 1],
				.flat = tree->flat,
				.node = node_parent(tree, 0, run->first) };
	uint32_t i, n;

	for (i = 0; i < run->n; i += n) {
		uint32_t slot = run->first + i;
		const struct rword64 *leaf = leaf_at(tree, slot);
		uint64_t from[2] = { rword64_load_relaxed(leaf) };

		n = pair_at(tree, slot, run->n - i);
		from[1] = n == 2 ? rword64_load_relaxed(leaf + 1) : claimed;
		if (leaf_tag(from[0]) != c->steady || leaf_tag(from[1]) != c->steady ||
		    !swap_leaves(tree, slot, n, from, to))
			break;
		sum_add(&sum, node_parent(tree, 0, slot),
			-(leaf_priority(from[0]) + leaf_priority(from[1])));
		sum.side->size -= (leaf_priority(from[0]) != 0) + (leaf_priority(from[1]) != 0);
	}
	sum_end(&sum);
	return i;
}

int sumtree_claim(const struct sumtree *tree, struct epoch *ep, const struct leaf_run *run,
		  struct tree_deltas *deltas)
{
	struct change c = { tree, ep, deltas, steady_tag(ep), false, false };
	struct leaf_op *ops = deltas->ops;
	int ret = check_run(tree, run);

	for (uint32_t done = 0, n; ret == 0 && done < run->n; done += n) {
		struct leaf_run part = { .first = run->first + done, .gen = run->gen };

		part.n = (uint32_t)min_u64(run->n - done, TRANSPORT_VECTOR);
		ret = tree_deltas_reserve(tree, deltas, part.n);
		if (ret)
			break;
		n = goes_steadily(&c) ? claim_steadily(&c, &part) : 0;
		if (n)
			continue;
		n = part.n;
		/* Leaves as read now, so that the first CAS usually succeeds. */
		for (uint32_t i = 0; i < n; i++)
			ops[i] = (struct leaf_op){
				.slot = part.first + i,
				.gen = part.gen,
				.word = rword64_load_relaxed(leaf_at(tree, part.first + i)),
				.result = LEAF_UNKNOWN,
			};
		ret = change_in_place(&c, CHANGE_CLAIM, ops, n);
	}
	return ret;
}

static_assert(LEAF_DONE == 0, "results that are all 0 are all done");

int sumtree_publish_result(const struct leaf_op *ops, size_t n)
{
	uint32_t bad = 0;
	int ret = 0;

	for (size_t i = 0; i < n; i++)
		bad |= ops[i].result;
	for (size_t i = 0; bad && (ret == 0 || ret == -EEXIST) && i < n; i++) {
		const struct leaf_op *op = &ops[i];

		switch ((enum leaf_result)op->result) {
		case LEAF_DONE:
			break;
		case LEAF_STALE:
			ret = error_set(-EOWNERDEAD, "publish of slot %u: generation %u, not %u",
					op->slot, leaf_gen(op->word), op->gen);
			break;
		case LEAF_ABSENT:
			ret = error_set(-EEXIST, "publish of slot %u: published already", op->slot);
			break;
		case LEAF_UNKNOWN:
			ret = error_set(-EIO, "publish of slot %u: the answer was lost", op->slot);
			break;
		}
	}
	return ret;
}

/*
 * Sets all results to LEAF_UNKNOWN, before the first change. -ERANGE: a slot is outside the tree.
 */
static inline int begin_ops(const struct sumtree *tree, struct leaf_op *ops, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		ops[i].result = LEAF_UNKNOWN;
		if (ops[i].slot >= tree->geo.leaves)
			return error_set(-ERANGE, "slot %u: the tree has %u leaves", ops[i].slot,
					 tree->geo.leaves);
	}
	return 0;
}

/*
 * Changes n leaves by the verb. Inlined for each verb. Results are LEAF_UNKNOWN before, and stay so
 * if an error ends the call.
 */
static inline int change_all(struct change *c, enum change_verb verb, struct leaf_op *ops, size_t n)
{
	int ret = 0;

	for (size_t done = 0; ret == 0 && done < n; done += TRANSPORT_VECTOR) {
		uint32_t now = (uint32_t)min_u64(n - done, TRANSPORT_VECTOR);

		ret = tree_deltas_reserve(c->tree, c->deltas, now);
		if (ret == 0)
			ret = change_in_place(c, verb, ops + done, now);
	}
	return ret;
}

int sumtree_update(const struct sumtree *tree, struct epoch *ep, struct leaf_op *ops, size_t n,
		   struct tree_deltas *deltas)
{
	struct change c = { tree, ep, deltas, steady_tag(ep), false, false };
	int ret = begin_ops(tree, ops, n);
	uint32_t part;

	for (size_t done = 0; ret == 0 && done < n; done += part) {
		part = (uint32_t)min_u64(n - done, TRANSPORT_VECTOR);
		ret = tree_deltas_reserve(tree, deltas, part);
		if (ret)
			return ret;
		part = goes_steadily(&c) ? sumtree_update_steadily(&c, ops + done, part) : 0;
		if (part == 0)
			return change_all(&c, CHANGE_UPDATE, ops + done, n - done);
	}
	return ret;
}

int sumtree_consume(const struct sumtree *tree, struct epoch *ep, struct leaf_op *ops, size_t n,
		    struct tree_deltas *deltas)
{
	struct change c = { tree, ep, deltas, steady_tag(ep), false, false };
	int ret = begin_ops(tree, ops, n);

	return ret ? ret : change_all(&c, CHANGE_CONSUME, ops, n);
}

/*
 * Publishes leaves in the usual case: they were claimed under our epoch. Stops at the first other
 * leaf; returns the number done.
 */
static uint32_t publish_steadily(const struct change *c, struct leaf_op *ops, uint32_t n)
{
	const struct sumtree *tree = c->tree;
	struct node_sum sum = { .side = &c->deltas->side[c->steady & 1],
				.flat = tree->flat,
				.node = node_parent(tree, 0, ops[0].slot) };
	uint32_t i, m;

	for (i = 0; i < n; i += m) {
		struct leaf_op *op = &ops[i];
		uint64_t claimed = leaf_make(c->steady, op->gen, 0), priority[2] = { 0 };

		m = pair_at(tree, op->slot, n - i);
		if (m == 2 && (op[1].slot != op->slot + 1 || op[1].gen != op->gen))
			m = 1;
		for (uint32_t k = 0; k < m; k++)
			priority[k] = min_u64(op[k].priority, tree->max_prio);
		if (!swap_leaves(
			    tree, op->slot, m, (const uint64_t[]){ claimed, claimed },
			    (const uint64_t[]){ claimed | priority[0], claimed | priority[1] }))
			break;
		for (uint32_t k = 0; k < m; k++) {
			op[k].word = claimed;
			op[k].result = LEAF_DONE;
		}
		sum_add(&sum, node_parent(tree, 0, op->slot), priority[0] + priority[1]);
		sum.side->size += (priority[0] != 0) + (priority[1] != 0);
	}
	if (i)
		sum_end(&sum);
	return i;
}

/*
 * Publishes n leaves; each op has its result. P1 pairs with V1: the caller's rows, then the leaf
 * that publishes them.
 */
static int publish_ops(struct change *c, struct leaf_op *ops, size_t n)
{
	uint32_t part;
	int ret = begin_ops(c->tree, ops, n);

	for (size_t done = 0; ret == 0 && done < n; done += part) {
		part = (uint32_t)min_u64(n - done, TRANSPORT_VECTOR);
		ret = tree_deltas_reserve(c->tree, c->deltas, part);
		if (ret)
			return ret;
		part = goes_steadily(c) ? publish_steadily(c, ops + done, part) : 0;
		if (part)
			continue;
		for (size_t i = done; i < n; i++)
			ops[i].word = claimed_word(c->ep, ops[i].gen);
		return change_all(c, CHANGE_PUBLISH, ops + done, n - done);
	}
	return ret;
}

int sumtree_publish_ops(const struct sumtree *tree, struct epoch *ep, struct leaf_op *ops, size_t n,
			struct tree_deltas *deltas)
{
	struct change c = { tree, ep, deltas, steady_tag(ep), false, false };
	int ret = publish_ops(&c, ops, n);

	return ret ? ret : sumtree_publish_result(ops, n);
}

int sumtree_publish(const struct sumtree *tree, struct epoch *ep, const struct leaf_run *run,
		    const uint64_t *priorities, struct tree_deltas *deltas)
{
	struct change c = { tree, ep, deltas, steady_tag(ep), false, false };
	struct leaf_op *ops = deltas->ops;
	int ret = check_run(tree, run), first_bad = 0;

	for (uint32_t i = 0, n; ret == 0 && i < run->n;) {
		for (n = 0; i < run->n && n < TRANSPORT_VECTOR; i++)
			if (priorities[i])
				ops[n++] = (struct leaf_op){
					.slot = run->first + i,
					.gen = run->gen,
					.priority = priorities[i],
				};
		ret = publish_ops(&c, ops, n);
		if (ret == 0 && first_bad == 0)
			first_bad = sumtree_publish_result(ops, n);
	}
	return ret ? ret : first_bad;
}

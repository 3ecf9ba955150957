/*
 * Sum tree: draws leaves in proportion to their priority and keeps integer sums above them.
 *
 *   top      [ s s s . ]                    <= 64 nodes, no word above them
 *   level 2  [ s s s s s s s s | ... ]      fan-out per level is data (wire/sumtree_layout.h)
 *   level 1  [ s s s s s s s s | ... ]
 *   leaves   [ tag gen priority ] ...       the truth; the sums are a cache of them
 *
 * The K-ary tree with cache-line groups and deferred ancestor writes follows PAL (Zhang et al.,
 * arXiv 2110.01101, sections IV and V). Sums are integers, so additions commute and never drift,
 * and no lock is held on the way up. Leaves change by CAS only, and only by these four verbs:
 *
 *   claim    {tag, *, *}      -> {tag', gen, 0}   the owner of the block, before its first row
 *   publish  {tag, gen, 0}    -> {tag', gen, p}   the owner of the block
 *   update   {tag, gen, p>0}  -> {tag', gen, p'}  any client that knows the generation
 *   consume  {tag, gen, p>0}  -> {tag', gen, 0}   consumers
 *
 * Every delta is computed from the word that the successful CAS replaced, counted under the
 * epoch of its tags (ds/part/epoch.h), buffered in a struct tree_deltas and added to the
 * ancestors by sumtree_flush: one FAA for each distinct node.
 *
 * Thread: a struct sumtree is read-only after init and may be shared; epochs and deltas belong
 * to one handle.
 */
#ifndef RLV_DS_SUMTREE_SUMTREE_H
#define RLV_DS_SUMTREE_SUMTREE_H

#include "ds/part/epoch.h"

#include "transport/transport.h"

#include "wire/sumtree_layout.h"

#include "base/rng.h"

#define SUMTREE_TOP_MAX TREE_TOP_MAX /* most nodes of the top level */

struct sumtree {
	struct region *region;
	struct tree_geometry geo;
	uint64_t leaves_off;
	uint64_t inner_off[2];
	uint64_t max_prio; /* rule 9: larger priorities are clamped */
	bool pairs;        /* leaves 2i and 2i + 1 may be changed by one CAS, in place */
	uint32_t number;   /* in the forest that tree_deltas_show named */
	uint32_t flat;     /* its first level-1 node among those of all trees of flat deltas */
	bool prefetchw;    /* the CPU can fetch lines to be written */
	uint32_t nodes[TREE_MAX_LEVELS + 1];     /* of each level; [0] = leaves */
	uint64_t level_off[TREE_MAX_LEVELS + 1]; /* inside an inner array; [0] unused */
	uint64_t recip[TREE_MAX_LEVELS]; /* 2^40 / fanout, rounded up: parents without a division */
};

/*
 * Fills geo for a tree of `leaves` (1..2^24). fanout: one for each level from the leaves up,
 * zero-terminated, the last repeated until at most `top` nodes are left; NULL = the default
 * for CPU transports. Errors: -EINVAL (fan-out not a multiple of 8 in 8..1024), -ERANGE (leaves,
 * levels).
 */
RLV_MUST_CHECK int sumtree_geometry_init(struct tree_geometry *geo, uint32_t leaves,
					 const uint16_t *fanout, uint32_t top);

/* Bytes of the leaves: leaves x 8, padded to whole groups. */
uint64_t sumtree_leaf_bytes(const struct tree_geometry *geo);

/* Checks geo as read from a region. -EPROTO: the message names the field. */
RLV_MUST_CHECK int sumtree_geometry_check(const struct tree_geometry *geo);

/* Offsets of the tree of one view in its region, from the table descriptor. */
struct tree_place {
	uint64_t leaves_off;   /* sumtree_leaf_bytes() of leaves */
	uint64_t inner_off[2]; /* geo.inner_bytes each */
	uint64_t max_prio;
};

/* Initialises a tree whose geometry was checked. Copies all but the region. */
void sumtree_init(struct sumtree *tree, struct region *region, const struct tree_geometry *geo,
		  const struct tree_place *place);

/* Largest priority: min(2^40-1, 2^62 / leaves), rule 9. */
uint64_t sumtree_max_prio(uint32_t leaves);

/*
 * -------- changes --------
 *
 * Of one tree whose words this CPU may change in place (transport_changes_in_place); -ENOTSUP
 * elsewhere. Over a wire clients change all trees of all shards in one phase by ds/replay/change.h.
 */

struct tree_deltas; /* deltas of one tree not yet added to its ancestors */

RLV_MUST_CHECK int tree_deltas_open(struct tree_deltas **deltas_out);
void tree_deltas_close(struct tree_deltas **deltas); /* drops its deltas: flush first */
/*
 * Returns the same deltas, for one user more, who closes them, too: of another tree changed by the same
 * thread, which calls sumtree_end_tree or sumtree_flush before it goes on to another tree.
 */
struct tree_deltas *tree_deltas_share(struct tree_deltas *deltas);

struct leaf_op {
	uint32_t slot;
	uint32_t gen;
	uint64_t priority; /* update: the new one, in quanta; clamped to 1..max_prio */
	uint64_t word;     /* in: as last seen, 0 = not seen; out: the word replaced or found */
	uint32_t result;   /* out: enum leaf_result */
	uint32_t tree;     /* of flat deltas: number of its tree in the forest */
};

/* Consecutive leaves of one block. */
struct leaf_run {
	uint32_t first;
	uint32_t n;
	uint32_t gen;
};

enum leaf_result {
	LEAF_DONE = 0,
	LEAF_STALE = 1,   /* another generation: the item was overwritten */
	LEAF_ABSENT = 2,  /* priority 0: claimed, unpublished or retired */
	LEAF_UNKNOWN = 3, /* the transport lost the answer: the shard is dirty */
};

/*
 * Claims the leaves of a run for its gen. The block header makes them the caller's (rule 1), so
 * every word found is replaced; a CAS that loses against a learner repeats. Errors: -ERANGE
 * (leaves outside the tree).
 */
RLV_MUST_CHECK int sumtree_claim(const struct sumtree *tree, struct epoch *ep,
				 const struct leaf_run *run, struct tree_deltas *deltas);

/*
 * Publishes the leaves of a run: priorities[i] in quanta, 0 = leave that one unpublished.
 * Errors: -EOWNERDEAD (a leaf has another generation: this handle was fenced), -EEXIST (a leaf
 * is already published), -ERANGE. The other leaves are still published.
 */
RLV_MUST_CHECK int sumtree_publish(const struct sumtree *tree, struct epoch *ep,
				   const struct leaf_run *run, const uint64_t *priorities,
				   struct tree_deltas *deltas);

/*
 * As sumtree_publish for n leaves anywhere, each with its generation and a priority > 0: the
 * items that a vector of environments completes in one step. Errors: as sumtree_publish.
 */
RLV_MUST_CHECK int sumtree_publish_ops(const struct sumtree *tree, struct epoch *ep,
				       struct leaf_op *ops, size_t n, struct tree_deltas *deltas);

/*
 * Sets new priorities of n distinct items. Each op has its result; after an error the ops not
 * reached are LEAF_UNKNOWN.
 */
RLV_MUST_CHECK int sumtree_update(const struct sumtree *tree, struct epoch *ep, struct leaf_op *ops,
				  size_t n, struct tree_deltas *deltas);

/*
 * Where the deltas are flat (tree_deltas_show): updates leaves of many trees in one pass. Each tree of the ops
 * was named by sumtree_enter_flat, with the epoch that the caller has entered there; false = the deltas are
 * not flat, or of other trees. `tree` is any of them. Stops at the first op whose leaf is not as it was seen,
 * or at an error: returns the number done. The rest is left to sumtree_update, which judges it.
 */
bool sumtree_enter_flat(struct tree_deltas *deltas, uint32_t tree, const struct epoch *ep);
size_t sumtree_update_flat(const struct sumtree *tree, struct tree_deltas *deltas,
			   struct leaf_op *ops, size_t n);

/*
 * Consumes n distinct items: sets their priority to 0. Each op has its result: LEAF_DONE = this
 * caller got the item, which at most one caller does.
 */
RLV_MUST_CHECK int sumtree_consume(const struct sumtree *tree, struct epoch *ep,
				   struct leaf_op *ops, size_t n, struct tree_deltas *deltas);

/*
 * Ends a call that changed leaves: adds the buffered deltas to their ancestors (one FAA for each
 * distinct node, sizes too). Over a wire they go into the chain that the access sends next
 * (ds/part/unwaited.h).
 */
RLV_MUST_CHECK int sumtree_flush(const struct sumtree *tree, struct tree_deltas *deltas);

/*
 * Ends the changes of a tree in a call that goes on with other trees, whose deltas may be the same:
 * flushes them, but if they are flat, only the size; then sumtree_flush of any of the trees adds the
 * deltas of all, level by level.
 */
RLV_MUST_CHECK int sumtree_end_tree(const struct sumtree *tree, struct tree_deltas *deltas);

/* -------- draws -------- */

struct sumtree_tops; /* private sums of a handle */

/* Trees to draw from: one view's tree in each shard, with this handle's epochs. */
struct forest {
	const struct sumtree *trees;
	struct epoch *epochs; /* refreshed by the draw */
	uint32_t n;           /* all of the same geometry */
	/* Kept over draws of addressable trees; NULL = the tops are read in each draw. */
	struct sumtree_tops *tops;
};

/*
 * Allocates private tops, for draws of one handle from a forest. -ENOMEM. Thread: owner, for all
 * three.
 */
RLV_MUST_CHECK int sumtree_tops_open(struct sumtree_tops **tops_out);
void sumtree_tops_close(struct sumtree_tops **tops);
/*
 * Tells that the trees of the forest have changed: the next draw lays the tops out and reads them
 * anew. sumtree_tops_fit lays them out now, so that draws allocate nothing. -EINVAL: no tree, too
 * many, or of different shapes. -ENOMEM.
 */
void sumtree_tops_forget(struct sumtree_tops *tops);
RLV_MUST_CHECK int sumtree_tops_fit(struct sumtree_tops *tops, const struct forest *from);

/*
 * From now on adds what these deltas add to the sums of `tree`, which is tree t of the forest, to the
 * private tops, too; NULL = to none. Deltas shared by several trees for which the tops are laid out are
 * flat from now on: see sumtree_end_tree.
 */
void tree_deltas_show(struct tree_deltas *deltas, struct sumtree *tree, struct sumtree_tops *tops,
		      uint32_t t);

/* Results of a draw, in arrays of the caller of n entries. */
struct draws {
	uint32_t *shard; /* index into the forest */
	uint32_t *slot;
	uint64_t *word;      /* the leaf as read */
	double *probability; /* product of the ratios used: exact despite drift */
};

struct draw_opts {
	bool stratified;     /* draw i falls in the i-th of n equal parts of the mass */
	uint32_t rank;       /* index of this learner among world_size interleaved parts */
	uint32_t world_size; /* 0 or 1 = all */
	bool writes;         /* the caller updates what it draws */
	uint64_t now_ns;     /* for the age of forest.tops; 0 = read them anew */
	int64_t *sizes_out;  /* live leaves of each tree, as sumtree_size; NULL = not wanted */
};

/*
 * Draws n leaves with replacement from the sum of the trees (rule 6). At each node the children
 * are clamped at 0 and summed: if the sum is as expected the remainder carries on, else the draw
 * is repeated inside the node; a sum of 0 restarts from the top over all trees. A leaf of
 * priority 0 is never chosen. Same seed and same tree give the same keys at any vector width
 * (cpu_level()).
 * Errors: -ENODATA (nothing to draw after a bounded number of restarts), -EINVAL (no tree, too
 * many, or trees of different shapes).
 * Others' changes of nodes above level 1 are seen at the latest after 32 draws or 200 us if the
 * forest has tops, and at once if it has none (ds/sumtree/tops.h).
 * Cost: 1 phase for the tops and sizes, 1 for each level below, for any number of draws and mix
 * of transports; neighbouring draws of one node share its read. Over a wire it allocates:
 * frequent callers use ds/sumtree/steps.h.
 * Thread: owner of rng.
 */
RLV_MUST_CHECK int sumtree_draw(const struct forest *from, const struct draw_opts *opts,
				struct rng *rng, size_t n, const struct draws *out);

/*
 * *size_out: live leaves by the size word of the current inner array, 0 to all. Approximate while
 * others write.
 */
RLV_MUST_CHECK int sumtree_size(const struct sumtree *tree, struct epoch *ep, int64_t *size_out);

/* *total_out: sum over the nodes of the top level, negative sums as 0. -ENOMEM. Cost: 1 phase. */
RLV_MUST_CHECK int sumtree_total(const struct sumtree *tree, struct epoch *ep, uint64_t *total_out);

/* -------- checking -------- */

struct sumtree_report {
	uint64_t live_leaves;
	uint64_t total;       /* sum of the leaves */
	uint64_t wrong_nodes; /* inner nodes that differ from the sum of their children */
	uint64_t wrong_tags;  /* leaves with a tag of another epoch */
	int64_t size_error;   /* size word minus live leaves */
};

/*
 * Compares all sums and tags of the tree with its leaves. Returns 0 also if some are wrong: see
 * *report_out. Exact only without concurrent writers. -ENOMEM.
 */
RLV_MUST_CHECK int sumtree_check(const struct sumtree *tree, struct epoch *ep,
				 struct sumtree_report *report_out);

#endif

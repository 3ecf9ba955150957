/*
 * Shard trees: the trees of a sampler's view in the open shards. They are rebuilt when shards come
 * and go, so a tree's number can differ from its shard's.
 */
#ifndef RLV_CLIENT_SAMPLER_SHARD_TREES_H
#define RLV_CLIENT_SAMPLER_SHARD_TREES_H

#include "client/part/part_set.h"

#include "ds/replay/fifo_scan.h"

/* Where an addressable shard has the leaves of the view, and its rows; else unused. */
struct shard_place {
	const uint8_t *leaves;
	const uint8_t *rows;
};

struct shard_trees {
	struct forest forest;
	struct sumtree *trees;    /* trees of the open shards */
	uint32_t *shard;          /* of each tree */
	struct fifo_scan *orders; /* fifo and lifo views: of each tree */
	int64_t *sizes;           /* of each tree, by the last draw */
	uint32_t room;            /* of the arrays above */
	bool sparse;              /* tree numbers differ from shard numbers */
	bool addressable;         /* all of them */
	uint32_t view;
	/* Of each shard, by its number; side by side, since a batch needs those of many shards. */
	struct shard_place *places;
	int64_t *items;   /* live ones of each shard as last seen, by its number */
	uint32_t n_items; /* of them and of places */
};

void shard_trees_fini(struct shard_trees *trees);

/* Collects the trees of view `view` in the open shards. Before the first call `view` is set and
   the rest is zero. -ENOMEM; fini may be called after an error. Cost: local. */
RLV_MUST_CHECK int shard_trees_build(struct shard_trees *trees, const struct part_set *set);

/* Replaces the n tree numbers in tree[] by the numbers of their shards. */
static inline void shard_trees_name_shards(const struct shard_trees *trees, uint32_t *tree,
					   uint32_t n)
{
	for (uint32_t i = 0; trees->sparse && i < n; i++)
		tree[i] = trees->shard[tree[i]];
}

/*
 * Up to n items of an ordered view as slots and words, and the tree of each: of a table whose only
 * shard moves, those of the older one come first. Fills `sizes`, too. -ENODATA: none. Cost:
 * fifo_scan_find of each tree, and 1 phase more over a wire.
 */
struct shard_trees_items {
	uint32_t *shard;
	uint32_t *slot;
	uint64_t *word;
};

RLV_MUST_CHECK int shard_trees_find(struct shard_trees *trees, uint32_t n,
				    const struct shard_trees_items *out, uint32_t *found_out);

/* Copies `sizes` of the last draw, by tree, to `items`, by shard. */
static inline void shard_trees_see_sizes(struct shard_trees *trees)
{
	for (uint32_t t = 0; t < trees->forest.n; t++)
		trees->items[trees->shard[t]] = trees->sizes[t];
}

/* Live items of all open shards together, as last seen in a draw. */
static inline int64_t shard_trees_items(const struct shard_trees *trees)
{
	int64_t sum = 0;

	for (uint32_t t = 0; t < trees->forest.n; t++)
		sum += trees->items[trees->shard[t]];
	return sum;
}

/* Live items of unreachable shards, as last counted. */
int64_t shard_trees_items_lost(const struct shard_trees *trees, const struct part_set *set);

#endif

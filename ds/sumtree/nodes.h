/* nodes.h - private to ds/sumtree/: offsets of the words of a tree. */
#ifndef RLV_DS_SUMTREE_NODES_H
#define RLV_DS_SUMTREE_NODES_H

#include "ds/sumtree/sumtree.h"

#include "transport/transport.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * i / fanout for i < 2^24: the reciprocal is too large by less than 2^10 / 2^40 of a unit, so
 * the product is by less than 2^34 / 2^40.
 */
#define NODE_RECIP_SHIFT 40

/* Index, on the level above, of the parent of node i of level. */
static inline uint32_t node_parent(const struct sumtree *tree, uint32_t level, uint32_t i)
{
	return (uint32_t)(i * tree->recip[level] >> NODE_RECIP_SHIFT);
}

static inline uint64_t leaf_off(const struct sumtree *tree, uint32_t slot)
{
	return tree->leaves_off + (uint64_t)slot * 8;
}

/* Address of a leaf; the region is addressable. */
static inline const struct rword64 *leaf_at(const struct sumtree *tree, uint32_t slot)
{
	const uint8_t *leaf = tree->region->base + leaf_off(tree, slot);

	return (const struct rword64 *)(const void *)leaf;
}

/* Offset of the first word of a level, of the inner array of that parity; level 0 = the leaves. */
static inline uint64_t node_level_off(const struct sumtree *tree, uint32_t parity, uint32_t level)
{
	return level ? tree->inner_off[parity] + tree->level_off[level] : tree->leaves_off;
}

static inline uint64_t node_off(const struct sumtree *tree, uint32_t parity, uint32_t level,
				uint32_t i)
{
	return node_level_off(tree, parity, level) + (uint64_t)i * 8;
}

/* Offset of the size word of an inner array, which counts the live leaves. */
static inline uint64_t node_size_off(const struct sumtree *tree, uint32_t parity)
{
	return tree->inner_off[parity];
}

/* Number of live leaves from a size word, clamped to 0..leaves. */
static inline int64_t node_size(const struct sumtree *tree, uint64_t word)
{
	int64_t size = (int64_t)word > 0 ? (int64_t)word : 0;

	return size < tree->geo.leaves ? size : tree->geo.leaves;
}

#endif

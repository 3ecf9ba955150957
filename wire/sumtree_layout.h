/*
 * Sum tree: leaf word, inner levels, geometry.
 *
 * Leaf (u64, CAS only):
 *   bits  0..39  priority  fixed point; 0 = "no item here" (claimed, unpublished or retired)
 *   bits 40..61  gen       generation of the slot, from the ticket of its block; 0 = never used
 *   bits 62..63  tag       epoch of the inner array that this leaf is counted in, modulo 4
 *
 * Inner nodes (int64, FAA only) are plain sums of their children's priorities. Level 0 are the
 * leaves; level l > 0 has nodes(l) = ceil(nodes(l-1) / fanout[l-1]) sums. The top level has at most
 * TREE_TOP_MAX nodes and no parent: the sampler adds up its nodes, so that no word is written by
 * every writer. There are two inner arrays, one for each parity of the rebuild epoch. An array is:
 *
 *   one line: word 0 = size, the number of leaves with priority > 0 (same deltas, same epoch)
 *   level top | level top-1 | ... | level 1      each padded to whole lines, and to whole groups
 *
 * Children of a node are contiguous and line-aligned (fan-outs are multiples of 8).
 */
#ifndef RLV_WIRE_SUMTREE_LAYOUT_H
#define RLV_WIRE_SUMTREE_LAYOUT_H

#include "wire/le.h"

#define LEAF_PRIORITY_BITS 40
#define LEAF_PRIORITY_MASK (((uint64_t)1 << LEAF_PRIORITY_BITS) - 1)
#define LEAF_GEN_BITS 22
#define LEAF_GEN_MASK (((uint32_t)1 << LEAF_GEN_BITS) - 1)
#define LEAF_TAG_SHIFT 62

#define TREE_MAX_LEAVES ((uint32_t)1 << 24)
#define TREE_MAX_LEVELS 8  /* inner levels */
#define TREE_MIN_FANOUT 8u /* and a multiple of it: a line of words */
#define TREE_MAX_FANOUT 1024u
#define TREE_TOP_MAX 16384u       /* nodes of the top level */
#define TREE_SUM_HEADROOM_BITS 62 /* rule 9: leaves x max_prio stays below 2^62 */

static inline uint64_t leaf_make(uint32_t tag, uint32_t gen, uint64_t priority)
{
	return (uint64_t)(tag & 3u) << LEAF_TAG_SHIFT |
	       (uint64_t)(gen & LEAF_GEN_MASK) << LEAF_PRIORITY_BITS |
	       (priority & LEAF_PRIORITY_MASK);
}

static inline uint64_t leaf_priority(uint64_t word)
{
	return word & LEAF_PRIORITY_MASK;
}

static inline uint32_t leaf_gen(uint64_t word)
{
	return (uint32_t)(word >> LEAF_PRIORITY_BITS) & LEAF_GEN_MASK;
}

static inline uint32_t leaf_tag(uint64_t word)
{
	return (uint32_t)(word >> LEAF_TAG_SHIFT);
}

/*
 * Geometry of one tree, kept as data in the table descriptor.
 *   offset size
 *        0    4  leaves (slots of the shard)
 *        4    4  inner levels, 1..8
 *        8   16  fanout[l]: children per node of level l+1, a multiple of 8
 *       24    8  bytes of one inner array
 *       32   32  reserved
 */
struct tree_geometry {
	uint32_t leaves;
	uint32_t levels;
	uint16_t fanout[TREE_MAX_LEVELS];
	uint64_t inner_bytes;
	uint8_t reserved[32];
};

WIRE_SIZE(tree_geometry, 64);
WIRE_AT(tree_geometry, leaves, 0);
WIRE_AT(tree_geometry, levels, 4);
WIRE_AT(tree_geometry, fanout, 8);
WIRE_AT(tree_geometry, inner_bytes, 24);

#endif

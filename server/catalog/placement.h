/*
 * Placement: on which node a shard goes, and which shard should be elsewhere. Numbers in, a
 * decision out; nothing is done here.
 *
 * A table is spread when no node has two shards more than another, nodes that leave have none, and
 * the table has as many as it wants. placement_next() names one step towards that; repeated, it
 * comes to an end, and moves no more shards than it must.
 */
#ifndef RLV_SERVER_CATALOG_PLACEMENT_H
#define RLV_SERVER_CATALOG_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

struct placement_node {
	uint64_t free;   /* bytes of the pool */
	uint32_t shards; /* of the table that take new blocks */
	bool takes;      /* up, and not leaving: may be given shards */
	bool leaves;     /* its shards must go elsewhere */
};

enum placement_kind {
	PLACEMENT_DONE,  /* as it should be, or nothing can be done */
	PLACEMENT_ADD,   /* a new shard at `to` */
	PLACEMENT_MOVE,  /* a new shard at `to`, and one at `from` is drained */
	PLACEMENT_STUCK, /* shards must leave `from`, and nobody takes them */
};

struct placement_step {
	enum placement_kind kind;
	uint32_t to, from;
};

/*
 * The node for one new shard: the one with most room; of those that have about as much, the one
 * whose turn it is. n = none takes any. *turn is the caller's, at first anything.
 */
uint32_t placement_pick(const struct placement_node *nodes, uint32_t n, uint32_t *turn);

/* wanted: shards that the table should have on all nodes together, those that are down included. */
struct placement_step placement_next(const struct placement_node *nodes, uint32_t n,
				     uint32_t wanted);

#endif

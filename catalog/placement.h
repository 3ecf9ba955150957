/*
 * Placement: chooses the node for a shard, and shards that should move. Pure decisions on numbers;
 * no side effects.
 *
 * A table is evenly spread when the shard counts of any two nodes differ by at most one, draining
 * nodes have none, and it has the wanted number of shards. placement_next() returns one step
 * towards that; repeated, it terminates and moves no more shards than necessary.
 */
#ifndef RLV_CATALOG_PLACEMENT_H
#define RLV_CATALOG_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

struct placement_node {
	uint64_t free;   /* free bytes of the pool */
	uint32_t shards; /* the table's shards that take new blocks */
	bool takes;      /* up and not draining: may get shards */
	bool leaves;     /* draining: its shards must move */
};

enum placement_kind {
	PLACEMENT_DONE,  /* evenly spread, or no step is possible */
	PLACEMENT_ADD,   /* add a shard at `to` */
	PLACEMENT_MOVE,  /* add a shard at `to`, drain one at `from` */
	PLACEMENT_STUCK, /* shards must leave `from`, but no node takes them */
};

struct placement_step {
	enum placement_kind kind;
	uint32_t to, from;
};

/*
 * Picks the node for one new shard: the one with most free memory; nodes with about as much take
 * turns. Returns n if no node takes shards. *turn belongs to the caller, any initial value.
 */
uint32_t placement_pick(const struct placement_node *nodes, uint32_t n, uint32_t *turn);

/*
 * Returns one step towards an evenly spread table: add a shard, move one, or none. wanted: target
 * number of its shards over all nodes, down nodes included.
 */
struct placement_step placement_next(const struct placement_node *nodes, uint32_t n,
				     uint32_t wanted);

#endif

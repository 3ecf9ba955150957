/*
 * store_nodes.h - the memory nodes of a store, one by one.
 */
#ifndef RLV_TESTS_STORE_NODES_H
#define RLV_TESTS_STORE_NODES_H

#include <relive/relive.h>

/*
 * Information on node i of the store, or on the node of that name. state UINT32_MAX: no such node,
 * or no answer.
 */
struct rlv_node_info store_node_at(struct rlv_store *store, size_t i);
struct rlv_node_info store_node_named(struct rlv_store *store, const char *name);

/* How many are up; 0 without an answer. */
uint32_t store_nodes_up(struct rlv_store *store);

#endif

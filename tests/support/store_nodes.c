#include "tests/support/store_nodes.h"

#include <stdlib.h>
#include <string.h>

#define MOST 64

/* All nodes, at most MOST; the caller frees them. *n_out = 0: no answer. */
static struct rlv_node_info *list(struct rlv_store *store, size_t *n_out)
{
	struct rlv_node_info *nodes = calloc(MOST, sizeof(*nodes));

	*n_out = MOST;
	if (!nodes || rlv_store_nodes(store, nodes, sizeof(*nodes), n_out))
		*n_out = 0;
	*n_out = *n_out < MOST ? *n_out : MOST;
	return nodes;
}

/* The first one that `name` names, or number i where name is NULL. */
static struct rlv_node_info find(struct rlv_store *store, const char *name, size_t i)
{
	struct rlv_node_info node = { .state = UINT32_MAX }, *nodes;
	size_t n;

	nodes = list(store, &n);
	for (size_t k = 0; k < n; k++)
		if (name ? strcmp(nodes[k].name, name) == 0 : k == i)
			node = nodes[k];
	free(nodes);
	return node;
}

struct rlv_node_info store_node_at(struct rlv_store *store, size_t i)
{
	return find(store, NULL, i);
}

struct rlv_node_info store_node_named(struct rlv_store *store, const char *name)
{
	return find(store, name, 0);
}

uint32_t store_nodes_up(struct rlv_store *store)
{
	struct rlv_node_info *nodes;
	uint32_t up = 0;
	size_t n;

	nodes = list(store, &n);
	for (size_t i = 0; i < n; i++)
		up += nodes[i].state == RLV_NODE_UP;
	free(nodes);
	return up;
}

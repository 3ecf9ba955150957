#include "tests/support/store_nodes.h"

#include <stdlib.h>
#include <string.h>

#define MOST 64

/* The first one that `name` names, or number i where name is NULL. */
static struct rlv_node_info find(struct rlv_store *store, const char *name, size_t i)
{
	struct rlv_node_info *nodes = calloc(MOST, sizeof(*nodes));
	struct rlv_node_info node = { .state = UINT32_MAX };
	size_t n = MOST;

	if (nodes && rlv_store_nodes(store, nodes, sizeof(*nodes), &n) == 0)
		for (size_t k = 0; k < n && k < MOST; k++)
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

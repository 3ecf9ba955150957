#include "cli/store_status.h"

#include <string.h>

int store_status_read(struct rlv_store *store, struct store_status *out)
{
	int ret;

	out->info = (struct rlv_store_info){ .size = sizeof(out->info) };
	out->n_nodes = STORE_NODES;
	ret = rlv_store_info(store, &out->info);
	if (ret == 0)
		ret = rlv_store_nodes(store, out->nodes, sizeof(out->nodes[0]), &out->n_nodes);
	if (out->n_nodes > STORE_NODES)
		out->n_nodes = STORE_NODES;
	return ret;
}

const struct rlv_node_info *store_status_find(const struct store_status *status, const char *name)
{
	for (size_t i = 0; i < status->n_nodes; i++)
		if (strcmp(status->nodes[i].name, name) == 0)
			return &status->nodes[i];
	return NULL;
}

bool store_node_is_up(const struct rlv_node_info *node)
{
	return node->state == RLV_NODE_UP || node->state == RLV_NODE_DRAINING;
}

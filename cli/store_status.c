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

int store_status_ask(const char *uri, int64_t timeout_ns, struct store_status *out)
{
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *store;
	int ret, closed;

	opts.timeout_ns = timeout_ns;
	opts.read_only = true;
	ret = rlv_store_open(uri, &opts, &store);
	if (ret)
		return ret;
	ret = store_status_read(store, out);
	closed = rlv_store_close(&store);
	return ret ? ret : closed;
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
	return node && (node->state == RLV_NODE_UP || node->state == RLV_NODE_DRAINING);
}

/*
 * plan.c - computes a table's descriptor from a client's wish and the nodes that are up.
 */
#include "catalog/kind_table.h"

/*
 * *out: the wish's descriptor, planned for n_shards shards and, if `remote`, for clients that reach
 * them over a network.
 */
static int plan_for(const struct table_wish *wish, uint32_t n_shards, bool remote,
		    struct table_desc *out)
{
	struct table_plan_opts opts = wish->opts;
	struct table_desc desc = wish->desc;
	int ret = 0;

	desc.n_shards = n_shards;
	opts.remote = remote;
	if (n_shards != wish->desc.n_shards || remote)
		ret = table_plan(&desc, &opts);
	if (ret == 0)
		*out = desc;
	return ret;
}

/*
 * Plans one shard for each of the `takers` nodes, or fewer if the capacity is too small for that;
 * without auto_shards, or for one node, the number of shards in the wish.
 */
static int plan_for_nodes(const struct table_wish *wish, uint32_t takers, bool remote,
			  struct table_desc *out)
{
	uint32_t n_shards = wish->auto_shards && takers > 1 ? takers : wish->desc.n_shards;
	int ret;

	while ((ret = plan_for(wish, n_shards, remote, out)) && n_shards > wish->desc.n_shards)
		n_shards--;
	return ret;
}

/*
 * Plans wide tree nodes, which suit networks, if a node is reached over one; plans narrow ones if
 * none is, if the wish has fan-outs, or if wide ones do not fit.
 */
int table_plan_for(const struct catalog *cat, const struct table_wish *wish, struct table_desc *out)
{
	struct placement_node places[NODES_MAX];
	struct node *nodes[NODES_MAX];
	uint32_t n = catalog_places(cat, NULL, places, nodes), takers = 0;
	struct table_wish mine = *wish;
	bool remote = false;

	for (uint32_t i = 0; i < n; i++) {
		takers += places[i].takes;
		remote |= !node_is_mapped(nodes[i]);
		if (wish->crc_by_nodes && node_wants_checksums(nodes[i]))
			mine.desc.flags |= TABLE_ROW_CRC;
	}
	if (remote && !wish->opts.fanout && plan_for_nodes(&mine, takers, true, out) == 0)
		return 0;
	return plan_for_nodes(&mine, takers, false, out);
}

bool table_is_wish_of(const struct catalog_object *table, const struct catalog_wish *object)
{
	const struct table_wish *wish = object->details;
	const struct table_desc *made = &table_state_of(table)->desc;
	bool follows = wish->auto_shards && table->auto_parts;
	uint32_t n_shards = follows ? made->n_shards : wish->desc.n_shards;
	struct table_wish mine = *wish;

	if (wish->crc_by_nodes)
		mine.desc.flags = made->flags;
	for (int remote = 0; remote < 2; remote++) {
		struct table_desc desc;

		if (plan_for(&mine, n_shards, remote, &desc) == 0 && table_desc_same(made, &desc))
			return true;
	}
	return false;
}

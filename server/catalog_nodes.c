/*
 * catalog_nodes.c - what happens to tables when memory nodes come and go.
 */
#include "server/catalog.h"

#include <inttypes.h>

#include "ds/recover.h"
#include "ds/sumtree_rebuild.h"

#include "wire/region.h"

#include "base/log.h"

static bool has_region(const struct catalog_arrival *arrival, uint32_t id, uint32_t kind,
		       const struct table_desc *desc, uint32_t shard)
{
	for (size_t i = 0; i < arrival->n_regions; i++) {
		const Relive__NodeRegion *region = arrival->regions[i];

		if (region->region == id)
			return region->kind == kind && region->table_id == desc->table_id &&
			       region->shard == shard;
	}
	return false;
}

static void lose(struct catalog_table *table, uint32_t s)
{
	log_error("table %s shard %u: lost with the memory of node %s", table->desc.name, s,
		  table->shards[s].node->name);
	if (table->attached[s] && shard_set_state(table->attached[s], REGION_ORPHANED))
		log_warn("orphan table %s shard %u: %s", table->desc.name, s, error_last());
	catalog_table_detach(table, s);
	table->lost[s] = true;
}

/* A pool that nobody had mapped: nothing in it is in anybody's hands. */
static int recover(struct catalog_table *table, uint32_t s)
{
	const struct recover_opts opts = { .scan_rows = false };
	struct recover_report report;
	int ret = recover_shard(table->attached[s], &opts, &report);

	if (ret == 0)
		log_info("recover table %s shard %u: items %" PRIu64 " blocks closed %u",
			 table->desc.name, s, report.items, report.closed);
	return ret;
}

/* The new life is remembered at once: what is recovered twice would be taken from its users. */
static int renew_life(struct catalog *cat, const struct catalog_arrival *arrival,
		      struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	int ret = arrival->node->sole_opener ? recover(table, s) : 0;

	if (ret)
		return ret;
	place->incarnation = arrival->node->incarnation;
	return catalog_table_put_shard(cat->store, table, s);
}

static int take_up(struct catalog *cat, const struct catalog_arrival *arrival,
		   struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	int ret = catalog_table_attach(table, s);

	if (ret == 0 && place->incarnation != arrival->node->incarnation)
		ret = renew_life(cat, arrival, table, s);
	if (ret == 0)
		ret = slots_read(&table->slots, s, cat->on_holder, cat->ctx);
	if (ret == 0)
		ret = sumtree_rebuild_needed(table->attached[s], &place->drift);
	return ret;
}

static void node_up_shard(struct catalog *cat, const struct catalog_arrival *arrival,
			  struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	const struct node *node = arrival->node;
	int ret;

	if (place->node != node || table->lost[s])
		return;
	if (place->incarnation != node->incarnation && !node->persistent) {
		lose(table, s);
		return;
	}
	if (!has_region(arrival, place->tree_id, REGION_TREE, &table->desc, s) ||
	    !has_region(arrival, place->rows_id, REGION_ROWS, &table->desc, s)) {
		lose(table, s);
		return;
	}
	if (table->attached[s])
		return;
	ret = take_up(cat, arrival, table, s);
	if (ret) {
		log_error("attach table %s shard %u: %s", table->desc.name, s, error_last());
		catalog_table_detach(table, s);
	}
}

static bool is_owned(const struct catalog *cat, const struct node *node, uint32_t region)
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		const struct catalog_table *table = cat->tables[id];

		for (uint32_t s = 0; table && s < table->desc.n_shards; s++)
			if (table->shards[s].node == node && !table->lost[s] &&
			    (table->shards[s].tree_id == region ||
			     table->shards[s].rows_id == region))
				return true;
	}
	return false;
}

static void each_shard_of(struct catalog *cat, const struct catalog_arrival *arrival,
			  void (*fn)(struct catalog *, const struct catalog_arrival *,
				     struct catalog_table *, uint32_t))
{
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++) {
		struct catalog_table *table = cat->tables[id];

		for (uint32_t s = 0; table && s < table->desc.n_shards; s++)
			fn(cat, arrival, table, s);
	}
}

/* What is attached belongs to the node's earlier life. */
static void leave_shard(struct catalog *cat, const struct catalog_arrival *arrival,
			struct catalog_table *table, uint32_t s)
{
	(void)cat;
	if (table->shards[s].node != arrival->node || !table->attached[s])
		return;
	if (arrival->node->persistent)
		catalog_table_detach(table, s);
	else
		lose(table, s);
}

void catalog_node_up(struct catalog *cat, const struct catalog_arrival *arrival)
{
	struct node *node = arrival->node;

	if (arrival->replaced && node->tr) {
		each_shard_of(cat, arrival, leave_shard);
		node_close_transport(node);
	}
	each_shard_of(cat, arrival, node_up_shard);
	for (size_t i = 0; node->up && i < arrival->n_regions; i++) {
		uint32_t id = arrival->regions[i]->region;

		if (is_owned(cat, node, id))
			continue;
		log_info("free region %u of node %s: no table owns it", id, node->name);
		catalog_retire_region(node, id);
	}
}

void catalog_node_down(struct catalog *cat, struct node *node)
{
	const struct catalog_arrival gone = { .node = node };

	if (!node->persistent)
		return;
	each_shard_of(cat, &gone, leave_shard);
	node_close_transport(node);
}

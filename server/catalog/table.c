#include "server/catalog/table.h"

#include <errno.h>
#include <string.h>

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/log.h"

void catalog_table_detach(struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	struct part *part = place->recovering ? place->recovering : table->attached[s];

	if (!part)
		return;
	if (place->recovery)
		table->kind->recover_end(&place->recovery);
	place->recovering = NULL;
	table->attached[s] = NULL;
	place->joined = false;
	table->kind->close(&part);
}

void catalog_table_free(struct catalog_table *table)
{
	if (!table)
		return;
	for (uint32_t s = 0; table->attached && table->shards && s < table->n_shards; s++)
		catalog_table_detach(table, s);
	slots_fini(&table->slots);
	mem_free(table->shards);
	mem_free(table->attached);
	mem_free(table->lost);
	mem_free(table);
}

struct catalog_table *catalog_table_new(const struct table_desc *desc)
{
	struct catalog_table *table = mem_zalloc(sizeof(*table));
	struct slots_opts opts;

	if (!table)
		goto err;
	table->kind = object_kind_find(OBJECT_TABLE);
	table->desc = *desc;
	table->shards = mem_array(TABLE_MAX_SHARDS, sizeof(struct catalog_shard));
	table->attached = mem_array(TABLE_MAX_SHARDS, sizeof(struct part *));
	table->lost = mem_array(TABLE_MAX_SHARDS, sizeof(bool));
	opts = (struct slots_opts){
		.kind = table->kind,
		.n = desc->max_clients,
		.max_streams = desc->max_writers,
		.parts = table->attached,
		.lost = table->lost,
		.n_parts = desc->n_shards,
	};
	if (table->shards && table->attached && table->lost &&
	    slots_init(&table->slots, &opts) == 0)
		return table;
err:
	catalog_table_free(table);
	(void)error_set(-ENOMEM, "table %s: no memory", desc->name);
	return NULL;
}

bool catalog_table_is_recovering(const struct catalog_table *table)
{
	for (uint32_t s = 0; s < table->n_shards; s++)
		if (table->shards[s].recovering)
			return true;
	return false;
}

uint32_t catalog_shard_view(const struct catalog_table *table, uint32_t s)
{
	const struct catalog_shard *place = &table->shards[s];

	if (catalog_state_is_usable(place->state) && !(place->node->up && place->joined))
		return RELIVE__SHARD_STATE__SHARD_DOWN;
	return place->state;
}

const char *catalog_shard_uri(const struct catalog_table *table, uint32_t s)
{
	const struct catalog_shard *place = &table->shards[s];
	const struct node *node = place->node;

	if (!node)
		return "";
	return table->lost[s] && place->incarnation != node->incarnation && node->former_uri[0]
		       ? node->former_uri
		       : node->uri;
}

void catalog_shard_end(struct catalog_table *table, uint32_t s, uint32_t state)
{
	table->shards[s].state = state;
	table->lost[s] = true;
}

int catalog_attach_regions(struct node *node, const struct catalog_shard *place,
			   struct part_regions *out)
{
	struct part_regions regions = { .owner = 0 };
	int ret = node_attach(node, &place->ids[REGION_TREE], REGION_ROLES - REGION_TREE,
			      &regions.at[REGION_TREE]);

	if (ret)
		return ret;
	*out = regions;
	return 0;
}

int catalog_table_attach(struct catalog_table *table, uint32_t s)
{
	struct catalog_shard *place = &table->shards[s];
	struct part_regions regions;
	int ret = catalog_attach_regions(place->node, place, &regions);

	if (ret)
		return ret;
	ret = table->kind->open(table, s, &regions, &table->attached[s]);
	if (ret)
		part_regions_detach(&regions);
	return ret;
}

int catalog_table_put(struct statedb *store, const struct catalog_table *table)
{
	const struct statedb_table stored = {
		.state = STORE_TABLE_LIVE,
		.desc = table->desc,
		.control = table->control,
		.auto_shards = table->auto_shards,
	};

	return statedb_table_put(store, &stored);
}

int catalog_table_put_shard(struct statedb *store, const struct catalog_table *table, uint32_t s)
{
	const struct catalog_shard *place = &table->shards[s];
	struct statedb_shard stored = {
		.table_id = table->desc.table_id,
		.shard = s,
		.incarnation = place->incarnation,
		.state = place->state,
	};

	memcpy(stored.regions, place->ids, sizeof(stored.regions));
	if (place->node)
		memcpy(stored.node, place->node->name, sizeof(stored.node));
	return statedb_shard_put(store, &stored);
}

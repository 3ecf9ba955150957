#include "server/catalog/object.h"

#include <errno.h>
#include <string.h>

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/log.h"

void catalog_part_detach(struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	struct part *part = place->recovering ? place->recovering : object->attached[s];

	if (!part)
		return;
	if (place->recovery)
		object->kind->recover_end(&place->recovery);
	place->recovering = NULL;
	object->attached[s] = NULL;
	place->joined = false;
	object->kind->close(&part);
}

void catalog_object_free(struct catalog_object *object)
{
	if (!object)
		return;
	for (uint32_t s = 0; object->attached && object->parts && s < object->n_parts; s++)
		catalog_part_detach(object, s);
	slots_fini(&object->slots);
	mem_free(object->parts);
	mem_free(object->attached);
	mem_free(object->lost);
	mem_free(object);
}

struct catalog_object *catalog_object_new(const struct table_desc *desc)
{
	struct catalog_object *object = mem_zalloc(sizeof(*object));
	struct slots_opts opts;

	if (!object)
		goto err;
	object->kind = object_kind_find(OBJECT_TABLE);
	object->desc = *desc;
	object->parts = mem_array(TABLE_MAX_SHARDS, sizeof(struct catalog_part));
	object->attached = mem_array(TABLE_MAX_SHARDS, sizeof(struct part *));
	object->lost = mem_array(TABLE_MAX_SHARDS, sizeof(bool));
	opts = (struct slots_opts){
		.kind = object->kind,
		.n = desc->max_clients,
		.max_streams = desc->max_writers,
		.parts = object->attached,
		.lost = object->lost,
		.n_parts = desc->n_shards,
	};
	if (object->parts && object->attached && object->lost &&
	    slots_init(&object->slots, &opts) == 0)
		return object;
err:
	catalog_object_free(object);
	(void)error_set(-ENOMEM, "table %s: no memory", desc->name);
	return NULL;
}

bool catalog_object_is_recovering(const struct catalog_object *object)
{
	for (uint32_t s = 0; s < object->n_parts; s++)
		if (object->parts[s].recovering)
			return true;
	return false;
}

uint32_t catalog_part_view(const struct catalog_object *object, uint32_t s)
{
	const struct catalog_part *place = &object->parts[s];

	if (catalog_state_is_usable(place->state) && !(place->node->up && place->joined))
		return RELIVE__SHARD_STATE__SHARD_DOWN;
	return place->state;
}

const char *catalog_part_uri(const struct catalog_object *object, uint32_t s)
{
	const struct catalog_part *place = &object->parts[s];
	const struct node *node = place->node;

	if (!node)
		return "";
	return object->lost[s] && place->incarnation != node->incarnation && node->former_uri[0]
		       ? node->former_uri
		       : node->uri;
}

void catalog_part_end(struct catalog_object *object, uint32_t s, uint32_t state)
{
	object->parts[s].state = state;
	object->lost[s] = true;
}

int catalog_attach_regions(struct node *node, const struct catalog_part *place,
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

int catalog_part_attach(struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	struct part_regions regions;
	int ret = catalog_attach_regions(place->node, place, &regions);

	if (ret)
		return ret;
	ret = object->kind->open(object, s, &regions, &object->attached[s]);
	if (ret)
		part_regions_detach(&regions);
	return ret;
}

int catalog_object_put(struct statedb *store, const struct catalog_object *object)
{
	const struct statedb_table stored = {
		.state = STORE_TABLE_LIVE,
		.desc = object->desc,
		.control = object->control,
		.auto_shards = object->auto_shards,
	};

	return statedb_table_put(store, &stored);
}

int catalog_object_put_part(struct statedb *store, const struct catalog_object *object, uint32_t s)
{
	const struct catalog_part *place = &object->parts[s];
	struct statedb_shard stored = {
		.table_id = object->desc.table_id,
		.shard = s,
		.incarnation = place->incarnation,
		.state = place->state,
	};

	memcpy(stored.regions, place->ids, sizeof(stored.regions));
	if (place->node)
		memcpy(stored.node, place->node->name, sizeof(stored.node));
	return statedb_shard_put(store, &stored);
}

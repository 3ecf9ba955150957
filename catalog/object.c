#include "catalog/object.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "wire/region.h"

#include "base/mem/alloc.h"

void catalog_part_detach(struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	struct part *part = place->recovering ? place->recovering : object->attached[s];

	part_regions_detach(&place->forming);
	if (!part)
		return;
	if (place->recovery)
		object->kind->recover_end(&place->recovery);
	place->recovering = NULL;
	object->attached[s] = NULL;
	place->joined = false;
	object->kind->close(part);
}

void catalog_object_free(struct catalog_object *object)
{
	if (!object)
		return;
	for (uint32_t s = 0; object->attached && object->parts && s < object->n_parts; s++)
		catalog_part_detach(object, s);
	slots_fini(&object->slots);
	mem_free(object->state);
	mem_free(object->parts);
	mem_free(object->attached);
	mem_free(object);
}

int catalog_object_new(const struct object_kind *kind, uint32_t id, const void *desc, size_t len,
		       struct catalog_object **object_out)
{
	struct catalog_object *object = mem_zalloc(sizeof(*object));
	int ret;

	if (!object)
		return error_set(-ENOMEM, "%s %u: no memory", kind->name, id);
	object->kind = kind;
	object->id = id;
	ret = kind->load(object, desc, len);
	if (ret == 0) {
		snprintf(object->text, sizeof(object->text), "%s %s", kind->name, object->name);
		object->parts = mem_array(OBJECT_MAX_PARTS, sizeof(struct catalog_part));
		object->attached = mem_array(OBJECT_MAX_PARTS, sizeof(struct part *));
		ret = object->parts && object->attached
			      ? slots_init(&object->slots, object)
			      : error_set(-ENOMEM, "%s: no memory", object->text);
	}
	if (ret)
		catalog_object_free(object);
	else
		*object_out = object;
	return ret;
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
		return PART_DOWN;
	return place->state;
}

const char *catalog_part_uri(const struct catalog_object *object, uint32_t s)
{
	const struct catalog_part *place = &object->parts[s];
	const struct node *node = place->node;

	if (!node)
		return "";
	return catalog_part_is_lost(object, s) && place->incarnation != node->incarnation &&
			       node->former_uri[0]
		       ? node->former_uri
		       : node->uri;
}

int catalog_part_attach(struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	struct part_regions regions = { .owner = 0 };
	int ret = place->node->ops->attach(place->node, &place->ids[REGION_TREE],
					   REGION_ROLES - REGION_TREE, &regions.at[REGION_TREE]);

	if (ret)
		return ret;
	ret = object->kind->open(object->desc, s, &regions, &object->attached[s]);
	if (ret)
		part_regions_detach(&regions);
	return ret;
}

int catalog_object_put(struct catalog_store *store, const struct catalog_object *object,
		       uint32_t state)
{
	struct store_object stored = {
		.kind = object->kind->id,
		.object = object->id,
		.state = state == STORE_OBJECT_LIVE && object->loader ? STORE_OBJECT_LOADING
								      : state,
		.desc = object->desc,
		.desc_len = object->desc_len,
		.control = object->control,
		.auto_parts = object->auto_parts,
	};

	memcpy(stored.name, object->name, sizeof(stored.name));
	return store_put(store, STORE_OBJECTS, &stored);
}

int catalog_object_put_part(struct catalog_store *store, const struct catalog_object *object,
			    uint32_t s)
{
	const struct catalog_part *place = &object->parts[s];
	struct store_part stored = {
		.kind = object->kind->id,
		.object = object->id,
		.part = s,
		.incarnation = place->incarnation,
		.state = place->state,
	};

	memcpy(stored.regions, place->ids, sizeof(stored.regions));
	if (place->node)
		memcpy(stored.node, place->node->name, sizeof(stored.node));
	return store_put(store, STORE_PARTS, &stored);
}

int catalog_part_set_state(struct catalog_store *store, struct catalog_object *object, uint32_t s,
			   uint32_t state)
{
	uint32_t before = object->parts[s].state;
	int ret;

	object->parts[s].state = state;
	ret = catalog_object_put_part(store, object, s);
	if (ret)
		object->parts[s].state = before;
	return ret;
}

void catalog_spread_soon(struct catalog_object *object)
{
	object->spread_due = true;
	object->spread_after = 0;
	object->spread_pause = CATALOG_AGAIN_NS;
}

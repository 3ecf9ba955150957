#include "catalog/catalog.h"

#include <errno.h>
#include <string.h>

#include "wire/region.h"

#include "base/bits.h"
#include "base/log.h"

#define GRACE_NS (3 * (uint64_t)CLOCK_NS_PER_S)

/* -------- find -------- */

struct catalog_object *catalog_find(const struct catalog *cat, const char *name)
{
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		if (cat->objects[id] && strcmp(cat->objects[id]->name, name) == 0)
			return cat->objects[id];
	return NULL;
}

struct catalog_object *catalog_find_same(const struct catalog *cat, uint32_t id,
					 const uint8_t *uuid, size_t uuid_len)
{
	struct catalog_object *object = id <= OBJECT_MAX_ID ? cat->objects[id] : NULL;

	if (object && uuid_len == sizeof(object->uuid) && memcmp(object->uuid, uuid, uuid_len) == 0)
		return object;
	return NULL;
}

uint32_t catalog_count(const struct catalog *cat, const struct object_kind *kind)
{
	uint32_t n = 0;

	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		n += cat->objects[id] && cat->objects[id]->kind == kind;
	return n;
}

/* -------- load -------- */

struct doomed {
	struct catalog *cat;
	bool ids[OBJECT_MAX_ID + 1];
};

static int load_object(void *ctx, const void *record)
{
	const struct store_object *stored = record;
	struct doomed *doomed = ctx;
	const struct object_kind *kind = doomed->cat->kind_of(stored->kind);
	struct catalog_object *object;
	uint32_t id = stored->object;
	int ret;

	if (!kind || id == 0 || id > OBJECT_MAX_ID || stored->control >= OBJECT_MAX_PARTS)
		return error_set(-EBADMSG, "state database: object %u of kind %u, control part %u",
				 id, stored->kind, stored->control);
	ret = catalog_object_new(kind, id, stored->desc, stored->desc_len, &object);
	if (ret)
		return error_prefix(ret, "state database: ");
	if (stored->state != STORE_OBJECT_LIVE) {
		doomed->ids[id] = true;
		catalog_object_free(object);
		return 0;
	}
	doomed->cat->objects[id] = object;
	object->control = stored->control;
	object->auto_parts = stored->auto_parts;
	object->n_parts = object->slots.n_parts = object->n_cut;
	return 0;
}

static int load_part(void *ctx, const void *record)
{
	const struct store_part *stored = record;
	struct doomed *doomed = ctx;
	struct catalog *cat = doomed->cat;
	struct catalog_object *object =
		stored->object <= OBJECT_MAX_ID ? cat->objects[stored->object] : NULL;
	struct catalog_part *shard;

	if (!object)
		return 0;
	if (stored->part >= OBJECT_MAX_PARTS ||
	    !(catalog_state_is_usable(stored->state) || stored->state == PART_LOST ||
	      stored->state == PART_GONE))
		return error_set(-EBADMSG, "state database: shard %u of %s", stored->part,
				 object->text);
	if (stored->part >= object->n_parts)
		object->n_parts = object->slots.n_parts = stored->part + 1;
	shard = &object->parts[stored->part];
	shard->node = *cat->nodes;
	while (shard->node && strcmp(shard->node->name, stored->node) != 0)
		shard->node = shard->node->next;
	shard->incarnation = stored->incarnation;
	memcpy(shard->ids, stored->regions, sizeof(shard->ids));
	shard->state = stored->state;
	return 0;
}

/* Clients are assumed to know the layout that the store has. */
static void finish_object(struct catalog *cat, struct catalog_object *object)
{
	for (uint32_t s = 0; s < object->n_parts; s++) {
		struct catalog_part *shard = &object->parts[s];

		if (shard->state != PART_GONE && !shard->node)
			shard->state = PART_LOST;
		if (shard->state == PART_LOST || shard->state == PART_GONE)
			object->lost[s] = true;
		shard->announced = shard->state;
	}
	object->layout = cat->layout;
	if (object->auto_parts)
		catalog_spread_soon(object);
}

int catalog_load(struct catalog *cat)
{
	struct doomed doomed = { .cat = cat };
	uint64_t last = 0;
	int ret = store_each(cat->store, STORE_OBJECTS, load_object, &doomed);

	cat->ids = cat->store->ids;
	if (ret == 0)
		ret = store_each(cat->store, STORE_PARTS, load_part, &doomed);
	if (ret == 0)
		ret = store_number(cat->store, "last_table", &last);
	if (ret == 0)
		ret = store_number(cat->store, "layout", &cat->layout);
	cat->last_id = (uint32_t)last;
	cat->grace_until = clock_now_ns(cat->clock) + GRACE_NS;
	/* Forget half-created objects; their regions are freed when the nodes register. */
	for (uint32_t id = 1; ret == 0 && id <= OBJECT_MAX_ID; id++)
		if (doomed.ids[id])
			ret = store_object_delete(cat->store,
						  id); /* keeps its provisioning records */
	for (uint32_t id = 1; ret == 0 && id <= OBJECT_MAX_ID; id++)
		if (cat->objects[id])
			finish_object(cat, cat->objects[id]);
	return ret;
}

/* -------- nodes as input of placement -------- */

uint32_t catalog_places(const struct catalog *cat, const struct catalog_object *object,
			struct placement_node places[NODES_MAX], struct node *nodes[NODES_MAX])
{
	uint32_t n = 0;

	for (struct node *node = *cat->nodes; node; node = node->next) {
		struct placement_node *place = &places[n];

		nodes[n++] = node;
		*place = (struct placement_node){
			.free = node->pool_bytes - min_u64(node->used_bytes, node->pool_bytes),
			.takes = node->up && !node->draining,
			.leaves = node->draining,
		};
		for (uint32_t s = 0; object && s < object->n_parts; s++)
			place->shards += object->parts[s].node == node &&
					 object->parts[s].state == PART_ACTIVE;
	}
	return n;
}

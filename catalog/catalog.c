#include "catalog/catalog.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"

#define GRACE_NS (3 * (uint64_t)CLOCK_NS_PER_S)

/* -------- find -------- */

struct catalog_object *catalog_find(const struct catalog *cat, const char *name)
{
	struct catalog_object *loading = NULL;

	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *object = cat->objects[id];

		if (!object || strcmp(object->name, name) != 0)
			continue;
		if (!object->loader)
			return object;
		loading = object;
	}
	return loading;
}

static struct catalog_object *find_uuid(const struct catalog *cat, const char *name,
					const uint8_t uuid[16])
{
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *object = catalog_find_same(cat, id, uuid, 16);

		if (object && strcmp(object->name, name) == 0)
			return object;
	}
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

struct catalog_object *catalog_seen(const struct catalog *cat, uint32_t id,
				    const struct object_kind *kind)
{
	struct catalog_object *object = cat->objects[id];

	return object && object->kind == kind && !object->loader ? object : NULL;
}

int catalog_find_named(const struct catalog *cat, const struct object_kind *kind, const char *name,
		       const uint8_t uuid[16], struct catalog_object **object_out)
{
	bool any = bits_all_zero(uuid, 16);
	struct catalog_object *object = any ? catalog_find(cat, name) : find_uuid(cat, name, uuid);

	*object_out = object;
	if (object && object->kind == kind)
		return 0;
	if (!any)
		return error_set(-ESTALE, "%s %.64s was dropped", kind->name, name);
	return error_set(-ENOENT, "no %s %.64s in this store", kind->name, name);
}

uint32_t catalog_count(const struct catalog *cat, const struct object_kind *kind)
{
	uint32_t n = 0;

	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		n += catalog_seen(cat, id, kind) != NULL;
	return n;
}

bool catalog_next_at(const struct catalog *cat, const struct node *node, struct catalog_at *at)
{
	for (; at->id <= OBJECT_MAX_ID; at->id++, at->next = 0) {
		at->object = cat->objects[at->id];
		while (at->object && at->next < at->object->n_parts) {
			at->s = at->next++;
			at->place = &at->object->parts[at->s];
			if (at->place->node == node)
				return true;
		}
	}
	return false;
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
	if (stored->state == STORE_OBJECT_LOADING) {
		ret = store_loader(doomed->cat->store, id, &object->loader);
		if (ret == 0 && object->loader == 0)
			ret = error_set(-EBADMSG, "state database: %s has no loader", object->text);
		if (ret) {
			catalog_object_free(object);
			return ret;
		}
	} else if (stored->state != STORE_OBJECT_LIVE) {
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

void catalog_part_enter(const struct catalog *cat, struct catalog_object *object,
			const struct store_part *stored)
{
	struct catalog_part *place = &object->parts[stored->part];

	for (uint32_t s = object->n_parts; s < stored->part; s++)
		object->parts[s].state = PART_LOST;
	if (stored->part >= object->n_parts)
		object->n_parts = object->slots.n_parts = stored->part + 1;
	*place = (struct catalog_part){
		.node = *cat->nodes,
		.incarnation = stored->incarnation,
		.state = stored->state,
	};
	while (place->node && strcmp(place->node->name, stored->node) != 0)
		place->node = place->node->next;
	memcpy(place->ids, stored->regions, sizeof(place->ids));
}

static int load_part(void *ctx, const void *record)
{
	const struct store_part *stored = record;
	struct doomed *doomed = ctx;
	struct catalog *cat = doomed->cat;
	struct catalog_object *object =
		stored->object <= OBJECT_MAX_ID ? cat->objects[stored->object] : NULL;

	if (!object)
		return 0;
	if (stored->part >= OBJECT_MAX_PARTS ||
	    !(catalog_state_is_usable(stored->state) || stored->state == PART_LOST ||
	      stored->state == PART_GONE))
		return error_set(-EBADMSG, "state database: shard %u of %s", stored->part,
				 object->text);
	catalog_part_enter(cat, object, stored);
	return 0;
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
	for (uint32_t id = 1; ret == 0 && id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *object = cat->objects[id];

		/* Forget half-created objects; their regions are freed when the nodes register:
		   their provisioning records stay. */
		if (doomed.ids[id])
			ret = store_object_delete(cat->store, id);
		if (!object)
			continue;
		for (uint32_t s = 0; s < object->n_parts; s++) {
			struct catalog_part *place = &object->parts[s];

			if (place->state != PART_GONE && !place->node)
				place->state = PART_LOST;
			place->announced = place->state;
		}
		object->layout = cat->layout; /* clients are assumed to know it */
		if (object->auto_parts)
			catalog_spread_soon(object);
	}
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

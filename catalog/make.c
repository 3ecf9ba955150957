#include "catalog/catalog.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/log.h"

/* -------- one part -------- */

static int format_part(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	struct part_regions *regions = &place->forming;
	int ret = 0;

	if (!regions->at[REGION_TREE]) {
		ret = catalog_attach_regions(place->node, place, regions);
		if (ret == -EAGAIN && !place->node->ops->is_attaching(place->node))
			ret = -EHOSTDOWN;
	}
	if (ret == 0)
		ret = part_prepare(regions);
	if (ret == -EAGAIN)
		return ret;
	if (ret == 0)
		ret = object->kind->format(cat, object, s, regions);
	if (ret == 0)
		ret = object->kind->open(object, s, regions, &object->attached[s]);
	if (ret)
		part_regions_detach(regions);
	*regions = (struct part_regions){ .owner = 0 };
	return ret;
}

/* Step 3 for one part. */
int catalog_make_part(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	int ret;

	/* The part may be formatted while its node has not taken the pages of all slots yet. */
	ret = object->attached[s] ? 0 : format_part(cat, object, s);
	if (ret == -EAGAIN)
		return ret;
	place->state = PART_ACTIVE;
	if (ret == 0)
		ret = slots_join(&object->slots, s);
	place->joined = ret == 0;
	place->announced = place->joined ? place->state : 0;
	return ret ? error_prefix(ret, "%s shard %u: ", object->text, s) : 0;
}

/* -------- an object -------- */

static int free_id(struct catalog *cat, uint32_t *id_out)
{
	for (uint32_t i = 1; i <= OBJECT_MAX_ID; i++) {
		uint32_t id = (cat->last_id + i - 1) % OBJECT_MAX_ID + 1;

		if (!cat->objects[id] && !catalog_provision_of_new(cat, id, NULL)) {
			*id_out = id;
			return 0;
		}
	}
	return error_set(-ENOSPC, "store: it has %u tables, its maximum: drop one first",
			 OBJECT_MAX_ID);
}

static int reserve_part(struct catalog *cat, const struct catalog_object *object, uint32_t s)
{
	return object->kind->reserve ? object->kind->reserve(cat, object, s) : 0;
}

/* Step 1: reserves the object's id, and what its kind needs for each part. */
static int object_reserve(struct catalog *cat, const struct catalog_object *object)
{
	int ret = store_begin(cat->store);

	if (ret)
		return ret;
	ret = store_number_put(cat->store, "last_table", object->id);
	for (uint32_t s = 0; ret == 0 && s < object->n_cut; s++)
		ret = reserve_part(cat, object, s);
	if (ret == 0)
		ret = catalog_object_put(cat->store, object, STORE_OBJECT_CREATING);
	return store_end(cat->store, ret);
}

/* The part becomes the object's: its provisioning record is deleted. */
static int put_made(struct catalog *cat, const struct catalog_object *object, uint32_t s)
{
	struct store_making made = { .object = object->id, .part = s };
	int ret = catalog_object_put_part(cat->store, object, s);

	memcpy(made.node, object->parts[s].node->name, sizeof(made.node));
	return ret ? ret : store_delete(cat->store, STORE_MAKINGS, &made, 3);
}

/* Step 4. */
static int object_publish(struct catalog *cat, const struct catalog_object *object)
{
	int ret = store_begin(cat->store);

	if (ret)
		return ret;
	for (uint32_t s = 0; ret == 0 && s < object->n_parts; s++)
		ret = put_made(cat, object, s);
	if (ret == 0)
		ret = catalog_object_put(cat->store, object, STORE_OBJECT_LIVE);
	return store_end(cat->store, ret);
}

/* Keeps the error message over the clean-up. Regions that cannot be freed now keep their
   provisioning record. */
static int give_up(struct catalog *cat, struct catalog_object *object, int code)
{
	char words[ERROR_TEXT_BYTES];

	memcpy(words, error_last(), sizeof(words));
	catalog_retire_object(cat, object);
	if (store_object_delete(cat->store, object->id))
		log_warn("forget %s: %s", object->text, error_last());
	catalog_object_free(object);
	return error_set(code, "%s", words);
}

static int new_object(struct catalog *cat, const struct catalog_wish *wish,
		      struct catalog_object **object_out)
{
	struct catalog_object *object;
	struct object_desc desc;
	struct object_ids ids;
	int ret = free_id(cat, &ids.id);

	if (ret)
		return ret;
	if (getrandom(ids.uuid, sizeof(ids.uuid), 0) != (ssize_t)sizeof(ids.uuid))
		return error_set(-EIO, "getrandom: %s", strerror(errno));
	ret = wish->kind->describe(cat, wish, &ids, &desc);
	if (ret)
		return ret;
	ret = catalog_object_new(wish->kind, ids.id, desc.bytes, desc.len, &object);
	mem_free(desc.bytes);
	if (ret)
		return ret;
	object->auto_parts = wish->auto_parts;
	object->slots.sole = cat->sole;
	object->n_parts = object->n_cut;
	ret = object_reserve(cat, object);
	if (ret)
		catalog_object_free(object);
	else
		*object_out = object;
	return ret;
}

static int go_on_with_object(struct catalog *cat, struct catalog_provisioning *provisioning,
			     struct catalog_object **object_out)
{
	struct catalog_object *object = provisioning->object;
	int ret = catalog_provision_run(provisioning);

	if (ret == -EAGAIN)
		return ret;
	catalog_provision_end(provisioning);
	if (ret == 0)
		ret = object_publish(cat, object);
	if (ret)
		return give_up(cat, object, ret);
	cat->objects[object->id] = object;
	catalog_changed(cat, object);
	log_info("create %s id %u shards %u", object->text, object->id, object->n_cut);
	*object_out = object;
	return 0;
}

int catalog_create(struct catalog *cat, const struct catalog_wish *wish,
		   struct catalog_object **object_out)
{
	struct catalog_provisioning *provisioning, like = { .is_new = true };
	struct catalog_object *object;
	int ret = 0;

	object = catalog_find(cat, wish->name);
	if (object && (object->kind != wish->kind || !object->kind->is_wish_of(object, wish)))
		return error_set(-EEXIST, "%s exists with another signature or options",
				 object->text);
	if (object) {
		*object_out = object;
		return 0;
	}
	provisioning = catalog_provision_of_new(cat, 0, wish->name);
	if (!provisioning) {
		ret = new_object(cat, wish, &like.object);
		if (ret)
			return ret;
		like.n = like.object->n_cut;
		cat->last_id = like.object->id;
		ret = catalog_provision_begin(cat, &like, &provisioning);
	}
	return ret ? give_up(cat, like.object, ret)
		   : go_on_with_object(cat, provisioning, object_out);
}

/* -------- one more part -------- */

static int go_on_with_part(struct catalog *cat, struct catalog_provisioning *provisioning)
{
	struct catalog_object *object = provisioning->object;
	uint32_t s = provisioning->first;
	char words[ERROR_TEXT_BYTES];
	int ret = catalog_provision_run(provisioning);

	if (ret == -EAGAIN)
		return ret;
	catalog_provision_end(provisioning);
	if (ret == 0)
		ret = store_begin(cat->store);
	if (ret == 0)
		ret = store_end(cat->store, put_made(cat, object, s));
	if (ret) {
		memcpy(words, error_last(), sizeof(words));
		catalog_retire_part(cat, object, s, REGION_DROPPED);
		object->parts[s] = (struct catalog_part){ .state = 0 };
		object->slots.n_parts = object->n_parts;
		return error_set(ret, "%s", words);
	}
	object->n_parts = s + 1;
	object->parts[s].since = clock_now_ns(cat->clock);
	catalog_changed(cat, object);
	log_info("add shard %u of %s at node %s", s, object->text, object->parts[s].node->name);
	return 0;
}

int catalog_add_part(struct catalog *cat, struct catalog_object *object, struct node *node,
		     struct node *leaves)
{
	const struct catalog_provisioning like = {
		.object = object,
		.first = object->n_parts,
		.n = 1,
		.only = node,
		.leaves = leaves,
	};
	struct catalog_provisioning *provisioning = catalog_provision_of(cat, object);
	int ret = 0;

	if (!provisioning && object->n_parts == OBJECT_MAX_PARTS)
		return error_set(-ENOSPC, "%s: all %u shard numbers of its life are used",
				 object->text, OBJECT_MAX_PARTS);
	if (!provisioning) {
		ret = reserve_part(cat, object, object->n_parts);
		if (ret == 0)
			ret = catalog_provision_begin(cat, &like, &provisioning);
	}
	return ret ? ret : go_on_with_part(cat, provisioning);
}

/* -------- drop -------- */

int catalog_drop(struct catalog *cat, const char *name)
{
	struct catalog_object *object = catalog_find(cat, name);
	struct catalog_provisioning *provisioning;
	int ret;

	if (!object)
		return error_set(-ENOENT, "no table %.64s in this store", name);
	provisioning = catalog_provision_of(cat, object);
	if (object->kind->drop)
		object->kind->drop(cat, object);
	ret = catalog_give_up_object(cat, object);
	if (ret)
		return ret;
	if (provisioning) {
		catalog_retire_part(cat, object, provisioning->first, REGION_DROPPED);
		catalog_provision_abandon(provisioning);
	}
	catalog_retire_object(cat, object);
	cat->objects[object->id] = NULL;
	log_info("drop %s id %u", object->text, object->id);
	catalog_object_free(object);
	return 0;
}

#include "server/catalog/catalog.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "wire/region.h"

#include "base/log.h"

/* -------- one part -------- */

static int format_part(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	struct part_regions regions;
	int ret = catalog_attach_regions(place->node, place, &regions);

	if (ret == -EAGAIN && !node_is_attaching(place->node))
		ret = -EHOSTDOWN;
	if (ret)
		return ret;
	ret = object->kind->format(cat, object, s, &regions);
	if (ret == 0)
		ret = object->kind->open(object, s, &regions, &object->attached[s]);
	if (ret)
		part_regions_detach(&regions);
	return ret;
}

/* Step 3 for one part. */
int catalog_make_part(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	int ret;

	/* It may be formatted, while its node has not taken the pages of all slots yet. */
	ret = object->attached[s] ? 0 : format_part(cat, object, s);
	if (ret == -EAGAIN)
		return ret;
	place->state = RELIVE__SHARD_STATE__SHARD_ACTIVE;
	if (ret == 0)
		ret = slots_join(&object->slots, s);
	place->joined = ret == 0;
	place->announced = place->joined ? place->state : 0;
	return ret ? error_prefix(ret, "table %s shard %u: ", object->desc.name, s) : 0;
}

/* -------- an object -------- */

static bool is_being_made(const struct catalog *cat, uint32_t id)
{
	for (const struct catalog_provisioning *provisioning = cat->provisionings; provisioning;
	     provisioning = provisioning->next)
		if (provisioning->object && provisioning->is_new &&
		    provisioning->object->desc.table_id == id)
			return true;
	return false;
}

static int free_id(struct catalog *cat, uint32_t *id_out)
{
	for (uint32_t i = 1; i <= TABLE_MAX_ID; i++) {
		uint32_t id = (cat->last_id + i - 1) % TABLE_MAX_ID + 1;

		if (!cat->objects[id] && !is_being_made(cat, id)) {
			*id_out = id;
			return 0;
		}
	}
	return error_set(-ENOSPC, "store: %u tables are the most", TABLE_MAX_ID);
}

static int reserve_lap(struct statedb *store, uint32_t table_id, uint32_t shard)
{
	uint64_t first = 0;
	int ret = statedb_lap(store, table_id, shard, &first);

	return ret ? ret : statedb_lap_raise(store, table_id, shard, first + CATALOG_LAPS);
}

/* Step 1: reserves the object's id and laps. */
static int reserve(struct catalog *cat, const struct catalog_object *object)
{
	const struct statedb_table stored = { .state = STORE_TABLE_CREATING, .desc = object->desc };
	int ret = statedb_begin(cat->store);

	if (ret)
		return ret;
	ret = statedb_number_put(cat->store, "last_table", object->desc.table_id);
	for (uint32_t s = 0; ret == 0 && s < object->desc.n_shards; s++)
		ret = reserve_lap(cat->store, object->desc.table_id, s);
	if (ret == 0)
		ret = statedb_table_put(cat->store, &stored);
	return statedb_end(cat->store, ret);
}

/* The part becomes the object's: its provisioning record is deleted. */
static int put_made(struct catalog *cat, const struct catalog_object *object, uint32_t s)
{
	int ret = catalog_object_put_part(cat->store, object, s);

	return ret ? ret
		   : statedb_making_delete(cat->store, object->parts[s].node->name,
					   object->desc.table_id, s);
}

/* Step 4. */
static int publish(struct catalog *cat, const struct catalog_object *object)
{
	int ret = statedb_begin(cat->store);

	if (ret)
		return ret;
	for (uint32_t s = 0; ret == 0 && s < object->n_parts; s++)
		ret = put_made(cat, object, s);
	if (ret == 0)
		ret = catalog_object_put(cat->store, object);
	return statedb_end(cat->store, ret);
}

/* Keeps the error message over the clean-up. Regions that cannot be freed now keep their
   provisioning record. */
static int give_up(struct catalog *cat, struct catalog_object *object, int code)
{
	char words[ERROR_TEXT_BYTES];

	memcpy(words, error_last(), sizeof(words));
	catalog_retire_object(cat, object);
	if (statedb_table_delete(cat->store, object->desc.table_id))
		log_warn("forget table %s: %s", object->desc.name, error_last());
	catalog_object_free(object);
	return error_set(code, "%s", words);
}

static int new_object(struct catalog *cat, const struct catalog_wish *wish,
		      struct catalog_object **object_out)
{
	struct catalog_object *object;
	struct table_desc desc;
	int ret = catalog_plan(cat, wish, &desc);

	if (ret == 0)
		ret = free_id(cat, &desc.table_id);
	if (ret)
		return ret;
	if (getrandom(desc.uuid, sizeof(desc.uuid), 0) != (ssize_t)sizeof(desc.uuid))
		return error_set(-EIO, "getrandom: %s", strerror(errno));
	table_desc_seal(&desc, 0);
	object = catalog_object_new(&desc);
	if (!object)
		return -ENOMEM;
	object->auto_shards = wish->auto_shards;
	object->n_parts = desc.n_shards;
	ret = reserve(cat, object);
	if (ret) {
		catalog_object_free(object);
		return ret;
	}
	*object_out = object;
	return 0;
}

static int begin_object(struct catalog *cat, const struct catalog_wish *wish,
			struct catalog_provisioning **provisioning_out)
{
	struct catalog_provisioning like = { .is_new = true };
	int ret = new_object(cat, wish, &like.object);

	if (ret)
		return ret;
	like.n = like.object->desc.n_shards;
	cat->last_id = like.object->desc.table_id;
	ret = catalog_provision_begin(cat, &like, provisioning_out);
	return ret ? give_up(cat, like.object, ret) : 0;
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
		ret = publish(cat, object);
	if (ret)
		return give_up(cat, object, ret);
	cat->objects[object->desc.table_id] = object;
	catalog_changed(cat, object);
	log_info("create table %s id %u shards %u", object->desc.name, object->desc.table_id,
		 object->desc.n_shards);
	*object_out = object;
	return 0;
}

int catalog_create(struct catalog *cat, const struct catalog_wish *wish,
		   struct catalog_object **object_out)
{
	struct catalog_provisioning *provisioning;
	struct catalog_object *object;
	int ret = table_desc_check(&wish->desc);

	if (ret)
		return ret;
	object = catalog_find(cat, wish->desc.name);
	if (object && !catalog_is_wish_of(object, wish))
		return error_set(-EEXIST, "table %s exists with another signature or options",
				 wish->desc.name);
	if (object) {
		*object_out = object;
		return 0;
	}
	provisioning = catalog_provision_named(cat, wish->desc.name);
	if (!provisioning)
		ret = begin_object(cat, wish, &provisioning);
	return ret ? ret : go_on_with_object(cat, provisioning, object_out);
}

/* -------- one more part -------- */

static int begin_part(struct catalog *cat, const struct catalog_provisioning *like,
		      struct catalog_provisioning **provisioning_out)
{
	const struct catalog_object *object = like->object;
	int ret;

	if (object->n_parts == TABLE_MAX_SHARDS)
		return error_set(-ENOSPC, "table %s: all %u shard numbers of its life are used",
				 object->desc.name, TABLE_MAX_SHARDS);
	ret = reserve_lap(cat->store, object->desc.table_id, object->n_parts);
	return ret ? ret : catalog_provision_begin(cat, like, provisioning_out);
}

static int publish_part(struct catalog *cat, const struct catalog_object *object, uint32_t s)
{
	int ret = statedb_begin(cat->store);

	return ret ? ret : statedb_end(cat->store, put_made(cat, object, s));
}

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
		ret = publish_part(cat, object, s);
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
	log_info("add shard %u of table %s at node %s", s, object->desc.name,
		 object->parts[s].node->name);
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
	int ret = provisioning ? 0 : begin_part(cat, &like, &provisioning);

	return ret ? ret : go_on_with_part(cat, provisioning);
}

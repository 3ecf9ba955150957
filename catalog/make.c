#include "catalog/catalog.h"

#include <errno.h>
#include <string.h>

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/log.h"
#include "base/os/random.h"

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
	return object->kind->reserve ? object->kind->reserve(cat, object, s, NULL) : 0;
}

/*
 * Steps 2 to 4 of creating an object (catalog.h): makes the parts, then stores them as the object's
 * and deletes their provisioning records. The provisioning has ended, unless the result is -EAGAIN.
 */
static int make_parts(struct catalog *cat, struct catalog_provisioning *provisioning)
{
	const struct catalog_object *object = provisioning->object;
	uint32_t first = provisioning->first, end = first + provisioning->n;
	bool is_new = provisioning->is_new;
	int ret = catalog_provision_run(provisioning);

	if (ret == -EAGAIN)
		return ret;
	catalog_provision_end(provisioning);
	if (ret == 0)
		ret = store_begin(cat->store);
	if (ret)
		return ret;
	for (uint32_t s = first; ret == 0 && s < end; s++) {
		struct store_making made = { .object = object->id, .part = s };

		memcpy(made.node, object->parts[s].node->name, sizeof(made.node));
		ret = catalog_object_put_part(cat->store, object, s);
		if (ret == 0)
			ret = store_delete(cat->store, STORE_MAKINGS, &made, 3);
	}
	if (ret == 0 && is_new)
		ret = catalog_object_put(cat->store, object, STORE_OBJECT_LIVE);
	return store_end(cat->store, ret);
}

/*
 * Gives up an object that could not be created: retires its parts, deletes it from the store and
 * frees it. Returns code; its error message is kept. Regions that cannot be freed now keep their
 * provisioning record.
 */
static int give_up(struct catalog *cat, struct catalog_object *object, int code)
{
	struct error_kept kept;

	error_keep(&kept);
	catalog_retire_object(cat, object);
	if (store_object_delete(cat->store, object->id))
		log_warn("forget %s: %s", object->text, error_last());
	catalog_object_free(object);
	error_restore(&kept);
	return code;
}

/*
 * Step 1 of creating an object (catalog.h): stores it as CREATING, with a new id and what its kind
 * reserves for each part, and begins its provisioning.
 */
static int begin_object(struct catalog *cat, const struct catalog_wish *wish,
			struct catalog_provisioning **provisioning_out)
{
	struct catalog_provisioning like = { .is_new = true };
	struct catalog_object *object;
	struct object_desc desc;
	struct object_ids ids;
	int ret = free_id(cat, &ids.id);

	if (ret)
		return ret;
	memcpy(ids.uuid, wish->uuid, sizeof(ids.uuid));
	if (!wish->loader)
		ret = random_fill(ids.uuid, sizeof(ids.uuid));
	if (ret)
		return ret;
	ret = wish->kind->describe(cat, wish, &ids, &desc);
	if (ret)
		return ret;
	ret = catalog_object_new(wish->kind, ids.id, desc.bytes, desc.len, &object);
	mem_free(desc.bytes);
	if (ret)
		return ret;
	object->auto_parts = wish->auto_parts;
	object->loader = wish->loader;
	object->slots.sole = cat->sole;
	object->n_parts = object->n_cut;
	ret = store_begin(cat->store);
	if (ret == 0) {
		ret = store_number_put(cat->store, "last_table", object->id);
		for (uint32_t s = 0; ret == 0 && s < object->n_cut; s++)
			ret = reserve_part(cat, object, s);
		if (ret == 0)
			ret = catalog_object_put(cat->store, object, STORE_OBJECT_CREATING);
		if (ret == 0 && object->loader)
			ret = store_loader_put(cat->store, object->id, object->loader);
		ret = store_end(cat->store, ret);
	}
	if (ret) {
		catalog_object_free(object);
		return ret;
	}
	cat->last_id = ids.id;
	like.object = object;
	like.n = object->n_cut;
	ret = catalog_provision_begin(cat, &like, provisioning_out);
	return ret ? give_up(cat, object, ret) : 0;
}

/* The wish finds an object of its name, or one that is being made. */
static int check_wish(const struct catalog *cat, const struct catalog_object *object,
		      const struct catalog_wish *wish)
{
	if (object->loader && wish->loader &&
	    memcmp(object->uuid, wish->uuid, sizeof(object->uuid)) == 0)
		return 0; /* that load asks again */
	if (object->loader)
		return catalog_check_loaded(cat, object);
	if (wish->beside)
		return error_set(-EBUSY, "%s is being made: load it again", object->text);
	if (wish->loader)
		return error_set(-EEXIST, "%s exists", object->text);
	if (object->kind != wish->kind || !object->kind->is_wish_of(object, wish))
		return error_set(-EEXIST, "%s exists with another signature or options",
				 object->text);
	return 0;
}

/*
 * *object_out: the object that the wish finds, or NULL: it makes one. *earlier_out: one that is there, which
 * that replaces, or NULL. -EEXIST: it is of another kind.
 */
static int find_wished(const struct catalog *cat, const struct catalog_wish *wish,
		       struct catalog_object **object_out, struct catalog_object **earlier_out)
{
	struct catalog_object *found = catalog_find(cat, wish->name);

	*object_out = found;
	*earlier_out = NULL;
	if (!wish->beside || !found || found->loader)
		return 0;
	if (found->kind != wish->kind)
		return error_set(-EEXIST, "%s exists", found->text);
	*earlier_out = found;
	*object_out = NULL;
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		if (cat->objects[id] && cat->objects[id]->loader &&
		    strcmp(cat->objects[id]->name, wish->name) == 0)
			*object_out = cat->objects[id];
	return 0;
}

/* An error of making an object beside one that it is to replace. */
static int told_beside(int code, const struct catalog_object *earlier)
{
	if (code != -ENOSPC || !earlier)
		return code;
	return error_prefix(code,
			    "%s stays until the new one is loaded, so both need room: drop it "
			    "first, or add memory: ",
			    earlier->text);
}

int catalog_create(struct catalog *cat, const struct catalog_wish *wish,
		   struct catalog_object **object_out)
{
	struct catalog_provisioning *provisioning = catalog_provision_of_new(cat, 0, wish->name);
	struct catalog_object *object, *earlier;
	int ret = find_wished(cat, wish, &object, &earlier);

	if (ret)
		return ret;
	if (object) {
		*object_out = object;
		return check_wish(cat, object, wish);
	}
	ret = provisioning ? check_wish(cat, provisioning->object, wish)
			   : begin_object(cat, wish, &provisioning);
	if (ret)
		return told_beside(ret, earlier);
	object = provisioning->object;
	ret = make_parts(cat, provisioning);
	if (ret)
		return ret == -EAGAIN ? ret : told_beside(give_up(cat, object, ret), earlier);
	cat->objects[object->id] = object;
	catalog_changed(cat, object);
	log_info("create %s id %u shards %u", object->text, object->id, object->n_cut);
	*object_out = object;
	return 0;
}

/* -------- one more part -------- */

int catalog_add_part(struct catalog *cat, struct catalog_object *object, struct node *node,
		     struct node *leaves)
{
	uint32_t next = object->kind->missing ? object->kind->missing(object) : object->n_parts;
	const struct catalog_provisioning like = {
		.object = object,
		.first = next,
		.n = 1,
		.only = node,
		.leaves = leaves,
	};
	struct catalog_provisioning *provisioning = catalog_provision_of(cat, object);
	uint32_t s = provisioning ? provisioning->first : next;
	struct error_kept kept;
	int ret = 0;

	if (s >= OBJECT_MAX_PARTS)
		return error_set(-ENOSPC, "%s: all %u shard numbers of its life are used",
				 object->text, OBJECT_MAX_PARTS);
	for (uint32_t i = object->n_parts; i < s; i++)
		object->parts[i].state = PART_LOST; /* numbers that are passed over */
	if (!provisioning) {
		ret = reserve_part(cat, object, s);
		if (ret == 0)
			ret = catalog_provision_begin(cat, &like, &provisioning);
	}
	if (ret)
		return ret;
	ret = make_parts(cat, provisioning);
	if (ret == -EAGAIN)
		return ret;
	if (ret) {
		error_keep(&kept);
		catalog_retire_part(cat, object, s, REGION_DROPPED);
		object->parts[s] = (struct catalog_part){ .state = 0 };
		object->slots.n_parts = object->n_parts;
		error_restore(&kept);
		return ret;
	}
	object->n_parts = s + 1;
	object->parts[s].since = clock_now_ns(cat->clock);
	catalog_changed(cat, object);
	log_info("add shard %u of %s at node %s", s, object->text, object->parts[s].node->name);
	return 0;
}

/* -------- drop -------- */

/*
 * Deletes the object from the store, within a transaction. Its regions are given up, those of lost parts and
 * of parts being provisioned too: once the object is deleted nothing else records them.
 */
static int drop_records(struct catalog *cat, const struct catalog_object *object)
{
	int ret = 0;

	for (uint32_t s = 0; s < OBJECT_MAX_PARTS; s++)
		for (uint32_t role = REGION_TREE; ret == 0 && role < REGION_ROLES; role++) {
			const struct catalog_part *place = &object->parts[s];
			struct store_leftover left = { .region = place->ids[role] };

			if (left.region == 0 || !place->node)
				continue;
			memcpy(left.node, place->node->name, sizeof(left.node));
			part_region_uuid(object->uuid, s, role, left.uuid);
			ret = store_put(cat->store, STORE_LEFTOVERS, &left);
		}
	return ret ? ret : store_object_delete(cat->store, object->id);
}

/* Retires and frees an object that was deleted from the store. */
static void drop_rest(struct catalog *cat, struct catalog_object *object)
{
	struct catalog_provisioning *provisioning = catalog_provision_of(cat, object);

	if (provisioning) {
		catalog_retire_part(cat, object, provisioning->first, REGION_DROPPED);
		catalog_provision_abandon(provisioning);
	}
	catalog_retire_object(cat, object);
	log_info("drop %s id %u", object->text, object->id);
	catalog_object_free(object);
}

int catalog_drop(struct catalog *cat, struct catalog_object *object)
{
	int ret;

	if (object->kind->drop)
		object->kind->drop(cat, object);
	ret = store_begin(cat->store);
	if (ret == 0)
		ret = store_end(cat->store, drop_records(cat, object));
	if (ret)
		return ret;
	cat->objects[object->id] = NULL;
	drop_rest(cat, object);
	return 0;
}

/* -------- load -------- */

int catalog_check_loaded(const struct catalog *cat, const struct catalog_object *object)
{
	if (!object->loader)
		return 0;
	if (object->slots.sole)
		return error_set(-EBUSY, "%s is being loaded by this process: wait for that load",
				 object->text);
	return error_set(-EBUSY, "%s is being loaded by client %llu: wait for that load, or end %s",
			 object->text, (unsigned long long)object->loader,
			 catalog_find(cat, object->name) == object ? "it (relive table drop)"
								   : "that client");
}

int catalog_abandon(struct catalog *cat, struct catalog_object *object)
{
	if (!object->loader)
		return error_set(-EALREADY, "%s: its load was committed", object->text);
	return catalog_drop(cat, object);
}

static int set_loaded(struct catalog_object *object, uint64_t replaces)
{
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < object->n_parts; s++)
		if (object->parts[s].state != PART_GONE && !object->attached[s])
			ret = error_set(-EHOSTDOWN, "%s: %s %u is away", object->text,
					object->kind->part, s);
	for (uint32_t s = 0; ret == 0 && s < object->n_parts; s++)
		if (object->attached[s])
			ret = part_set_loaded(object->attached[s], replaces);
	return ret;
}

int catalog_commit(struct catalog *cat, struct catalog_object *object,
		   struct catalog_object **replaced_out)
{
	struct catalog_object *earlier = catalog_find(cat, object->name);
	uint64_t loader = object->loader;
	int ret;

	*replaced_out = NULL;
	if (!loader)
		return 0;
	if (earlier == object)
		earlier = NULL;
	ret = set_loaded(object, earlier ? region_replaces(earlier->uuid) : 0);
	if (ret)
		return ret;
	if (earlier && earlier->kind->drop)
		earlier->kind->drop(cat, earlier);
	object->loader = 0;
	ret = store_begin(cat->store);
	if (ret == 0) {
		ret = earlier ? drop_records(cat, earlier) : 0;
		if (ret == 0)
			ret = catalog_object_put(cat->store, object, STORE_OBJECT_LIVE);
		if (ret == 0)
			ret = store_loader_put(cat->store, object->id, 0);
		ret = store_end(cat->store, ret);
	}
	if (ret) {
		object->loader = loader;
		return ret;
	}
	if (earlier)
		cat->objects[earlier->id] = NULL;
	*replaced_out = earlier;
	log_info("loaded %s id %u%s", object->text, object->id,
		 earlier ? ", replacing the one of that name" : "");
	return 0;
}

void catalog_commit_end(struct catalog *cat, struct catalog_object *object,
			struct catalog_object *replaced)
{
	if (!replaced)
		return;
	drop_rest(cat, replaced);
	/* A word that stays says nothing once that one is gone. */
	if (set_loaded(object, 0))
		log_warn("%s: %s", object->text, error_last());
}

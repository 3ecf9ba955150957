/*
 * adopt.c - nodes whose pools hold regions unknown to the catalog. Such a node is refused; if an
 * operator so decides, objects that are whole are adopted and the other regions are given up.
 *
 * An object that was loaded to replace another one of the pool, by the loading words of its parts
 * (wire/region.h), is adopted in place of that one, which is given up.
 *
 * An object is whole if all regions of each of its parts in the pool are sound, and either the
 * catalog knows the object or the pool has all parts that its capacity is cut into. An object keeps
 * its id, which is part of its item keys and regions: one whose id is in use is not adopted. Regions
 * of a kind that this server does not know are never adopted.
 */
#include "server/catalog/arrival.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "catalog/kind_table.h"

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#define WORDS_BYTES 160

/* An arrival, and the decision for each of its regions and objects. */
struct survey {
	struct catalog *cat;
	const struct catalog_arrival *arrival;
	uint8_t *owners; /* enum region_owner, by region */
	uint32_t n_unknown;
	struct catalog_object *fresh[OBJECT_MAX_ID + 1]; /* to adopt, new to the catalog; by id */
};

static bool may_discard(const struct catalog_arrival *arrival)
{
	return arrival->claim & RELIVE__POOL_CLAIM__POOL_DISCARD;
}

/* -------- words -------- */

static const char *uuid_text(const uint8_t uuid[16], char text[33])
{
	for (size_t i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", uuid[i]);
	return text;
}

static const char *kind_name(uint32_t id)
{
	const struct object_kind *kind = object_kind_find(id);

	return kind ? kind->name : "object";
}

/* Name of the object that region i, if it is an unknown tree region, belongs to; else, or if the
   node reports no name, NULL. */
static const char *name_at(const struct survey *survey, size_t i)
{
	const Relive__NodeRegion *region = survey->arrival->regions[i];

	return survey->owners[i] == OWNER_UNKNOWN && region->has ? region->has->name : NULL;
}

static bool was_named(const struct survey *survey, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (name_at(survey, j) && strcmp(name_at(survey, j), name_at(survey, i)) == 0)
			return true;
	return false;
}

/* Writes the names of the unknown objects to words, as "tables a, b, c and more", or the number of
   unknown regions if none has a name. Returns words. */
static const char *name_unknown(const struct survey *survey, char words[WORDS_BYTES])
{
	size_t len = 0, room = WORDS_BYTES - sizeof(" and more");
	uint32_t last = 0;

	for (size_t i = 0; i < survey->arrival->n_regions; i++) {
		const char *name = name_at(survey, i), *kind;
		bool same;

		if (!name || was_named(survey, i))
			continue;
		kind = kind_name(survey->arrival->regions[i]->kind);
		same = last == survey->arrival->regions[i]->kind;
		if (len + strlen(name) + strlen(kind) + sizeof(", s ") > room) {
			memcpy(words + len, " and more", sizeof(" and more"));
			return words;
		}
		len += (size_t)snprintf(words + len, room - len, "%s%s%s%s", len ? ", " : "",
					same ? "" : kind, same ? "" : "s ", name);
		last = survey->arrival->regions[i]->kind;
	}
	if (len == 0)
		snprintf(words, WORDS_BYTES, "%u regions of no object", survey->n_unknown);
	return words;
}

static int refuse_unknown(const struct survey *survey)
{
	const struct catalog *cat = survey->cat;
	char words[WORDS_BYTES], uuid[33];

	return error_set(
		-EPERM,
		"memory node %s: its pool holds %s, which the catalog of store %s (%s) does "
		"not know: nothing was changed; put the catalog back that knows them "
		"(relive restore)%s",
		survey->arrival->news->name, name_unknown(survey, words), cat->name,
		uuid_text(cat->ids.uuid, uuid),
		survey->arrival->news->persistent ? ", or take them in by --adopt" : "");
}

/* -EPERM: the pool belongs to another store. One of our name is the same store to an operator, with
   another catalog: the message then advises to restore that. */
static int refuse_foreign(const struct survey *survey)
{
	const struct catalog *cat = survey->cat;
	const struct catalog_arrival *arrival = survey->arrival;
	bool same_name = strcmp(arrival->store_name, cat->name) == 0;
	char words[WORDS_BYTES], theirs[33], ours[33];

	return error_set(-EPERM,
			 "memory node %s: its pool belongs to store %s (%s), not to store %s (%s), "
			 "and holds %s: nothing was changed; %s, or take it over by --adopt",
			 arrival->news->name, arrival->store_name,
			 uuid_text(arrival->store_uuid, theirs), cat->name,
			 uuid_text(cat->ids.uuid, ours),
			 survey->n_unknown ? name_unknown(survey, words) : "nothing",
			 same_name ? "put back the catalog that knows it (relive restore)"
				   : "start it for the store that it belongs to");
}

/* -------- one object of the pool -------- */

struct adoptee {
	struct survey *survey;
	uint32_t kind, id;
	const struct object_kind *hooks;    /* NULL: unknown kind */
	struct catalog_object *object;      /* as its first whole part describes it; NULL = none */
	const struct catalog_object *known; /* the same object in the catalog, or NULL */
	uint32_t whole;                     /* number of whole parts */
	uint64_t duty;                      /* greatest duty word of these: the control part's */
	uint64_t replaces;                  /* region_replaces() of another object; 0 = none */
	bool unfinished;                    /* a load of it did not end: it is never adopted */
	char flaw[WORDS_BYTES]; /* flaw of the first part that is not whole; "" = none */
};

static bool is_unknown_of(const struct adoptee *of, size_t i)
{
	const Relive__NodeRegion *region = of->survey->arrival->regions[i];

	return of->survey->owners[i] == OWNER_UNKNOWN && region->kind == of->kind &&
	       region->object == of->id;
}

/* Takes the descriptor of the tree's part: the first one makes of->object, later ones must equal
   it. -EPROTO: it is flawed, missing or different, or of a kind that cannot be adopted. */
static int take_desc(struct adoptee *of, const Relive__NodeRegion *tree)
{
	struct object_desc desc;
	int ret;

	if (!of->hooks || !of->hooks->desc_of_part)
		return error_set(-EPROTO, "this server does not adopt objects of kind %u",
				 of->kind);
	if (tree->flaw[0])
		return error_set(-EPROTO, "%s", tree->flaw);
	if (!tree->has || tree->has->n_told != PART_TOLD)
		return error_set(-EPROTO, "it has no descriptor");
	ret = of->hooks->desc_of_part(tree->has->desc.data, tree->has->desc.len, tree->part, &desc);
	if (ret)
		return ret;
	if (!of->object)
		ret = catalog_object_new(of->hooks, of->id, desc.bytes, desc.len, &of->object);
	else if (of->object->desc_len != desc.len ||
		 memcmp(of->object->desc, desc.bytes, desc.len) != 0)
		ret = error_set(-EPROTO, "its descriptor is of another %s", of->hooks->name);
	mem_free(desc.bytes);
	return ret;
}

/* Checks that the tree's part has all its regions, sound and of the same object (-ENOENT, -EPROTO),
   and that no process has one mapped (-EBUSY). */
static int check_part(struct adoptee *of, const Relive__NodeRegion *tree)
{
	static const char *const words[REGION_ROLES] = { "", "tree", "rows", "slots", "pages" };
	struct part_spec spec;
	int ret = tree->part < OBJECT_MAX_PARTS ? take_desc(of, tree) : -EPROTO;

	if (ret)
		return ret;
	of->hooks->plan(of->object, tree->part, &spec);
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++) {
		const Relive__NodeRegion *region =
			catalog_regions_find(of->survey->arrival, tree, role);
		uint8_t uuid[16];

		if (!region)
			return error_set(-ENOENT, "its %s are missing", words[role]);
		if (region->flaw[0])
			return error_set(-EPROTO, "its %s: %s", words[role], region->flaw);
		part_region_uuid(of->object->uuid, tree->part, role, uuid);
		if (region->uuid.len != 16 || memcmp(region->uuid.data, uuid, 16) != 0 ||
		    spec.bytes[role] > region->size)
			return error_set(-EPROTO, "its %s: of another %s", words[role],
					 of->hooks->name);
		if (!region->sole)
			return error_set(-EBUSY, "a process has it mapped: end that process first");
	}
	return 0;
}

static const char *part_word(const struct adoptee *of)
{
	return of->hooks ? of->hooks->part : "part";
}

/* Counts the whole parts of the object in the pool, and finds its control part and of->known. The
   first part that is not whole sets of->flaw; so do regions of a part without a tree region. */
static void look_at_object(struct adoptee *of)
{
	const struct catalog_arrival *arrival = of->survey->arrival;
	uint32_t trees = 0, others = 0;

	for (size_t i = 0; i < arrival->n_regions; i++) {
		const Relive__NodeRegion *tree = arrival->regions[i];

		if (!is_unknown_of(of, i))
			continue;
		of->unfinished |= !region_is_loaded(tree->loading);
		trees += tree->role == REGION_TREE;
		others += tree->role != REGION_TREE;
		if (tree->role != REGION_TREE)
			continue;
		if (check_part(of, tree)) {
			if (!of->flaw[0])
				snprintf(of->flaw, sizeof(of->flaw), "%s %u: %s", part_word(of),
					 tree->part, error_last());
			continue;
		}
		of->replaces |= catalog_regions_find(arrival, tree, REGION_SLOTS)->loading;
		if (of->whole++ == 0 || tree->has->told[PART_TOLD_DUTY] > of->duty) {
			of->duty = tree->has->told[PART_TOLD_DUTY];
			of->object->control = tree->part;
		}
	}
	if (of->object)
		of->known = catalog_find_same(of->survey->cat, of->id, of->object->uuid,
					      sizeof(of->object->uuid));
	if (trees * (REGION_ROLES - 2) != others && !of->flaw[0])
		snprintf(of->flaw, sizeof(of->flaw), "%u trees and %u other regions", trees,
			 others);
}

/* -------- adoption checks -------- */

static int clashes(const struct adoptee *of, const char *what)
{
	return error_set(-EEXIST,
			 "memory node %s: adopt %s of its pool: %s: nothing was changed; adopt it "
			 "into a store of its own (relive up --store NAME --file POOL --adopt)",
			 of->survey->arrival->news->name, of->object->text, what);
}

/* -EEXIST if another object, in the catalog, in the pool or just being created, has the id or name
   of of->object. */
static int check_clash(const struct adoptee *of)
{
	const struct catalog *cat = of->survey->cat;
	const struct catalog_object *by_id = cat->objects[of->id];
	const struct catalog_object *by_name = catalog_find(cat, of->object->name);
	char what[WORDS_BYTES];

	if (by_name && by_name != of->known) {
		snprintf(what, sizeof(what), "the store has another %s of that name",
			 by_name->kind->name);
		return clashes(of, what);
	}
	if (by_id && by_id != of->known) {
		snprintf(what, sizeof(what), "its number in the keys of items, %u, is %s's", of->id,
			 by_id->text);
		return clashes(of, what);
	}
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		const struct catalog_object *fresh = of->survey->fresh[id];

		if (fresh && (id == of->id || strcmp(fresh->name, of->object->name) == 0))
			return clashes(of, "the pool has two of that name or number");
	}
	if (catalog_provision_of_new(cat, of->id, of->object->name))
		return clashes(of, "one of that name or number is being made");
	return 0;
}

/* True if the object can be adopted: it has no flaw, no part of it is at another place, and, if the
   catalog does not know it, all its parts are here. Else of->flaw says why. */
static bool is_whole(struct adoptee *of)
{
	const struct catalog_object *known = of->known;

	/* A part is at one node: a second one of the same number is a copy of the pool, or is
	   copied. */
	for (size_t i = 0; known && !of->flaw[0] && i < of->survey->arrival->n_regions; i++) {
		uint32_t s = of->survey->arrival->regions[i]->part;

		if (is_unknown_of(of, i) && s < known->n_parts && !catalog_part_is_lost(known, s))
			snprintf(of->flaw, sizeof(of->flaw), "%s %u is at node %s", part_word(of),
				 s, known->parts[s].node->name);
	}
	if (!known && !of->flaw[0] && (!of->object || of->whole < of->object->n_cut))
		snprintf(of->flaw, sizeof(of->flaw), "only %u of its %u %ss are here", of->whole,
			 of->object ? of->object->n_cut : 0, part_word(of));
	return !of->flaw[0];
}

static int refuse_object(const struct adoptee *of)
{
	const struct catalog_arrival *arrival = of->survey->arrival;
	const char *name = NULL;

	for (size_t i = 0; !name && i < arrival->n_regions; i++)
		name = is_unknown_of(of, i) ? name_at(of->survey, i) : NULL;
	return error_set(-EPERM,
			 "memory node %s: adopt %s %s (id %u) of its pool: it is not whole: %s: "
			 "nothing was changed; put back the catalog that knows it (relive restore)",
			 arrival->news->name, kind_name(of->kind), name ? name : "?", of->id,
			 of->flaw);
}

/* Marks the object's regions OWNER_ADOPTED if it is whole. If not: -EPERM, or with the claim
   "discard" they stay OWNER_UNKNOWN. Errors of check_clash. */
static int plan_object(struct adoptee *of)
{
	int ret;

	look_at_object(of);
	/* An unfinished one may have the name of the table that it was to replace. */
	ret = of->object && of->whole && !of->unfinished ? check_clash(of) : 0;
	if (ret == 0 && is_whole(of)) {
		for (size_t i = 0; i < of->survey->arrival->n_regions; i++)
			if (is_unknown_of(of, i))
				of->survey->owners[i] = OWNER_ADOPTED;
		if (!of->known) {
			of->survey->fresh[of->id] = of->object;
			of->object = NULL;
		}
	} else if (ret == 0 && !may_discard(of->survey->arrival)) {
		ret = refuse_object(of);
	}
	catalog_object_free(of->object);
	return ret;
}

/* Gives up the regions of an object that this one, if it is whole, was loaded to replace. */
static int plan_replaced(struct adoptee *of)
{
	const struct catalog_arrival *arrival = of->survey->arrival;

	bool replaces;

	look_at_object(of);
	replaces = of->replaces && is_whole(of);
	for (size_t i = 0; replaces && i < arrival->n_regions; i++) {
		const Relive__NodeRegion *region = arrival->regions[i];

		/* The uuid of a region begins as that of its object (part_region_uuid). */
		if (of->survey->owners[i] == OWNER_UNKNOWN && region->uuid.len == 16 &&
		    region_replaces(region->uuid.data) == of->replaces)
			of->survey->owners[i] = OWNER_NONE;
	}
	catalog_object_free(of->object);
	return 0;
}

/* Calls plan for each object that has unknown regions. */
static int plan_each(struct survey *survey, int (*plan)(struct adoptee *of))
{
	const struct catalog_arrival *arrival = survey->arrival;
	int ret = 0;

	/* The first region that is unknown still stands for its object. */
	for (size_t i = 0; ret == 0 && i < arrival->n_regions; i++) {
		const Relive__NodeRegion *region = arrival->regions[i];
		struct adoptee of = {
			.survey = survey,
			.kind = region->kind,
			.id = region->object,
			.hooks = object_kind_find(region->kind),
		};
		bool is_first = true;

		for (size_t j = 0; j < i; j++)
			is_first &= !is_unknown_of(&of, j);
		if (is_first && is_unknown_of(&of, i) && of.id && of.id <= OBJECT_MAX_ID)
			ret = plan(&of);
	}
	return ret;
}

static int adopt_plan(struct survey *survey)
{
	const struct catalog_arrival *arrival = survey->arrival;
	int ret = plan_each(survey, plan_replaced);

	if (ret == 0)
		ret = plan_each(survey, plan_object);
	if (ret || may_discard(arrival))
		return ret;
	for (size_t i = 0; i < arrival->n_regions; i++)
		if (survey->owners[i] == OWNER_UNKNOWN)
			return error_set(-EPERM,
					 "memory node %s: adopt its pool: region %u is of no "
					 "object: nothing was changed",
					 arrival->news->name, arrival->regions[i]->region);
	return 0;
}

/* -------- taking in -------- */

static bool is_adopted_tree(const struct survey *survey, size_t i)
{
	return survey->owners[i] == OWNER_ADOPTED &&
	       survey->arrival->regions[i]->role == REGION_TREE;
}

/* The record of an adopted part. The node's incarnation is stored as 0, unknown, so that recovery
   checks all rows of the part. */
static struct store_part adopted_part(const struct survey *survey, const Relive__NodeRegion *tree)
{
	struct store_part stored = {
		.kind = tree->kind,
		.object = tree->object,
		.part = tree->part,
		.state = PART_ACTIVE,
	};

	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		stored.regions[role] = catalog_regions_find(survey->arrival, tree, role)->region;
	memcpy(stored.node, survey->arrival->node->name, sizeof(stored.node));
	return stored;
}

static int put_part(const struct survey *survey, const Relive__NodeRegion *tree)
{
	struct catalog *cat = survey->cat;
	const struct catalog_object *fresh = survey->fresh[tree->object];
	const struct catalog_object *object = fresh ? fresh : cat->objects[tree->object];
	struct store_part stored = adopted_part(survey, tree);
	int ret = store_put(cat->store, STORE_PARTS, &stored);

	if (ret == 0 && object->kind->reserve)
		ret = object->kind->reserve(cat, object, tree->part, tree->has->told);
	return ret;
}

static void adopt_publish(struct survey *survey)
{
	struct catalog *cat = survey->cat;

	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		if (survey->fresh[id])
			cat->objects[id] = survey->fresh[id];
	for (size_t i = 0; i < survey->arrival->n_regions; i++) {
		const Relive__NodeRegion *tree = survey->arrival->regions[i];
		struct catalog_object *object;
		struct store_part stored;

		if (!is_adopted_tree(survey, i))
			continue;
		object = cat->objects[tree->object];
		stored = adopted_part(survey, tree);
		catalog_part_enter(cat, object, &stored);
		log_info("adopt %s %s %u from node %s", object->text, object->kind->part,
			 tree->part, stored.node);
	}
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		if (survey->fresh[id])
			catalog_changed(cat, survey->fresh[id]);
		survey->fresh[id] = NULL; /* the catalog's from here on */
	}
}

/* -------- leftover regions -------- */

/* Rewrites the store's leftover records of the node: one for each reported region that is given up
   or unknown. Deletes its provisioning records, unless one is in use. */
static int put_leftovers(const struct survey *survey)
{
	const struct node *node = survey->arrival->node;
	struct catalog *cat = survey->cat;
	struct store_leftover all = { .region = 0 };
	struct store_making making = { .kind = 0 };
	int ret;

	memcpy(all.node, node->name, sizeof(all.node));
	memcpy(making.node, node->name, sizeof(making.node));
	ret = store_delete(cat->store, STORE_LEFTOVERS, &all, 1);
	if (ret == 0 && !catalog_provision_owns(cat, node, 0))
		ret = store_delete(cat->store, STORE_MAKINGS, &making, 1);
	for (size_t i = 0; ret == 0 && i < survey->arrival->n_regions; i++) {
		const Relive__NodeRegion *region = survey->arrival->regions[i];
		struct store_leftover left = all;

		if (survey->owners[i] != OWNER_NONE && survey->owners[i] != OWNER_UNKNOWN)
			continue;
		if (survey->owners[i] == OWNER_UNKNOWN)
			log_info("discard region %u of node %s, of %s %s", region->region,
				 node->name, kind_name(region->kind),
				 region->has ? region->has->name : "?");
		left.region = region->region;
		if (region->uuid.len == sizeof(left.uuid))
			memcpy(left.uuid, region->uuid.data, sizeof(left.uuid));
		ret = store_put(cat->store, STORE_LEFTOVERS, &left);
	}
	return ret;
}

static int adopt_take(struct survey *survey)
{
	struct catalog_store *store = survey->cat->store;
	int ret = store_begin(store);

	if (ret)
		return ret;
	survey->arrival->node->kept = false;
	for (uint32_t id = 1; ret == 0 && id <= OBJECT_MAX_ID; id++)
		if (survey->fresh[id])
			ret = catalog_object_put(store, survey->fresh[id], STORE_OBJECT_LIVE);
	for (size_t i = 0; ret == 0 && i < survey->arrival->n_regions; i++)
		if (is_adopted_tree(survey, i))
			ret = put_part(survey, survey->arrival->regions[i]);
	if (ret == 0)
		ret = put_leftovers(survey);
	ret = store_end(store, ret);
	if (ret == 0)
		adopt_publish(survey);
	return ret;
}

/* -------- admission and taking in -------- */

static int adopt(struct catalog *cat, const struct catalog_arrival *arrival, bool takes)
{
	struct survey survey = { .cat = cat, .arrival = arrival };
	int ret = 0;

	survey.owners = mem_array(arrival->n_regions + 1, 1);
	if (!survey.owners)
		return error_set(-ENOMEM, "node %s: cannot allocate memory", arrival->news->name);
	for (size_t i = 0; ret == 0 && i < arrival->n_regions; i++) {
		enum region_owner owner = OWNER_UNKNOWN;

		ret = catalog_region_owner(cat, arrival, i, &owner);
		survey.owners[i] = (uint8_t)owner;
		survey.n_unknown += owner == OWNER_UNKNOWN;
	}
	/* An empty pool of a store with our name is not foreign: a catalog that was not kept took
	   it. */
	if (ret == 0 && !arrival->claim && !bits_all_zero(arrival->store_uuid, 16) &&
	    memcmp(arrival->store_uuid, cat->ids.uuid, 16) != 0 &&
	    (arrival->n_regions || strcmp(arrival->store_name, cat->name) != 0))
		ret = refuse_foreign(&survey);
	else if (ret == 0 && arrival->claim & RELIVE__POOL_CLAIM__POOL_ADOPT)
		ret = adopt_plan(&survey);
	else if (ret == 0 && survey.n_unknown && !may_discard(arrival))
		ret = refuse_unknown(&survey);
	if (ret == 0 && takes)
		ret = adopt_take(&survey);
	mem_free(survey.owners);
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		catalog_object_free(survey.fresh[id]);
	return ret;
}

int catalog_admit(struct catalog *cat, const struct catalog_arrival *arrival)
{
	const struct node_news *news = arrival->news;
	const struct node *node = arrival->node;
	uint32_t shards = node && node->persistent ? catalog_parts_of(cat, node, NULL) : 0;
	char theirs[33], ours[33];

	/* Joining with another pool would lose the shards in the node's known pool. An operator
	   may allow it. */
	if (shards == 0 || arrival->claim || bits_all_zero(node->pool, sizeof(node->pool)) ||
	    memcmp(node->pool, news->pool, sizeof(news->pool)) == 0)
		return adopt(cat, arrival, false);
	if (!news->persistent)
		return error_set(-EPERM,
				 "memory node %s: %u shards of store %s are in its pool %s, "
				 "on a file or device: start it with that one (--file)",
				 news->name, shards, cat->name, uuid_text(node->pool, ours));
	return error_set(-EPERM,
			 "memory node %s: %u shards of store %s are in its pool %s, and "
			 "this is another pool, %s: start it with that one, or this one under "
			 "another node name",
			 news->name, shards, cat->name, uuid_text(node->pool, ours),
			 uuid_text(news->pool, theirs));
}

int catalog_take(struct catalog *cat, const struct catalog_arrival *arrival)
{
	return adopt(cat, arrival, true);
}

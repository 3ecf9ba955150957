/*
 * adopt.c - nodes whose pools hold regions unknown to the catalog. Such a node is refused; if an
 * operator so decides, tables that are whole are adopted and the other regions are given up.
 *
 * A table is whole if all regions of each of its shards in the pool are sound, and either the
 * catalog knows the table or the pool has all shards that its capacity is cut into. A table keeps
 * its id, which is part of its item keys and regions: one whose id is in use is not adopted.
 */
#include "server/catalog/arrival.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "catalog/kind_table.h"

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/log.h"

#define WORDS_BYTES 160

/* An arrival, and the decision for each of its regions and tables. */
struct survey {
	struct catalog *cat;
	const struct catalog_arrival *arrival;
	uint8_t *owners; /* enum region_owner, by region */
	uint32_t n_unknown;
};

static bool may_adopt(const struct catalog_arrival *arrival)
{
	return arrival->claim & POOL_ADOPT;
}

static bool may_discard(const struct catalog_arrival *arrival)
{
	return arrival->claim & POOL_DISCARD;
}

static int adopt_survey(struct catalog *cat, const struct catalog_arrival *arrival,
			struct survey *out)
{
	int ret = 0;

	*out = (struct survey){ .cat = cat, .arrival = arrival };
	out->owners = mem_array(arrival->n_regions + 1, 1);
	if (!out->owners)
		return error_set(-ENOMEM, "node %s: cannot allocate memory", arrival->news->name);
	for (size_t i = 0; ret == 0 && i < arrival->n_regions; i++) {
		enum region_owner owner = OWNER_UNKNOWN;

		ret = catalog_region_owner(cat, arrival, i, &owner);
		out->owners[i] = (uint8_t)owner;
		out->n_unknown += owner == OWNER_UNKNOWN;
	}
	if (ret)
		mem_free(out->owners);
	return ret;
}

/* -------- words -------- */

static const char *uuid_text(const uint8_t uuid[16], char text[33])
{
	for (size_t i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", uuid[i]);
	return text;
}

static const char *table_of(const struct survey *survey, size_t i)
{
	const Relive__NodeRegion *region = survey->arrival->regions[i];

	return survey->owners[i] == OWNER_UNKNOWN && region->shard ? region->shard->table : NULL;
}

static bool was_named(const struct survey *survey, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (table_of(survey, j) && strcmp(table_of(survey, j), table_of(survey, i)) == 0)
			return true;
	return false;
}

/* "tables a, b, c and more", or how many regions if none has a name. */
static const char *name_unknown(const struct survey *survey, char words[WORDS_BYTES])
{
	size_t len = 0, room = WORDS_BYTES - sizeof(" and more");

	for (size_t i = 0; i < survey->arrival->n_regions; i++) {
		const char *name = table_of(survey, i);

		if (!name || was_named(survey, i))
			continue;
		if (len + strlen(name) + sizeof("tables ") > room) {
			memcpy(words + len, " and more", sizeof(" and more"));
			return words;
		}
		len += (size_t)snprintf(words + len, room - len, "%s%s", len ? ", " : "tables ",
					name);
	}
	if (len == 0)
		snprintf(words, WORDS_BYTES, "%u regions of no table", survey->n_unknown);
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

/* To an operator, a store of the same name is the same store with another catalog. */
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

/* -------- one table of the pool -------- */

struct adoptee {
	const struct survey *survey;
	uint32_t id;
	struct table_desc desc; /* of its first whole shard */
	uint32_t whole;         /* number of whole shards */
	char flaw[WORDS_BYTES]; /* flaw of the first shard that is not whole; "" = none */
};

static int check_desc(const struct adoptee *table, const Relive__NodeRegion *tree,
		      const struct table_desc *desc)
{
	uint8_t uuid[16];
	int ret = table_desc_check(desc);

	if (ret)
		return ret;
	part_region_uuid(desc->uuid, tree->part, REGION_TREE, uuid);
	if (desc->table_id != tree->object || desc->shard != tree->part ||
	    desc->tree_bytes > tree->size || memcmp(tree->uuid.data, uuid, 16) != 0)
		return error_set(-EPROTO, "its descriptor is of another region");
	if (table->whole &&
	    (memcmp(desc->uuid, table->desc.uuid, 16) != 0 || !table_desc_same(desc, &table->desc)))
		return error_set(-EPROTO, "its descriptor is of another table");
	return 0;
}

/* Check one region other than the tree; what: its name in messages. */
static int check_beside(const struct table_desc *desc, const Relive__NodeRegion *region,
			uint32_t role, const char *what)
{
	uint8_t uuid[16];

	if (!region)
		return error_set(-ENOENT, "its %s are missing", what);
	if (region->flaw[0])
		return error_set(-EPROTO, "its %s: %s", what, region->flaw);
	part_region_uuid(desc->uuid, region->part, role, uuid);
	if (region->uuid.len != 16 || memcmp(region->uuid.data, uuid, 16) != 0 ||
	    table_region_bytes(desc, role) > region->size)
		return error_set(-EPROTO, "its %s are of another table", what);
	return region->sole ? 0
			    : error_set(-EBUSY, "a process has it mapped: end that process first");
}

static bool unpack_desc(const Relive__NodeRegion *tree, struct table_desc *desc_out)
{
	return table_desc_unpack(tree->shard->desc.data, tree->shard->desc.len, desc_out);
}

/* Check that the tree's shard is whole. *desc_out: the descriptor stored in it. */
static int check_shard(const struct adoptee *table, const Relive__NodeRegion *tree,
		       struct table_desc *desc_out)
{
	static const char *const words[REGION_ROLES] = { "", "tree", "rows", "slots", "pages" };
	int ret;

	if (tree->flaw[0])
		return error_set(-EPROTO, "%s", tree->flaw);
	if (!tree->shard || tree->uuid.len != 16 || !unpack_desc(tree, desc_out))
		return error_set(-EPROTO, "it has no descriptor");
	ret = check_desc(table, tree, desc_out);
	for (uint32_t role = REGION_ROWS; ret == 0 && role < REGION_ROLES; role++)
		ret = check_beside(desc_out,
				   catalog_regions_find(table->survey->arrival, tree, role), role,
				   words[role]);
	if (ret == 0 && !tree->sole)
		ret = error_set(-EBUSY, "a process has it mapped: end that process first");
	return ret;
}

static bool is_unknown_of(const struct survey *survey, size_t i, uint32_t id)
{
	return survey->owners[i] == OWNER_UNKNOWN &&
	       survey->arrival->regions[i]->kind == OBJECT_TABLE &&
	       survey->arrival->regions[i]->object == id;
}

static void find_flaw(struct adoptee *table, const Relive__NodeRegion *tree)
{
	struct table_desc desc;

	if (check_shard(table, tree, &desc) == 0) {
		if (table->whole++ == 0)
			table->desc = desc;
	} else if (!table->flaw[0]) {
		snprintf(table->flaw, sizeof(table->flaw), "shard %u: %s", tree->part,
			 error_last());
	}
}

/* Regions without a tree belong to no shard. */
static void look_at_table(struct adoptee *table)
{
	const struct survey *survey = table->survey;
	uint32_t trees = 0, others = 0;

	for (size_t i = 0; i < survey->arrival->n_regions; i++) {
		const Relive__NodeRegion *region = survey->arrival->regions[i];

		if (!is_unknown_of(survey, i, table->id))
			continue;
		trees += region->role == REGION_TREE;
		others += region->role != REGION_TREE;
		if (region->role == REGION_TREE)
			find_flaw(table, region);
	}
	if (trees * (REGION_ROLES - 2) != others && !table->flaw[0])
		snprintf(table->flaw, sizeof(table->flaw), "%u trees and %u other regions", trees,
			 others);
}

static const struct catalog_object *find_known(const struct adoptee *table)
{
	return catalog_find_same(table->survey->cat, table->id, table->desc.uuid,
				 sizeof(table->desc.uuid));
}

/* -------- adoption checks -------- */

static int adopt_clashes(const struct adoptee *table, const char *what)
{
	return error_set(-EEXIST,
			 "memory node %s: adopt table %s of its pool: %s: nothing was changed; "
			 "adopt it into a store of its own (relive up --store NAME --file POOL "
			 "--adopt)",
			 table->survey->arrival->news->name, table->desc.name, what);
}

/* -EEXIST if another table has its id or name. */
static int check_clash(const struct adoptee *table)
{
	const struct catalog *cat = table->survey->cat;
	const struct catalog_object *known = find_known(table), *by_id = cat->objects[table->id];
	const struct catalog_object *by_name = catalog_find(cat, table->desc.name);
	char what[WORDS_BYTES];

	if (by_name && by_name != known)
		return adopt_clashes(table, "the store has another table of that name");
	if (by_id && by_id != known) {
		snprintf(what, sizeof(what), "its number in the keys of items, %u, is table %s's",
			 table->id, by_id->name);
		return adopt_clashes(table, what);
	}
	if (catalog_provision_of_new(cat, table->id, table->desc.name))
		return adopt_clashes(table, "a table of that name or number is being made");
	return 0;
}

/* A shard is at one node: a second one of the same number is a copy of the pool, or is copied. */
static int check_shards(const struct adoptee *table, const struct catalog_object *known)
{
	const struct survey *survey = table->survey;

	for (size_t i = 0; i < survey->arrival->n_regions; i++) {
		uint32_t s = survey->arrival->regions[i]->part;

		if (!is_unknown_of(survey, i, table->id) || s >= known->n_parts || known->lost[s])
			continue;
		return error_set(-EPROTO, "shard %u is at node %s", s, known->parts[s].node->name);
	}
	return 0;
}

/* The error message names the missing parts. */
static int check_whole(const struct adoptee *table)
{
	const struct catalog_object *known = table->whole ? find_known(table) : NULL;

	if (table->flaw[0])
		return error_set(-EPROTO, "%s", table->flaw);
	if (known)
		return check_shards(table, known);
	if (table->whole < table->desc.n_shards)
		return error_set(-EPROTO, "only %u of its %u shards are here", table->whole,
				 table->desc.n_shards);
	return 0;
}

static const char *name_of(const struct adoptee *table)
{
	const struct survey *survey = table->survey;

	for (size_t i = 0; i < survey->arrival->n_regions; i++)
		if (is_unknown_of(survey, i, table->id) && survey->arrival->regions[i]->shard)
			return survey->arrival->regions[i]->shard->table;
	return "?";
}

static int refuse_part(const struct adoptee *table)
{
	char why[WORDS_BYTES];

	snprintf(why, sizeof(why), "%s", error_last());
	return error_set(-EPERM,
			 "memory node %s: adopt table %s (id %u) of its pool: it is not whole: %s: "
			 "nothing was changed; put back the catalog that knows it (relive restore)",
			 table->survey->arrival->news->name, name_of(table), table->id, why);
}

/* With the claim "discard", a table that is not whole stays unknown. */
static int plan_table(const struct survey *survey, uint32_t id)
{
	size_t first = 0, n = survey->arrival->n_regions;
	struct adoptee *table;
	int ret;

	while (first < n && !is_unknown_of(survey, first, id))
		first++;
	if (first == n)
		return 0;
	table = mem_zalloc(sizeof(*table));
	if (!table)
		return error_set(-ENOMEM, "node %s: cannot allocate memory",
				 survey->arrival->news->name);
	table->survey = survey;
	table->id = id;
	look_at_table(table);
	ret = table->whole ? check_clash(table) : 0;
	if (ret == 0 && check_whole(table) == 0) {
		for (size_t i = first; i < n; i++)
			if (is_unknown_of(survey, i, id))
				survey->owners[i] = OWNER_ADOPTED;
	} else if (ret == 0 && !may_discard(survey->arrival)) {
		ret = refuse_part(table);
	}
	mem_free(table);
	return ret;
}

static int adopt_plan(const struct survey *survey)
{
	int ret = 0;

	for (uint32_t id = 1; ret == 0 && id <= TABLE_MAX_ID; id++)
		ret = plan_table(survey, id);
	if (ret || may_discard(survey->arrival))
		return ret;
	for (size_t i = 0; i < survey->arrival->n_regions; i++)
		if (survey->owners[i] == OWNER_UNKNOWN)
			return error_set(
				-EPERM,
				"memory node %s: adopt its pool: region %u is of no table: "
				"nothing was changed",
				survey->arrival->news->name, survey->arrival->regions[i]->region);
	return 0;
}

/* -------- admission -------- */

/* Joining with another pool would lose the shards in the node's known pool. An operator may
   allow it. */
static int check_pool(const struct catalog *cat, const struct catalog_arrival *arrival)
{
	const struct node_news *news = arrival->news;
	const struct node *node = arrival->node;
	uint32_t shards = node && node->persistent ? catalog_parts_of(cat, node, NULL) : 0;
	char theirs[33], ours[33];

	if (shards == 0 || arrival->claim || bits_all_zero(node->pool, sizeof(node->pool)) ||
	    memcmp(node->pool, news->pool, sizeof(news->pool)) == 0)
		return 0;
	if (!news->persistent)
		return error_set(
			-EPERM,
			"memory node %s: %u shards of tables of store %s are in its pool %s, "
			"on a file or device: start it with that one (--file)",
			news->name, shards, cat->name, uuid_text(node->pool, ours));
	return error_set(-EPERM,
			 "memory node %s: %u shards of tables of store %s are in its pool %s, and "
			 "this is another pool, %s: start it with that one, or this one under "
			 "another node name",
			 news->name, shards, cat->name, uuid_text(node->pool, ours),
			 uuid_text(news->pool, theirs));
}

/* An empty pool of a store with our name is not foreign: a catalog that was not kept took it. */
static bool is_foreign(const struct survey *survey)
{
	const struct catalog_arrival *arrival = survey->arrival;

	if (bits_all_zero(arrival->store_uuid, 16) ||
	    memcmp(arrival->store_uuid, survey->cat->ids.uuid, 16) == 0)
		return false;
	return arrival->n_regions || strcmp(arrival->store_name, survey->cat->name) != 0;
}

static int adopt_judge(const struct survey *survey)
{
	const struct catalog_arrival *arrival = survey->arrival;

	if (is_foreign(survey) && !arrival->claim)
		return refuse_foreign(survey);
	if (may_adopt(arrival))
		return adopt_plan(survey);
	return survey->n_unknown && !may_discard(arrival) ? refuse_unknown(survey) : 0;
}

int catalog_admit(struct catalog *cat, const struct catalog_arrival *arrival)
{
	struct survey survey;
	int ret = check_pool(cat, arrival);

	if (ret == 0)
		ret = adopt_survey(cat, arrival, &survey);
	if (ret)
		return ret;
	ret = adopt_judge(&survey);
	mem_free(survey.owners);
	return ret;
}

/* -------- taking in -------- */

/* Tables new to the catalog, by id, until they are added to it. */
struct taking {
	struct survey survey;
	struct catalog_object *fresh[TABLE_MAX_ID + 1];
};

static bool is_adopted_tree(const struct survey *survey, size_t i)
{
	return survey->owners[i] == OWNER_ADOPTED &&
	       survey->arrival->regions[i]->role == REGION_TREE;
}

/* The control shard is the shard whose limiter has counted; the others have counted nothing. */
static int new_table(struct taking *taking, const Relive__NodeRegion *tree)
{
	const struct catalog_arrival *arrival = taking->survey.arrival;
	struct catalog_object *table;
	struct table_desc desc;
	uint64_t most = 0;
	int ret;

	if (!unpack_desc(tree, &desc))
		return -EPROTO;
	table_desc_seal(&desc, 0);
	ret = catalog_object_new(&kind_table, desc.table_id, &desc, sizeof(desc), &table);
	if (ret)
		return ret;
	table->control = tree->part;
	for (size_t i = 0; i < arrival->n_regions; i++) {
		const Relive__NodeRegion *other = arrival->regions[i];

		if (!is_adopted_tree(&taking->survey, i) || other->object != desc.table_id ||
		    other->shard->inserted <= most)
			continue;
		most = other->shard->inserted;
		table->control = other->part;
	}
	taking->fresh[desc.table_id] = table;
	return catalog_object_put(taking->survey.cat->store, table, STORE_OBJECT_LIVE);
}

static void regions_of(const struct survey *survey, const Relive__NodeRegion *tree,
		       uint32_t ids[REGION_ROLES])
{
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		ids[role] = catalog_regions_find(survey->arrival, tree, role)->region;
}

/* Its node incarnation and boot id are stored as unknown, so that recovery checks all its rows. */
static int put_shard(const struct survey *survey, const Relive__NodeRegion *tree)
{
	struct catalog_store *store = survey->cat->store;
	struct store_part stored = {
		.kind = OBJECT_TABLE,
		.object = tree->object,
		.part = tree->part,
		.state = PART_ACTIVE,
	};
	struct table_desc desc;
	int ret;

	if (!unpack_desc(tree, &desc))
		return -EPROTO;
	regions_of(survey, tree, stored.regions);
	memcpy(stored.node, survey->arrival->node->name, sizeof(stored.node));
	ret = store_put(store, STORE_PARTS, &stored);
	return ret ? ret
		   : store_lap_raise(store, tree->object, tree->part,
				     tree->shard->head / desc.blocks + TABLE_LAPS);
}

static int adopt_object(struct taking *taking)
{
	const struct survey *survey = &taking->survey;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < survey->arrival->n_regions; i++) {
		const Relive__NodeRegion *tree = survey->arrival->regions[i];

		if (!is_adopted_tree(survey, i))
			continue;
		if (!survey->cat->objects[tree->object] && !taking->fresh[tree->object])
			ret = new_table(taking, tree);
		if (ret == 0)
			ret = put_shard(survey, tree);
	}
	return ret;
}

/* Unknown shard numbers in between are LOST. */
static void place_shard(const struct survey *survey, const Relive__NodeRegion *tree)
{
	struct catalog_object *table = survey->cat->objects[tree->object];

	for (uint32_t s = table->n_parts; s < tree->part; s++) {
		table->parts[s].state = PART_LOST;
		table->lost[s] = true;
	}
	table->n_parts = table->n_parts > tree->part ? table->n_parts : tree->part + 1;
	table->slots.n_parts = table->n_parts;
	table->lost[tree->part] = false;
	table->parts[tree->part] = (struct catalog_part){
		.node = survey->arrival->node,
		.state = PART_ACTIVE,
	};
	regions_of(survey, tree, table->parts[tree->part].ids);
	log_info("adopt %s shard %u from node %s", table->text, tree->part,
		 survey->arrival->node->name);
}

static void adopt_publish(struct taking *taking)
{
	const struct survey *survey = &taking->survey;
	struct catalog *cat = survey->cat;

	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
		if (taking->fresh[id])
			cat->objects[id] = taking->fresh[id];
	for (size_t i = 0; i < survey->arrival->n_regions; i++)
		if (is_adopted_tree(survey, i))
			place_shard(survey, survey->arrival->regions[i]);
	for (uint32_t id = 1; id <= TABLE_MAX_ID; id++)
		if (taking->fresh[id])
			catalog_changed(cat, taking->fresh[id]);
}

/* -------- what is left over -------- */

static int put_leftover(struct catalog *cat, const struct node *node,
			const Relive__NodeRegion *region)
{
	struct store_leftover left = { .region = region->region };

	memcpy(left.node, node->name, sizeof(left.node));
	if (region->uuid.len == sizeof(left.uuid))
		memcpy(left.uuid, region->uuid.data, sizeof(left.uuid));
	return store_put(cat->store, STORE_LEFTOVERS, &left);
}

/* The node has reported all its regions: rewrite the store's records of that node. */
static int put_leftovers(const struct survey *survey)
{
	const struct node *node = survey->arrival->node;
	struct catalog *cat = survey->cat;
	struct store_leftover left = { .region = 0 };
	struct store_making making = { .kind = 0 };
	int ret;

	memcpy(left.node, node->name, sizeof(left.node));
	memcpy(making.node, node->name, sizeof(making.node));
	ret = store_delete(cat->store, STORE_LEFTOVERS, &left, 1);
	if (ret == 0 && !catalog_provision_is_at(cat, node))
		ret = store_delete(cat->store, STORE_MAKINGS, &making, 1);
	for (size_t i = 0; ret == 0 && i < survey->arrival->n_regions; i++) {
		const Relive__NodeRegion *region = survey->arrival->regions[i];

		if (survey->owners[i] != OWNER_NONE && survey->owners[i] != OWNER_UNKNOWN)
			continue;
		if (survey->owners[i] == OWNER_UNKNOWN)
			log_info("discard region %u of node %s%s%s", region->region, node->name,
				 region->shard ? ", of table " : "",
				 region->shard ? region->shard->table : "");
		ret = put_leftover(cat, node, region);
	}
	return ret;
}

static int adopt_take(struct taking *taking)
{
	struct catalog *cat = taking->survey.cat;
	int ret = store_begin(cat->store);

	if (ret)
		return ret;
	ret = adopt_object(taking);
	if (ret == 0)
		ret = put_leftovers(&taking->survey);
	ret = store_end(cat->store, ret);
	if (ret == 0)
		adopt_publish(taking);
	for (uint32_t id = 1; ret && id <= TABLE_MAX_ID; id++)
		catalog_object_free(taking->fresh[id]);
	return ret;
}

int catalog_take(struct catalog *cat, const struct catalog_arrival *arrival)
{
	struct taking taking = { .fresh = { NULL } };
	int ret = adopt_survey(cat, arrival, &taking.survey);

	if (ret)
		return ret;
	arrival->node->kept = false;
	ret = adopt_judge(&taking.survey);
	if (ret == 0)
		ret = adopt_take(&taking);
	mem_free(taking.survey.owners);
	return ret;
}

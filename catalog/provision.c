#include "catalog/provision.h"

#include <errno.h>
#include <string.h>

#include "wire/region.h"

#include "base/mem/alloc.h"
#include "base/log.h"

#include "catalog/catalog.h"

/* -------- the list -------- */

int catalog_provision_begin(struct catalog *cat, const struct catalog_provisioning *like,
			    struct catalog_provisioning **provisioning_out)
{
	struct catalog_provisioning *provisioning = mem_zalloc(sizeof(*provisioning));

	if (!provisioning)
		return error_set(-ENOMEM, "%s: no memory", like->object->text);
	*provisioning = *like;
	provisioning->cat = cat;
	provisioning->at = provisioning->first;
	provisioning->next = cat->provisionings;
	cat->provisionings = provisioning;
	for (uint32_t s = provisioning->first; s < provisioning->first + provisioning->n; s++)
		provisioning->object->parts[s] = (struct catalog_part){ .state = 0 };
	*provisioning_out = provisioning;
	return 0;
}

struct catalog_provisioning *catalog_provision_of(const struct catalog *cat,
						  const struct catalog_object *object)
{
	struct catalog_provisioning *provisioning = cat->provisionings;

	while (provisioning && provisioning->object != object)
		provisioning = provisioning->next;
	return provisioning;
}

struct catalog_provisioning *catalog_provision_of_new(const struct catalog *cat, uint32_t id,
						      const char *name)
{
	struct catalog_provisioning *provisioning = cat->provisionings;

	for (; provisioning; provisioning = provisioning->next) {
		const struct catalog_object *object = provisioning->object;

		if (object && provisioning->is_new &&
		    (object->id == id || (name && strcmp(object->name, name) == 0)))
			break;
	}
	return provisioning;
}

void catalog_provision_end(struct catalog_provisioning *provisioning)
{
	struct catalog_provisioning **link = &provisioning->cat->provisionings;

	while (*link != provisioning)
		link = &(*link)->next;
	*link = provisioning->next;
	mem_free(provisioning);
}

void catalog_provision_abandon(struct catalog_provisioning *provisioning)
{
	provisioning->object = NULL;
	if (!provisioning->waiting)
		catalog_provision_end(provisioning);
}

void catalog_provision_forget_all(struct catalog *cat)
{
	while (cat->provisionings) {
		struct catalog_provisioning *provisioning = cat->provisionings;

		if (provisioning->object && provisioning->is_new)
			catalog_object_free(provisioning->object);
		catalog_provision_end(provisioning);
	}
}

/* -------- one region -------- */

static struct catalog_part *place_of(const struct catalog_provisioning *provisioning)
{
	return &provisioning->object->parts[provisioning->at];
}

static bool is_there(const struct catalog_part *place)
{
	return place->node && place->node->up && place->incarnation == place->node->incarnation;
}

/* Returns the role of the part's first region that is not made yet; REGION_ROLES = all are made. */
static uint32_t missing_role(const struct catalog_part *place)
{
	uint32_t role = REGION_TREE;

	while (role < REGION_ROLES && place->ids[role])
		role++;
	return role;
}

/*
 * Gives up the node of the current part: detaches the part, frees the regions made there so far,
 * which are useless alone, and clears the part.
 */
static void leave_node(struct catalog_provisioning *provisioning)
{
	struct catalog *cat = provisioning->cat;
	struct catalog_part *place = place_of(provisioning);

	catalog_part_detach(provisioning->object, provisioning->at);
	if (!provisioning->is_new)
		provisioning->object->slots.n_parts = provisioning->object->n_parts;
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
		if (place->ids[role] && is_there(place))
			catalog_free_region(cat, place->node, place->ids[role]);
	*place = (struct catalog_part){ .state = 0 };
}

/*
 * Notes that the node cannot take the current part, with the error in error_last(), and frees what
 * was made there. Any error of a node means that the next node is tried.
 */
static void provision_cannot(struct catalog_provisioning *provisioning, const struct node *node)
{
	error_keep(&provisioning->refusal);
	if (node->remote) /* else the caller is told */
		log_warn("not made at node %s: %s", node->name, error_last());
	provisioning->tried |= UINT64_C(1) << node->number;
	leave_node(provisioning);
}

static void on_region(void *ctx, struct node *node, int code, uint32_t id)
{
	struct catalog_provisioning *provisioning = ctx;
	struct catalog *cat = provisioning->cat;

	provisioning->waiting = false;
	if (!provisioning->object) {
		if (code == 0)
			catalog_free_region(cat, node, id);
		catalog_provision_end(provisioning);
		return;
	}
	if (code) {
		error_prefix(code, "%s shard %u: ", provisioning->object->text, provisioning->at);
		provision_cannot(provisioning, node);
	} else {
		place_of(provisioning)->ids[missing_role(place_of(provisioning))] = id;
	}
	if (cat->ops)
		cat->ops->on_progress(cat->ctx);
}

/* -------- all of them -------- */

/* True if part s is at the node, and part `at` must not be. */
static bool is_apart(const struct catalog_object *object, uint32_t at, uint32_t s,
		     const struct node *node)
{
	return object->kind->is_apart && s != at && object->parts[s].node == node &&
	       !catalog_part_is_lost(object, s) && object->kind->is_apart(object, at, s);
}

static int choose_node(struct catalog_provisioning *provisioning, struct node **chosen)
{
	struct catalog *cat = provisioning->cat;
	const struct catalog_object *object = provisioning->object;
	struct store_making stored = {
		.kind = object->kind->id,
		.object = object->id,
		.part = provisioning->at,
	};
	struct catalog_part *place = place_of(provisioning);
	struct placement_node places[NODES_MAX];
	struct node *nodes[NODES_MAX], *node;
	uint32_t n = catalog_places(cat, NULL, places, nodes), at;
	int ret;

	for (uint32_t i = 0; i < n; i++) {
		bool tried = (provisioning->tried >> nodes[i]->number) & 1;

		for (uint32_t s = 0; s < OBJECT_MAX_PARTS; s++)
			tried |= is_apart(object, provisioning->at, s, nodes[i]);
		if (provisioning->only)
			places[i].takes = nodes[i] == provisioning->only && nodes[i]->up;
		places[i].takes = places[i].takes && !tried;
	}
	at = placement_pick(places, n, &cat->turn);
	node = at < n ? nodes[at] : NULL;
	if (!node && provisioning->refusal.code) {
		error_restore(&provisioning->refusal);
		return provisioning->refusal.code;
	}
	if (!node)
		return error_set(-EHOSTDOWN,
				 "no memory node is up: start one (relive up, or relive node add)");
	/* Recorded before the node is asked: a restart knows the regions it may find there. */
	memcpy(stored.node, node->name, sizeof(stored.node));
	memcpy(stored.uuid, object->uuid, sizeof(stored.uuid));
	ret = store_put(cat->store, STORE_MAKINGS, &stored);
	if (ret)
		return ret;
	place->node = node;
	place->incarnation = node->incarnation;
	*chosen = node;
	return 0;
}

/*
 * Sets provisioning->at to the first part that is not made yet, or whose node went down since.
 * False: all are made.
 */
static bool find_missing(struct catalog_provisioning *provisioning)
{
	uint32_t s = provisioning->first, end = s + provisioning->n;

	while (s < end && provisioning->object->parts[s].joined &&
	       is_there(&provisioning->object->parts[s]))
		s++;
	if (s != provisioning->at) {
		provisioning->at = s;
		provisioning->tried = 0;
		provisioning->refusal.code = 0;
	}
	return s < end;
}

/*
 * Formats the current part, whose regions exist, opens it and sets its client slots live (step 3 of
 * catalog.h). -EAGAIN: waiting for its node, as in node_attach; unlike there, an unreachable node
 * is -EHOSTDOWN.
 */
static int provision_form(struct catalog_provisioning *provisioning)
{
	struct catalog_object *object = provisioning->object;
	struct catalog_part *place = place_of(provisioning);
	struct part_regions *regions = &place->forming;
	uint32_t s = provisioning->at;
	int ret = 0;

	/* The part may be formatted while its node has not taken the pages of all slots yet. */
	if (!object->attached[s]) {
		if (!regions->at[REGION_TREE]) {
			ret = place->node->ops->attach(place->node, &place->ids[REGION_TREE],
						       REGION_ROLES - REGION_TREE,
						       &regions->at[REGION_TREE]);
			if (ret == -EAGAIN && !place->node->ops->is_attaching(place->node))
				ret = -EHOSTDOWN;
		}
		if (ret == 0)
			ret = part_prepare(regions);
		if (ret == -EAGAIN)
			return ret;
		if (ret == 0)
			ret = object->kind->format(provisioning->cat, object, s, regions);
		if (ret == 0)
			ret = object->kind->open(object->desc, s, regions, &object->attached[s]);
		if (ret)
			part_regions_detach(regions);
		*regions = (struct part_regions){ .owner = 0 };
	}
	place->state = PART_ACTIVE;
	if (ret == 0)
		ret = slots_join(&object->slots, s);
	place->joined = ret == 0;
	place->announced = place->joined ? place->state : 0;
	return ret ? error_prefix(ret, "%s shard %u: ", object->text, s) : 0;
}

/*
 * Makes the current part: chooses a node, requests its regions one by one, and forms it. 0: made;
 * -EAGAIN: waiting for a node; another error: no node is left to try.
 */
static int make_one(struct catalog_provisioning *provisioning)
{
	struct catalog_part *place = place_of(provisioning);
	const struct catalog_object *object = provisioning->object;
	struct target_region region;
	struct part_spec part;
	struct node *node;
	int ret;

	if (place->node && !is_there(place))
		leave_node(provisioning);
	while (!provisioning->waiting) {
		node = place->node;
		ret = node ? 0 : choose_node(provisioning, &node);
		if (ret)
			return ret;
		if (missing_role(place) == REGION_ROLES) {
			ret = provision_form(provisioning);
			if (ret == 0 || ret == -EAGAIN)
				return ret;
			provision_cannot(provisioning, node);
			continue;
		}
		object->kind->plan(object, provisioning->at, &part);
		region = part_region_spec(&part, missing_role(place));
		provisioning->waiting = true;
		ret = node->ops->region_new(node, &region, on_region, provisioning);
		if (ret) { /* not asked: on to the next node */
			provisioning->waiting = false;
			provision_cannot(provisioning, node);
		}
	}
	return -EAGAIN;
}

int catalog_provision_run(struct catalog_provisioning *provisioning)
{
	int ret = provisioning->waiting ? -EAGAIN : 0;

	while (ret == 0 && find_missing(provisioning))
		ret = make_one(provisioning);
	return ret == -EAGAIN
		       ? error_set(ret, "%s: its memory is being made", provisioning->object->text)
		       : ret;
}

void catalog_provision_detach(const struct catalog *cat, const struct node *node)
{
	for (const struct catalog_provisioning *provisioning = cat->provisionings; provisioning;
	     provisioning = provisioning->next)
		for (uint32_t s = provisioning->first;
		     provisioning->object && s < provisioning->first + provisioning->n; s++)
			if (provisioning->object->parts[s].node == node)
				catalog_part_detach(provisioning->object, s);
}

/*
 * True if a part of the provisioning is at the node and has the region; region 0: with any or none.
 */
static bool provision_owns(const struct catalog_provisioning *provisioning, const struct node *node,
			   uint32_t region)
{
	for (uint32_t s = provisioning->first;
	     provisioning->object && s < provisioning->first + provisioning->n; s++) {
		const struct catalog_part *place = &provisioning->object->parts[s];
		bool owns = region == 0;

		for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++)
			owns |= place->incarnation == node->incarnation &&
				place->ids[role] == region;
		if (owns && place->node == node)
			return true;
	}
	return false;
}

bool catalog_provision_owns(const struct catalog *cat, const struct node *node, uint32_t region)
{
	const struct catalog_provisioning *provisioning = cat->provisionings;

	while (provisioning && !provision_owns(provisioning, node, region))
		provisioning = provisioning->next;
	return provisioning;
}

bool catalog_provision_uses(const struct catalog *cat, const struct node *node)
{
	for (const struct catalog_provisioning *provisioning = cat->provisionings; provisioning;
	     provisioning = provisioning->next)
		if (provisioning->only == node || provisioning->leaves == node ||
		    provision_owns(provisioning, node, 0))
			return true;
	return false;
}

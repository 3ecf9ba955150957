/*
 * nodes.c - updates objects when memory nodes join and leave.
 */
#include "server/catalog/catalog.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "wire/region.h"

#include "base/log.h"

/* -------- all parts of a node -------- */

typedef void (*part_fn)(struct catalog *cat, const struct catalog_arrival *arrival,
			struct catalog_object *object, uint32_t s);

static void each_part_of(struct catalog *cat, const struct catalog_arrival *arrival, part_fn fn)
{
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *object = cat->objects[id];

		for (uint32_t s = 0; object && s < object->n_parts; s++)
			if (object->parts[s].node == arrival->node && !object->lost[s])
				fn(cat, arrival, object, s);
	}
}

uint32_t catalog_parts_of(const struct catalog *cat, const struct node *node,
			  struct catalog_leaving *leaving_out)
{
	struct catalog_leaving leaving = { 0 };
	uint32_t n = 0;

	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		const struct catalog_object *object = cat->objects[id];

		for (uint32_t s = 0; object && s < object->n_parts; s++) {
			const struct catalog_part *shard = &object->parts[s];
			const struct part_drain *drain = &shard->drain;

			/* A GONE part counts until its memory is freed. */
			if (shard->node != node || (object->lost[s] && !object->attached[s]))
				continue;
			n++;
			leaving.items_begin += drain->items;
			leaving.items_left +=
				drain->items > drain->taken ? drain->items - drain->taken : 0;
		}
	}
	if (leaving_out)
		*leaving_out = leaving;
	return n;
}

/* Parts of objects must be detached before. */
static void leave_memory(struct catalog *cat, struct node *node)
{
	catalog_provision_detach(cat, node);
	node_close_transport(node);
}

/* -------- lost -------- */

static void catalog_node_lose(struct catalog *cat, const struct catalog_arrival *arrival,
			      struct catalog_object *object, uint32_t s)
{
	(void)arrival;
	log_error("%s shard %u: lost with the memory of node %s", object->text, s,
		  object->parts[s].node->name);
	if (object->attached[s] && part_set_state(object->attached[s], REGION_ORPHANED))
		log_warn("orphan %s shard %u: %s", object->text, s, error_last());
	catalog_part_detach(object, s);
	catalog_part_end(object, s, RELIVE__SHARD_STATE__SHARD_LOST);
	if (catalog_object_put_part(cat->store, object, s)) /* it is lost again after a restart */
		log_warn("%s shard %u: %s", object->text, s, error_last());
	if (object->auto_parts)
		catalog_spread_soon(object);
}

void catalog_node_lost(struct catalog *cat, struct node *node)
{
	const struct catalog_arrival gone = { .node = node };

	each_part_of(cat, &gone, catalog_node_lose);
	leave_memory(cat, node);
}

/* -------- attach -------- */

static int recover_slice(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	uint64_t now = clock_now_ns(cat->clock);
	char found[KIND_TEXT_BYTES] = "";
	int ret;

	if (cat->slice_until == 0)
		cat->slice_until = now + 20 * (uint64_t)CLOCK_NS_PER_MS;
	if (now >= cat->slice_until)
		return -EAGAIN;
	ret = object->kind->recover_go_on(place->recovery, cat->clock, cat->slice_until, found);
	if (ret == -EAGAIN)
		return ret;
	object->attached[s] = place->recovering;
	place->recovering = NULL;
	object->kind->recover_end(&place->recovery);
	if (ret)
		return ret;
	log_info("recover %s shard %u: %s%s", object->text, s, found,
		 place->life.marked ? ", all rows read" : "");
	return part_set_sound(object->attached[s], &place->life);
}

/*
 * The node restarted. If another process kept the pool mapped, the part is in use and left alone;
 * otherwise its superblock says which recovery is needed (wire/region.h). No client has a part that
 * recovers: it counts as not attached until it is sound. Recovery runs in time slices, so that other
 * requests are served in between.
 */
static int renew_life(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	const struct object_kind *kind = object->kind;
	int ret = place->recovering ? 0 : part_life(object->attached[s], &place->life);

	if (ret == 0 && !place->recovering && !place->life.is_sound) {
		ret = kind->recover_begin ? kind->recover_begin(cat, object, s, &place->recovery)
					  : part_set_sound(object->attached[s], &place->life);
		if (ret == 0 && kind->recover_begin) {
			place->recovering = object->attached[s];
			object->attached[s] = NULL;
		}
	}
	if (ret == 0 && place->recovering)
		ret = recover_slice(cat, object, s);
	if (ret)
		return ret;
	place->incarnation = place->node->incarnation;
	return catalog_object_put_part(cat->store, object, s);
}

static int catalog_node_attach(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	int ret = place->recovering ? 0 : catalog_part_attach(object, s);

	if (ret == 0 && place->incarnation != place->node->incarnation)
		ret = renew_life(cat, object, s);
	if (ret == 0)
		ret = slots_read(&object->slots, s, cat->ops->on_holder, cat->ctx);
	if (ret == 0)
		ret = part_rebuild_needed(object->attached[s], &place->drift);
	return ret;
}

/* Region of the part whose file is damaged; 0 = none. */
static uint32_t find_cut(const struct catalog_part *place, const struct part *part)
{
	for (uint32_t role = REGION_TREE; role < REGION_ROLES; role++) {
		const struct region *region = part ? part->regions.at[role] : NULL;

		/* relaxed: set by the thread that meets the failure, i.e. this one */
		if (node_is_broken(place->node, place->ids[role]) ||
		    (region && atomic_load_explicit(&region->broken, memory_order_relaxed)))
			return place->ids[role];
	}
	return 0;
}

/*
 * True if a file of the part's regions was truncated or cannot be read, as reported by the node or
 * met by this server. The part is not used until its node registers again.
 */
static bool is_broken(struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	const struct part *part = place->recovering ? place->recovering : object->attached[s];
	uint32_t cut = place->broken ? 0 : find_cut(place, part);

	if (cut) {
		place->broken = true;
		log_error("%s shard %u is down: the file of its region %u on node %s was "
			  "cut short, or cannot be read",
			  object->text, s, cut, place->node->name);
		catalog_part_detach(object, s);
	}
	return place->broken;
}

static void take_up(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	int ret = object->attached[s] ? 0 : catalog_node_attach(cat, object, s);

	if (ret == 0 && !place->joined) {
		ret = slots_join(&object->slots, s);
		/* A client that left while the part was away may have left a call half done. */
		if (ret == 0)
			ret = part_rebuild_needed(object->attached[s], &place->drift);
		place->joined = ret == 0;
	}
	/* Retry later: an orphan slot is unsettled, or the node was unreachable */
	if (ret == 0 || ret == -EAGAIN)
		return;
	log_error("attach %s shard %u: %s", object->text, s, error_last());
	/* Damage is permanent: clients that open the object get the error. */
	if (ret == -EBADMSG || ret == -EPROTO) {
		place->refused = true;
		object->refusal = error_prefix(ret, "%s shard %u: ", object->text, s);
		snprintf(object->refusal_text, sizeof(object->refusal_text), "%s", error_last());
	}
	catalog_part_detach(object, s);
}

static void leave_part(struct catalog *cat, const struct catalog_arrival *arrival,
		       struct catalog_object *object, uint32_t s)
{
	(void)cat;
	(void)arrival;
	catalog_part_detach(object, s);
}

void catalog_attach_tick(struct catalog *cat, struct catalog_object *object)
{
	for (uint32_t s = 0; s < object->n_parts; s++) {
		const struct catalog_part *place = &object->parts[s];
		struct catalog_arrival again = { .node = place->node };

		if (object->lost[s] || !place->node->up)
			continue;
		if (place->node->tr && place->node->tr->broken) {
			log_warn("node %s: our connection to its memory broke", place->node->name);
			each_part_of(cat, &again, leave_part);
			leave_memory(cat, place->node);
		}
		if (!is_broken(object, s) && !place->joined && !place->refused)
			take_up(cat, object, s);
	}
}

/* -------- a node comes -------- */

static void node_up_part(struct catalog *cat, const struct catalog_arrival *arrival,
			 struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	const struct node *node = arrival->node;

	place->refused = false;
	if (!catalog_regions_of_part(arrival, object, s) ||
	    (place->incarnation != node->incarnation && !node->persistent)) {
		catalog_node_lose(cat, arrival, object, s);
		return;
	}
	place->broken = false;
	if (!is_broken(object, s))
		take_up(cat, object, s);
}

/* Detaches the parts, which are attached to the node's earlier incarnation. */
static void leave_life(struct catalog *cat, const struct catalog_arrival *arrival,
		       struct catalog_object *object, uint32_t s)
{
	if (arrival->node->persistent)
		catalog_part_detach(object, s);
	else
		catalog_node_lose(cat, arrival, object, s);
}

static bool is_given_up(const struct catalog *cat, const struct catalog_arrival *arrival, size_t i)
{
	enum region_owner owner;

	if (catalog_region_owner(cat, arrival, i, &owner) == 0)
		return owner == OWNER_NONE;
	log_warn("region %u of node %s: %s", arrival->regions[i]->region, arrival->news->name,
		 error_last());
	return false;
}

static void free_regions(struct catalog *cat, const struct catalog_arrival *arrival)
{
	struct node *node = arrival->node;

	for (size_t i = 0; node->up && i < arrival->n_regions; i++) {
		const Relive__NodeRegion *region = arrival->regions[i];
		bool object_is_there = region->object <= OBJECT_MAX_ID &&
				       cat->objects[region->object];

		if (!is_given_up(cat, arrival, i))
			continue;
		log_info("free region %u of node %s: given up", region->region, node->name);
		catalog_retire_region(cat, node, region->region,
				      object_is_there ? REGION_ORPHANED : REGION_DROPPED);
	}
}

void catalog_node_up(struct catalog *cat, const struct catalog_arrival *arrival)
{
	struct node *node = arrival->node;

	cat->slice_until = 0;
	memset(node->broken, 0, sizeof(node->broken));
	for (size_t i = 0; i < arrival->n_regions; i++)
		if (arrival->regions[i]->broken)
			node_note_broken(node, arrival->regions[i]->region);
	if (arrival->replaced && node->tr) {
		each_part_of(cat, arrival, leave_life);
		leave_memory(cat, node);
	}
	each_part_of(cat, arrival, node_up_part);
	free_regions(cat, arrival);
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *object = cat->objects[id];

		if (object && (object->auto_parts || object->spread_due))
			catalog_spread_soon(object);
	}
}

/* -------- a node goes -------- */

/* Only a single opener may open a file pool; connections of other transports have ended. Mapped
   memory stays: clients read the state word there. */
void catalog_node_down(struct catalog *cat, struct node *node)
{
	const struct catalog_arrival gone = { .node = node };

	if (!node->persistent && node_is_mapped(node))
		return;
	each_part_of(cat, &gone, leave_part);
	leave_memory(cat, node);
}

/* -------- a node is forgotten -------- */

int catalog_node_forget(struct catalog *cat, const struct node *node)
{
	uint32_t n = 0;

	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		for (uint32_t s = 0; cat->objects[id] && s < cat->objects[id]->n_parts; s++)
			n += cat->objects[id]->parts[s].node == node && !cat->objects[id]->lost[s];
	if (n)
		return error_set(-EBUSY,
				 "memory node %s is down and holds %u shards, which come back with "
				 "it: start it again, then drain it (relive node drain)",
				 node->name, n);
	if (catalog_provision_uses(cat, node))
		return error_set(-EBUSY,
				 "memory node %s: a table is being made there: ask again "
				 "in a second",
				 node->name);
	(void)catalog_retire_tick(cat); /* a down node's pending retirements are dropped */
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++)
		for (uint32_t s = 0; cat->objects[id] && s < cat->objects[id]->n_parts; s++) {
			struct catalog_part *place = &cat->objects[id]->parts[s];

			if (place->node != node)
				continue;
			catalog_part_detach(cat->objects[id], s);
			place->node = NULL;
			place->drain = (struct part_drain){ .phase = DRAIN_FILLING };
		}
	return 0;
}

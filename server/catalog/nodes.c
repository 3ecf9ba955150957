/*
 * nodes.c - updates objects when memory nodes join and leave.
 */
#include "server/catalog/arrival.h"

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
	catalog_part_end(object, s, PART_LOST);
	if (catalog_object_put_part(cat->store, object, s)) /* it is lost again after a restart */
		log_warn("%s shard %u: %s", object->text, s, error_last());
	if (object->auto_parts)
		catalog_spread_soon(object);
}

void catalog_node_lost(struct catalog *cat, struct node *node)
{
	const struct catalog_arrival gone = { .node = node };

	each_part_of(cat, &gone, catalog_node_lose);
	catalog_leave_node(cat, node);
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
	catalog_take_up(cat, object, s);
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
		catalog_leave_node(cat, node);
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
	if (node->persistent || !node_is_mapped(node))
		catalog_leave_node(cat, node);
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

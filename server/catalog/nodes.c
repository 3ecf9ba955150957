/*
 * nodes.c - updates objects when memory nodes join and leave.
 */
#include "server/catalog/arrival.h"

#include <errno.h>
#include <string.h>

#include "wire/region.h"

#include "base/log.h"

uint32_t catalog_parts_of(const struct catalog *cat, const struct node *node,
			  struct catalog_leaving *leaving_out)
{
	struct catalog_leaving leaving = { 0 };
	struct catalog_at at = { 0 };
	uint32_t n = 0;

	while (catalog_next_at(cat, node, &at)) {
		const struct part_drain *drain = &at.place->drain;

		/* A GONE part counts until its memory is freed. */
		if (catalog_part_is_lost(at.object, at.s) && !at.object->attached[at.s])
			continue;
		n++;
		leaving.items_begin += drain->items;
		leaving.items_left += drain->items > drain->taken ? drain->items - drain->taken : 0;
	}
	if (leaving_out)
		*leaving_out = leaving;
	return n;
}

int catalog_may_drain(const struct catalog *cat, const struct node *node)
{
	struct catalog_at at = { 0 };

	while (catalog_next_at(cat, node, &at))
		if (!catalog_part_is_lost(at.object, at.s) && at.object->kind->stays &&
		    at.object->kind->stays(at.object))
			return error_set(-ENOTSUP,
					 "memory node %s has part %u of %s, which has several "
					 "writers and cannot leave it: drop the heap, or copy its "
					 "keys to another one",
					 node->name, at.s, at.object->text);
	return 0;
}

/* -------- lost -------- */

static void part_lose(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	log_error("%s shard %u: lost with the memory of node %s", object->text, s,
		  object->parts[s].node->name);
	if (object->attached[s] && part_set_state(object->attached[s], REGION_ORPHANED))
		log_warn("orphan %s shard %u: %s", object->text, s, error_last());
	catalog_part_detach(object, s);
	object->parts[s].state = PART_LOST;
	if (catalog_object_put_part(cat->store, object, s)) /* it is lost again after a restart */
		log_warn("%s shard %u: %s", object->text, s, error_last());
	if (object->auto_parts || object->kind->missing)
		catalog_spread_soon(object);
}

void catalog_node_lost(struct catalog *cat, struct node *node)
{
	struct catalog_at at = { 0 };

	while (catalog_next_at(cat, node, &at))
		if (!catalog_part_is_lost(at.object, at.s))
			part_lose(cat, at.object, at.s);
	catalog_leave_node(cat, node);
}

/* -------- a node comes -------- */

static void free_regions(struct catalog *cat, const struct catalog_arrival *arrival)
{
	struct node *node = arrival->node;

	for (size_t i = 0; node->up && i < arrival->n_regions; i++) {
		const Relive__NodeRegion *region = arrival->regions[i];
		bool object_is_there = region->object <= OBJECT_MAX_ID &&
				       cat->objects[region->object];
		enum region_owner owner = OWNER_PART;

		if (catalog_region_owner(cat, arrival, i, &owner))
			log_warn("region %u of node %s: %s", region->region, node->name,
				 error_last());
		if (owner != OWNER_NONE)
			continue;
		log_info("free region %u of node %s: given up", region->region, node->name);
		catalog_retire_region(cat, node, region->region,
				      object_is_there ? REGION_ORPHANED : REGION_DROPPED);
	}
}

void catalog_node_up(struct catalog *cat, const struct catalog_arrival *arrival)
{
	struct catalog_at former = { 0 }, at = { 0 };
	struct node *node = arrival->node;

	cat->slice_until = 0;
	memset(node->broken, 0, sizeof(node->broken));
	for (size_t i = 0; i < arrival->n_regions; i++)
		if (arrival->regions[i]->broken)
			node_note_broken(node, arrival->regions[i]->region);
	if (arrival->replaced && node->tr) {
		/* The parts are attached to the node's earlier incarnation. */
		while (!node->persistent && catalog_next_at(cat, node, &former))
			if (!catalog_part_is_lost(former.object, former.s))
				part_lose(cat, former.object, former.s);
		catalog_leave_node(cat, node);
	}
	while (catalog_next_at(cat, node, &at)) {
		if (catalog_part_is_lost(at.object, at.s))
			continue;
		at.place->refused = false;
		if (!catalog_regions_of_part(arrival, at.object, at.s) ||
		    (at.place->incarnation != node->incarnation && !node->persistent)) {
			part_lose(cat, at.object, at.s);
			continue;
		}
		at.place->broken = false;
		catalog_take_up(cat, at.object, at.s);
	}
	free_regions(cat, arrival);
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *object = cat->objects[id];

		if (object && (object->auto_parts || object->kind->missing || object->spread_due))
			catalog_spread_soon(object);
	}
}

/* -------- a node goes -------- */

/*
 * Detaches a file pool, which only a single opener may open, and one reached by another transport
 * than shm, whose connections have ended. Mapped memory stays: clients read the state word there.
 */
void catalog_node_down(struct catalog *cat, struct node *node)
{
	if (node->persistent || !node_is_mapped(node))
		catalog_leave_node(cat, node);
}

/* -------- a node is forgotten -------- */

int catalog_node_forget(struct catalog *cat, const struct node *node)
{
	struct catalog_at kept = { 0 }, at = { 0 };
	uint32_t n = 0;

	while (catalog_next_at(cat, node, &kept))
		n += !catalog_part_is_lost(kept.object, kept.s);
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
	while (catalog_next_at(cat, node, &at)) {
		catalog_part_detach(at.object, at.s);
		at.place->node = NULL;
		at.place->drain = (struct part_drain){ .phase = DRAIN_FILLING };
	}
	return 0;
}

/*
 * attach.c - the catalog's own attachment to each part: made when its node is up, recovered first if
 * the node restarted.
 */
#include "catalog/catalog.h"

#include <errno.h>
#include <stdatomic.h>

#include "wire/region.h"

#include "base/log.h"

/*
 * Recovers part s, whose node restarted, and records the node's incarnation. If another process
 * kept the pool mapped, the part is in use and left alone; otherwise its superblock says which
 * recovery is needed (wire/region.h). No client has a part that recovers: it counts as not attached
 * until it is sound. -EAGAIN: the time slice is used up, so that other requests are served; call
 * again.
 */
static int renew_life(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	const struct object_kind *kind = object->kind;
	char found[KIND_TEXT_BYTES] = "";
	int ret = place->recovering ? 0 : part_life(object->attached[s], &place->life);

	if (ret == 0 && !place->recovering && !place->life.is_sound) {
		ret = kind->recover_begin ? kind->recover_begin(cat, object, s, &place->recovery)
					  : part_set_sound(object->attached[s], &place->life);
		if (ret == 0 && kind->recover_begin) {
			place->recovering = object->attached[s];
			object->attached[s] = NULL;
		}
	}
	if (ret == 0 && place->recovering) {
		uint64_t now = clock_now_ns(cat->clock);

		if (cat->slice_until == 0)
			cat->slice_until = now + 20 * (uint64_t)CLOCK_NS_PER_MS;
		ret = -EAGAIN;
		if (now < cat->slice_until)
			ret = kind->recover_go_on(place->recovery, cat->clock, cat->slice_until,
						  found);
		if (ret == -EAGAIN)
			return ret;
		object->attached[s] = place->recovering;
		place->recovering = NULL;
		kind->recover_end(&place->recovery);
		if (ret)
			return ret;
		log_info("recover %s shard %u: %s%s", object->text, s, found,
			 place->life.marked ? ", all rows read" : "");
		ret = part_set_sound(object->attached[s], &place->life);
	}
	if (ret)
		return ret;
	place->incarnation = place->node->incarnation;
	return catalog_object_put_part(cat->store, object, s);
}

/*
 * True if a file of the part's regions was truncated or a read of it failed, as its node reported
 * or this server met. Then the part is detached, and not used until its node registers again.
 */
static bool is_broken(struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	const struct part *part = place->recovering ? place->recovering : object->attached[s];

	for (uint32_t role = REGION_TREE; !place->broken && role < REGION_ROLES; role++) {
		const struct region *region = part ? part->regions.at[role] : NULL;
		/* relaxed: set by the thread that meets the failure, i.e. this one */
		bool met = region && atomic_load_explicit(&region->broken, memory_order_relaxed);

		if (!met && !node_is_broken(place->node, place->ids[role]))
			continue;
		place->broken = true;
		log_error("%s shard %u is down: the file of its region %u on node %s was "
			  "cut short, or cannot be read",
			  object->text, s, place->ids[role], place->node->name);
		catalog_part_detach(object, s);
	}
	return place->broken;
}

void catalog_take_up(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct catalog_part *place = &object->parts[s];
	int ret = 0;

	if (is_broken(object, s) || place->joined || place->refused)
		return;
	if (!object->attached[s]) {
		if (!place->recovering)
			ret = catalog_part_attach(object, s);
		if (ret == 0 && place->incarnation != place->node->incarnation)
			ret = renew_life(cat, object, s);
		if (ret == 0)
			ret = slots_read(&object->slots, s, cat->ops->on_holder, cat->ctx);
	}
	if (ret == 0)
		ret = slots_join(&object->slots, s);
	/* A client that left while the part was away may have left a call half done. */
	if (ret == 0 && object->kind->rebuild)
		ret = part_rebuild_needed(object->attached[s], &place->drift);
	place->joined = ret == 0;
	/* Retry later: an orphan slot is unsettled, or the node was unreachable */
	if (ret == 0 || ret == -EAGAIN)
		return;
	log_error("attach %s shard %u: %s", object->text, s, error_last());
	/* Damage is permanent: clients that open the object get the error. */
	if (ret == -EBADMSG || ret == -EPROTO) {
		place->refused = true;
		error_prefix(ret, "%s shard %u: ", object->text, s);
		error_keep(&object->refusal);
	}
	catalog_part_detach(object, s);
}

void catalog_leave_node(struct catalog *cat, struct node *node)
{
	struct catalog_at at = { 0 };

	while (catalog_next_at(cat, node, &at))
		if (!catalog_part_is_lost(at.object, at.s))
			catalog_part_detach(at.object, at.s);
	catalog_provision_detach(cat, node);
	node->ops->close(node);
}

void catalog_attach_tick(struct catalog *cat, struct catalog_object *object)
{
	for (uint32_t s = 0; s < object->n_parts; s++) {
		const struct catalog_part *place = &object->parts[s];

		if (catalog_part_is_lost(object, s) || !place->node->up)
			continue;
		if (place->node->tr && place->node->tr->broken) {
			log_warn("node %s: our connection to its memory broke", place->node->name);
			catalog_leave_node(cat, place->node);
		}
		catalog_take_up(cat, object, s);
	}
}

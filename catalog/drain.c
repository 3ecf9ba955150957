/*
 * drain.c - parts that leave their node. Clients add nothing to a draining part. It leaves when the
 * other parts have taken in as many items as it held: by then a ring would have overwritten its
 * items.
 *
 *   FILLING   until then, or until it is empty; and until nothing is open in it
 *   HANDING   its duty was handed to another part (object_kind.hand_over); until clients know
 *   LEAVING   it is GONE; until clients know; then its memory is freed
 *
 * The contents of a heap's part are copied instead: FILLING is object_kind.move, and HANDING is left out.
 *
 * Dead or stopped clients are waited for no longer than the catalog's patience: when they return
 * they read the region's state word.
 */
#include "catalog/catalog.h"

#include "wire/region.h"

#include "base/log.h"

/* -------- phases -------- */

static uint64_t taken_in(struct catalog_object *object)
{
	uint64_t items = 0;

	for (uint32_t s = 0; s < object->n_parts && object->kind->taken_in; s++)
		if (catalog_part_view(object, s) == PART_ACTIVE)
			items +=
				object->kind->taken_in(object->attached[s], &object->parts[s].seen);
	return items;
}

/* Begins a drain phase of part s. It does not end before clients know the layout as it is now. */
static void drain_announce(const struct catalog *cat, struct catalog_object *object, uint32_t s,
			   enum drain_phase phase)
{
	struct part_drain *drain = &object->parts[s].drain;

	drain->phase = phase;
	drain->announced = object->layout;
	drain->announced_at = clock_now_ns(cat->clock);
}

static int drain_leave(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	int ret = catalog_part_set_state(cat->store, object, s, PART_GONE);

	if (ret)
		return ret;
	catalog_refresh(cat, object);
	drain_announce(cat, object, s, DRAIN_LEAVING);
	return 0;
}

/* Contents that are copied. */
static int drain_move(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct part_drain *drain = &object->parts[s].drain;
	uint64_t taken = drain->taken;
	bool done = false;
	int ret = object->kind->move(object, s, &done);

	drain->begun = true;
	cat->moves |= ret == 0 && drain->taken != taken;
	return ret || !done ? ret : drain_leave(cat, object, s);
}

/* Frees a part that has left, unless clients still use its memory. */
static int drain_end(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct part *part = object->attached[s];
	bool is_held = false;
	int ret = part && object->kind->is_held ? object->kind->is_held(part, &is_held) : 0;

	if (ret || is_held)
		return ret;
	log_info("%s shard %u: drained from node %s", object->text, s, object->parts[s].node->name);
	catalog_retire_part(cat, object, s, REGION_ORPHANED);
	object->parts[s].drain = (struct part_drain){ .phase = DRAIN_FILLING };
	return 0;
}

static int drain_step(struct catalog *cat, struct catalog_object *object, uint32_t s,
		      uint64_t taken)
{
	struct part_drain *drain = &object->parts[s].drain;
	const struct object_kind *kind = object->kind;
	struct part *part = object->attached[s];
	bool is_open = false;
	uint64_t items = 0;
	int ret;

	if (drain->phase != DRAIN_FILLING &&
	    !catalog_is_known(cat, drain->announced, drain->announced_at))
		return 0;
	if (drain->phase == DRAIN_LEAVING)
		return drain_end(cat, object, s);
	if (drain->phase == DRAIN_HANDING) {
		ret = kind->handed(object, s);
		return ret ? ret : drain_leave(cat, object, s);
	}
	if (kind->move)
		return drain_move(cat, object, s);
	ret = kind->items(part, &items);
	if (ret)
		return ret;
	if (drain->begun)
		drain->taken += taken;
	else
		drain->items = items;
	drain->begun = true;
	if (items && drain->taken < drain->items)
		return 0;
	ret = kind->is_open(part, &is_open);
	if (ret || is_open)
		return ret;
	ret = kind->hand_over ? kind->hand_over(cat, object, s) : 0;
	if (ret <= 0)
		return ret ? ret : drain_leave(cat, object, s);
	drain_announce(cat, object, s, DRAIN_HANDING);
	return 0;
}

bool catalog_drain_tick(struct catalog *cat, struct catalog_object *object)
{
	uint64_t taken = UINT64_MAX;
	bool busy = false;

	for (uint32_t s = 0; s < object->n_parts; s++) {
		const struct catalog_part *place = &object->parts[s];

		if (place->drain.phase == DRAIN_LEAVING ||
		    catalog_part_view(object, s) == PART_DRAINING) {
			if (taken == UINT64_MAX)
				taken = taken_in(object);
			if (drain_step(cat, object, s, taken))
				log_warn("drain %s shard %u: %s", object->text, s, error_last());
		}
		busy |= place->drain.phase != DRAIN_FILLING || place->state == PART_DRAINING;
	}
	return busy;
}

int catalog_drain(struct catalog *cat, struct catalog_object *object, uint32_t s)
{
	struct catalog_part *shard = &object->parts[s];
	int ret = catalog_part_set_state(cat->store, object, s, PART_DRAINING);

	if (ret)
		return ret;
	shard->drain = (struct part_drain){ .phase = DRAIN_FILLING };
	log_info("%s shard %u: drains from node %s", object->text, s, shard->node->name);
	catalog_refresh(cat, object);
	return 0;
}

/*
 * upkeep.c - the catalog's bounded rounds of upkeep, and its end.
 */
#include "catalog/catalog.h"

#define TICK_NS (100 * (uint64_t)CLOCK_NS_PER_MS)
#define IDLE_NS ((uint64_t)CLOCK_NS_PER_S)
#define READING_NS ((uint64_t)CLOCK_NS_PER_S) /* interval between two calls of object_kind.look */

/* True if there is more to do soon. */
static bool keep_up(struct catalog *cat, struct catalog_object *object)
{
	bool busy;

	catalog_attach_tick(cat, object);
	if (catalog_is_in_grace(cat))
		return true;
	if (object->kind->tick)
		object->kind->tick(cat, object);
	busy = catalog_spread_tick(cat, object);
	catalog_drain_tick(cat, object);
	catalog_refresh(cat, object);
	for (uint32_t s = 0; s < object->n_parts; s++)
		busy |= object->parts[s].drain.phase != DRAIN_FILLING ||
			object->parts[s].state == PART_DRAINING;
	return busy;
}

uint64_t catalog_tick(struct catalog *cat)
{
	uint64_t now = clock_now_ns(cat->clock);
	bool reading = now >= cat->next_reading, busy = false, recovers = false;

	if (now < cat->next_tick)
		return cat->next_tick;
	cat->slice_until = 0;
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		if (!cat->objects[id])
			continue;
		if (reading && cat->objects[id]->kind->look)
			cat->objects[id]->kind->look(cat->objects[id]);
		busy |= keep_up(cat, cat->objects[id]);
		recovers |= catalog_object_is_recovering(cat->objects[id]);
	}
	if (reading)
		cat->next_reading = now + READING_NS;
	busy |= catalog_retire_tick(cat);
	cat->next_tick = now + (busy ? TICK_NS : IDLE_NS);
	if (recovers)
		cat->next_tick = now;
	return cat->next_tick;
}

void catalog_fini(struct catalog *cat)
{
	catalog_provision_forget_all(cat);
	catalog_retire_forget(cat);
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		catalog_object_free(cat->objects[id]);
		cat->objects[id] = NULL;
	}
}

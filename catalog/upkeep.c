/*
 * upkeep.c - the catalog's bounded rounds of upkeep, and its end.
 */
#include "catalog/catalog.h"

#define TICK_NS (100 * (uint64_t)CLOCK_NS_PER_MS)
#define IDLE_NS ((uint64_t)CLOCK_NS_PER_S)
#define READING_NS ((uint64_t)CLOCK_NS_PER_S) /* interval between two calls of object_kind.look */

uint64_t catalog_tick(struct catalog *cat)
{
	uint64_t now = clock_now_ns(cat->clock);
	bool reading = now >= cat->next_reading, grace = catalog_is_in_grace(cat);
	bool busy = false, recovers = false;

	if (now < cat->next_tick)
		return cat->next_tick;
	cat->slice_until = 0;
	cat->moves = false;
	for (uint32_t id = 1; id <= OBJECT_MAX_ID; id++) {
		struct catalog_object *object = cat->objects[id];

		if (!object)
			continue;
		if (reading && object->kind->look)
			object->kind->look(object);
		catalog_attach_tick(cat, object);
		recovers |= catalog_object_is_recovering(object);
		busy |= grace;
		if (grace)
			continue;
		if (object->kind->tick)
			object->kind->tick(cat, object);
		busy |= catalog_spread_tick(cat, object);
		busy |= catalog_drain_tick(cat, object);
		catalog_refresh(cat, object);
	}
	if (reading)
		cat->next_reading = now + READING_NS;
	busy |= catalog_retire_tick(cat);
	cat->next_tick = now + (busy ? TICK_NS : IDLE_NS);
	if (recovers || cat->moves)
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

/*
 * copy.h - executes the plan of a lot on this CPU: each small column in a loop specialised for its
 * size; large columns (frames) and those of several rows item by item, so that rows shared by two
 * arrays are cached for the second copy. Private to ds/window/.
 */
#ifndef RLV_DS_WINDOW_COPY_H
#define RLV_DS_WINDOW_COPY_H

#include "ds/window/plan.h"
#include "ds/window/stream.h"

#define WINDOW_LARGE 512 /* bytes of a value that is copied by itself */
#define WINDOW_TO_L2 2   /* locality of a prefetch: there, a core awaits more lines at a time */

/* True if the output is copied item by item: its values are large, or several rows are in it. */
static inline bool window_is_by_item(const struct window_plan *plan, const struct window_output *o)
{
	bool several = o->kind == WINDOW_ALL ||
		       (plan->stack > 1 && (o->kind == WINDOW_STACK || o->kind == WINDOW_NEXT));

	return several || (o->bytes >= WINDOW_LARGE && o->kind <= WINDOW_ALL);
}

/* Fills one output that is not copied item by item, for all items of the lot. */
void window_copy_small(const struct window_lot *lot, const struct window_output *o);

/*
 * Fills all other outputs for the items of the lot. stream: large values by non-temporal stores;
 * prefetch: the small columns of the next item.
 */
void window_copy_by_item(const struct window_lot *lot, bool stream, bool prefetch);

#endif

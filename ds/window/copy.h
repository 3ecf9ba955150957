/*
 * copy.h - executes the plan of a lot on this CPU: each small column in a loop specialised for its
 * size, large columns (frames) item by item, so that rows shared by two arrays are cached for the
 * second copy. Private to ds/window/.
 */
#ifndef RLV_DS_WINDOW_COPY_H
#define RLV_DS_WINDOW_COPY_H

#include "ds/window/plan.h"
#include "ds/window/stream.h"

/*
 * True if the output is copied item by item: it is of whole column values, each of at least 512
 * bytes.
 */
static inline bool window_is_large(const struct window_output *o)
{
	return o->bytes >= 512 && o->kind <= WINDOW_ALL;
}

/* Fills one output that is not large for all items of the lot. */
void window_copy_small(const struct window_lot *lot, const struct window_output *o);

/* Fills all large outputs for the items of the lot; stream: by non-temporal stores. */
void window_copy_large(const struct window_lot *lot, bool stream);

#endif

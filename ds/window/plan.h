/*
 * plan.h - the plan of a gather, for a lot of items: where each item's rows are, where it goes, and
 * which rows its outputs take. Made from the row tails alone; ds/window/copy.h executes it. Nothing
 * else passes between the two, so that another way to copy needs no other plan. Private to
 * ds/window/.
 *
 *   output row p of an item   takes row max(first, p [+ k]) of its window (ds/window/copy.c)
 */
#ifndef RLV_DS_WINDOW_PLAN_H
#define RLV_DS_WINDOW_PLAN_H

#include "ds/window/window.h"

#define WINDOW_LOT 64 /* items per lot: their rows stay in the L2 cache, their pages in the TLB */
#define WINDOW_LOT_LONG 32 /* of windows too long to be prefetched whole */

struct window_lot {
	/* set by the caller */
	const struct window_plan *plan; /* rows and outputs of all items */
	const uint8_t *const *windows;  /* first row of each item */
	const uint32_t *at;             /* its index in the output arrays */
	uint32_t n;
	/* the plan */
	bool in_order;              /* at[i] = at[0] + i */
	uint32_t k[WINDOW_LOT];     /* steps of the return */
	uint32_t first[WINDOW_LOT]; /* row of the window where the anchor's episode begins, or 0 */
	float discount[WINDOW_LOT];
};

/*
 * Sets in_order, k, first and discount of the lot, from the row tails of its windows. Cost: two
 * words of each row that the return may have.
 */
void window_plan_lot(struct window_lot *lot);

#endif

/*
 * values.h - the values of large columns as a list, for a device that copies them: the plan of a gather
 * (ds/window/plan.h) with its addresses.
 *
 *   window_is_listed  -> window_values_of an item -> window_list_values -> copied by whoever can
 *   the other outputs -> window_gather
 */
#ifndef RLV_DS_WINDOW_VALUES_H
#define RLV_DS_WINDOW_VALUES_H

#include "ds/window/window.h"

/* One value: o->bytes from a row of a window to an item of the output. */
struct window_value {
	uint64_t from, to; /* addresses in this process */
};

/* True if the output's values can be listed, and are so large that a list pays. */
bool window_is_listed(const struct window_output *o);

/* Values of an item of such an output. */
uint32_t window_values_of(const struct window_plan *plan, const struct window_output *o);

/*
 * Lists the values of items [0, n), as window_gather would copy them: of output c of the plan, which is
 * listed, window_values_of() values for each item at lists[c]. Each is within its window, whatever the rows say.
 * Cost: local. Thread: any.
 */
void window_list_values(const struct window_plan *plan, const uint8_t *const *windows,
			const uint32_t *at, size_t n, struct window_value *const *lists);

#endif

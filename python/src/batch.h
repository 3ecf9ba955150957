/*
 * Batch: the result of a sample, as numpy arrays made on first access.
 */
#ifndef RLV_PYTHON_SRC_BATCH_H
#define RLV_PYTHON_SRC_BATCH_H

#include "python/src/array.h"
#include "python/src/slot.h"

#define LAYOUT_EXTRAS 5 /* key, weight, probability, priority, policy_version */
#define LAYOUT_ARRAYS (RLV_MAX_ARRAYS + LAYOUT_EXTRAS)

/* Reference-counted, under the interpreter lock. */
struct layout {
	unsigned refs;
	uint32_t n_arrays; /* extras included */
	PyObject *names;   /* tuple: the table's columns, discount and steps; then the extras */
	PyObject *index;   /* name -> number in arrays, or a dict of such for nested columns */
	struct array_layout arrays[LAYOUT_ARRAYS];
};

/*
 * Makes the layout of the batch in a slot, to which the caller has a reference. NULL with an
 * exception. Other threads run meanwhile; the batch is read before.
 */
struct layout *layout_open(const struct slot *slot);

/* True if the batch in a slot has this layout, which depends on n_step. */
bool layout_fits(const struct layout *layout, const struct slot *slot);
void layout_put(struct layout *layout);

/* Makes a Batch of the slot's contents. NULL with an exception: the slot is then already
   returned. */
PyObject *batch_make(struct layout *layout, struct slot *slot);

#endif

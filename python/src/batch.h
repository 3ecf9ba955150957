/*
 * Batch: the result of a sample, as numpy arrays made on first access.
 */
#ifndef RLV_PYTHON_SRC_BATCH_H
#define RLV_PYTHON_SRC_BATCH_H

#include "python/src/array.h"
#include "python/src/slot.h"

/* Reference-counted, under the interpreter lock. */
struct layout {
	unsigned refs;
	uint32_t n_arrays; /* extras included */
	PyObject *names;   /* tuple: the table's columns, discount and steps; then the extras */
	PyObject *index;   /* name -> number in arrays, or a dict of such for nested columns */
	struct array_layout arrays[];
};

/* Drops a reference; NULL is none. */
void layout_put(struct layout *layout);

/*
 * Makes a Batch of what the library left in a slot. *last is the layout of the last batch, or NULL, and
 * is replaced where this one's differs. NULL with an exception: the slot is then already returned.
 */
PyObject *batch_make(struct slot *slot, struct layout **last);

#endif

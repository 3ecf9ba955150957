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

/* Drops a reference to a layout, which is freed with its last one. NULL: does nothing. */
void layout_put(struct layout *layout);

/*
 * Makes a Python Batch of the library's batch in a slot. *last is the layout of the sampler's last
 * batch, or NULL: it is used again if it fits this batch, else replaced by a new one. NULL with an
 * exception: the slot is then marked as returned already.
 */
PyObject *batch_make(struct slot *slot, struct layout **last);

#endif

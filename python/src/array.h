/*
 * Array: numpy arrays on memory of ours, by numpy's C API. np.asarray(buffer) makes the same array at
 * five times the cost, which a learner pays for each column of each batch.
 *
 * The API is a table of functions whose places never change within a major version of its ABI; it is
 * looked up at run time, so that one extension serves numpy 1 and 2 and builds without numpy.
 */
#ifndef RLV_PYTHON_SRC_ARRAY_H
#define RLV_PYTHON_SRC_ARRAY_H

#include "python/src/core.h"

/* Finds numpy. 0, or -1 with an exception: ImportError for an unknown ABI. */
int array_init(void);

/* numpy's dtype of a name. NULL with an exception. */
PyObject *array_dtype(const char *name);

struct array_spec {
	PyObject *dtype; /* from array_dtype */
	int ndim;
	const Py_ssize_t *shape, *strides; /* in elements and in bytes */
	bool read_only;
};

/* Makes an array on data. It holds a reference to `owner`, which keeps data valid. NULL with an
   exception. */
PyObject *array_make(const struct array_spec *spec, void *data, PyObject *owner);

#endif

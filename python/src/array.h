/*
 * Array: numpy arrays on memory of ours, by numpy's C API, and the memory of other libraries' tensors, by
 * DLPack's. np.asarray(buffer) makes the same array at five times the cost, which a learner pays for each column
 * of each batch.
 *
 * numpy's API is a table of functions whose places never change within a major version of its ABI; it is
 * looked up at run time, so that one extension serves numpy 1 and 2 and builds without numpy.
 */
#ifndef RLV_PYTHON_SRC_ARRAY_H
#define RLV_PYTHON_SRC_ARRAY_H

#include "python/src/column.h"

/* Imports numpy and looks up its C functions. 0, or -1 with an exception: ImportError if numpy's
   ABI is neither version 1 nor 2, or numpy is missing. */
int array_init(void);

#define ARRAY_DIMS (RLV_MAX_DIMS + 2)

/* Layout of one array, the same in all batches of a sampler with the same n_step. */
struct array_layout {
	size_t offset;            /* in the slot's memory */
	PyObject *dtype;          /* numpy's ... */
	const struct dtype *type; /* ... and ours */
	bool read_only;
	bool weight; /* importance weights, which a device may have computed */
	int ndim;
	Py_ssize_t shape[ARRAY_DIMS];   /* [0] is not read */
	Py_ssize_t strides[ARRAY_DIMS]; /* in bytes */
	char name[RLV_NAME_BYTES + 8];  /* next_<column> */
};

/* Makes a numpy array on a slot's memory, without a copy, with n as its first dimension. The array
   holds a reference to `owner`, which keeps the memory valid. NULL with an exception. */
PyObject *array_make(const struct array_layout *layout, uint32_t n, uint8_t *memory,
		     PyObject *owner);

/*
 * Looks at an array of numpy's own class with packed numbers of this machine's byte order, in a tenth of the time
 * of its buffer. *out is valid as long as the array is not resized by others. false, without an exception:
 * it is none, or another one.
 */
bool array_look(PyObject *value, struct elements *out);

/*
 * Looks at a tensor whose type has DLPack's functions for C (dlpack.h, DLPackExchangeAPI; torch 2.10 and
 * later): ten times as fast as its method numpy(). *out is valid as long as the tensor is not changed
 * by others. false, without an exception: it is none, is on a device, or is a negated view.
 */
bool tensor_look(PyObject *value, struct elements *out);

#endif

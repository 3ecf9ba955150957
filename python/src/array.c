#include "python/src/array.h"

#include <string.h>

/* Indices in numpy's table. */
enum {
	API_ABI_VERSION = 0,
	API_ARRAY_TYPE = 2,
	API_NEW_FROM_DESCR = 94,
	API_SET_BASE_OBJECT = 282,
};

enum { FLAG_WRITEABLE = 0x0400 };

#define ABI_MAJOR(version) ((version) >> 24)

typedef unsigned int abi_version_fn(void);
typedef PyObject *new_from_descr_fn(PyTypeObject *type, PyObject *dtype, int ndim,
				    const Py_ssize_t *shape, const Py_ssize_t *strides, void *data,
				    int flags, PyObject *like);
typedef int set_base_object_fn(PyObject *array, PyObject *base);

static PyTypeObject *array_type;
static new_from_descr_fn *new_from_descr;
static set_base_object_fn *set_base_object;

/* Copies the address at `place` of numpy's function table into a function pointer: ISO C has no
   cast from void * to that. */
static void take_function(void *const *api, int place, void *function_out)
{
	memcpy(function_out, &api[place], sizeof(api[place]));
}

int array_init(void)
{
	PyObject *module = PyImport_ImportModule("numpy._core._multiarray_umath"), *capsule;
	abi_version_fn *abi_version;
	unsigned int version;
	void **api;

	if (!module && PyErr_ExceptionMatches(PyExc_ModuleNotFoundError)) {
		PyErr_Clear(); /* numpy 1 */
		module = PyImport_ImportModule("numpy.core._multiarray_umath");
	}
	capsule = module ? PyObject_GetAttrString(module, "_ARRAY_API") : NULL;
	api = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
	Py_XDECREF(capsule); /* the module keeps it */
	Py_XDECREF(module);
	if (!api)
		return -1;
	take_function(api, API_ABI_VERSION, &abi_version);
	version = abi_version();
	if (ABI_MAJOR(version) != 1 && ABI_MAJOR(version) != 2) {
		PyErr_Format(PyExc_ImportError,
			     "numpy's C ABI has version %u; relive supports 1 and 2: install "
			     "another numpy",
			     ABI_MAJOR(version));
		return -1;
	}
	array_type = api[API_ARRAY_TYPE];
	take_function(api, API_NEW_FROM_DESCR, &new_from_descr);
	take_function(api, API_SET_BASE_OBJECT, &set_base_object);
	return 0;
}

PyObject *array_make(const struct array_layout *layout, uint32_t n, uint8_t *memory,
		     PyObject *owner)
{
	Py_ssize_t shape[ARRAY_DIMS];
	PyObject *array;

	memcpy(shape, layout->shape, sizeof(shape));
	shape[0] = n;
	Py_INCREF(layout->dtype); /* new_from_descr consumes it, also on failure */
	array = new_from_descr(array_type, layout->dtype, layout->ndim, shape, layout->strides,
			       memory + layout->offset, layout->read_only ? 0 : FLAG_WRITEABLE,
			       NULL);
	if (!array)
		return NULL;
	Py_INCREF(owner); /* as set_base_object does */
	if (set_base_object(array, owner) == 0)
		return array;
	Py_DECREF(array);
	return NULL;
}

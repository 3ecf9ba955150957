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

/* -------- arrays of others -------- */

enum { FLAGS_PLAIN = 0x0101 }; /* packed in C's order, and aligned */

/* The members of numpy's structs up to what is used: the same in versions 1 and 2 of its ABI. */
struct array_descr {
	PyObject base;
	PyTypeObject *type;
	char kind, letter, byte_order, flags;
	int number;
};

struct array_object {
	PyObject base;
	void *data;
	int ndim;
	const Py_ssize_t *shape, *strides;
	PyObject *owner;
	const struct array_descr *dtype;
	int flags;
};

bool array_look(PyObject *value, struct elements *out)
{
	static const uint8_t of_number[] = { RLV_BOOL, RLV_I8,  RLV_U8,  RLV_I16, RLV_U16,
					     RLV_I32,  RLV_U32, RLV_I64, RLV_U64, RLV_I64,
					     RLV_U64,  RLV_F32, RLV_F64 };
	const struct array_object *array = (const struct array_object *)value;
	const struct array_descr *dtype;

	static_assert(sizeof(long) == 8, "numpy's numbers 7 and 8 are of long");
	if (Py_TYPE(value) != array_type)
		return false;
	dtype = array->dtype;
	if (dtype->number < 0 || dtype->number >= (int)sizeof(of_number) ||
	    dtype->byte_order == '>' || (array->flags & FLAGS_PLAIN) != FLAGS_PLAIN)
		return false;
	*out = (struct elements){ .data = array->data,
				  .dtype = of_number[dtype->number],
				  .ndim = array->ndim,
				  .shape = array->shape,
				  .packed = true };
	return true;
}

/* -------- tensors -------- */

enum { DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT = 4, DL_BOOL = 6 };
enum { DL_CPU = 1, DL_CUDA_HOST = 3 };

struct dl_tensor {
	void *data;
	int32_t device_type, device_id;
	int32_t ndim;
	uint8_t code, bits;
	uint16_t lanes;
	int64_t *shape, *strides; /* in elements; strides NULL = packed */
	uint64_t byte_offset;
};

typedef int dl_look_fn(void *object, struct dl_tensor *out);

/* The members of DLPackExchangeAPI up to what is used. */
struct dl_api {
	uint32_t major, minor;
	void *previous, *alloc, *from_object, *to_object;
	dl_look_fn *look;
};

/* Returns the function of a type, or NULL; remembers the last type's. */
static dl_look_fn *look_of_type(PyTypeObject *type)
{
	static PyTypeObject *last; /* a reference */
	static dl_look_fn *look;
	const struct dl_api *api = NULL;
	PyObject *capsule;

	if (type == last)
		return look;
	capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
	if (capsule && PyCapsule_CheckExact(capsule))
		api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
	PyErr_Clear();
	Py_XDECREF(capsule); /* the library keeps the table */
	Py_INCREF((PyObject *)type);
	Py_XDECREF((PyObject *)last);
	last = type;
	look = api && api->major == 1 ? api->look : NULL;
	return look;
}

static uint32_t dtype_of_tensor(const struct dl_tensor *t)
{
	static const uint8_t of[][4] = {
		[DL_INT] = { RLV_I8, RLV_I16, RLV_I32, RLV_I64 },
		[DL_UINT] = { RLV_U8, RLV_U16, RLV_U32, RLV_U64 },
		[DL_FLOAT] = { 0, RLV_F16, RLV_F32, RLV_F64 },
		[DL_BFLOAT] = { 0, RLV_BF16, 0, 0 },
		[DL_BOOL] = { RLV_BOOL, 0, 0, 0 },
	};
	int log = t->bits == 8 ? 0 : t->bits == 16 ? 1 : t->bits == 32 ? 2 : t->bits == 64 ? 3 : -1;

	return t->lanes == 1 && log >= 0 && t->code <= DL_BOOL ? of[t->code][log] : 0;
}

/* True if strides say that the elements are packed; also those of dimensions of 1 must, as those of
   negated views do not. */
static bool tensor_is_packed(const struct dl_tensor *t)
{
	int64_t stride = 1;

	for (int d = t->ndim - 1; t->strides && d >= 0; d--) {
		if (t->strides[d] != stride)
			return false;
		stride *= t->shape[d];
	}
	return true;
}

/* A number of torch may be a view whose sign is to be changed: z.conj().imag. */
static bool tensor_is_negated(PyObject *value, const struct dl_tensor *t)
{
	static PyObject *name;
	PyObject *is_neg;
	bool negated;

	if (t->ndim || t->code != DL_FLOAT)
		return false;
	if (!name)
		name = PyUnicode_InternFromString("is_neg");
	is_neg = name ? PyObject_CallMethodObjArgs(value, name, NULL) : NULL;
	negated = is_neg == Py_True;
	PyErr_Clear(); /* other libraries have no such views */
	Py_XDECREF(is_neg);
	return negated;
}

bool tensor_look(PyObject *value, struct elements *out)
{
	dl_look_fn *look = look_of_type(Py_TYPE(value));
	struct dl_tensor t;

	static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "a shape is one of Python's");
	if (!look)
		return false;
	if (look(value, &t)) {
		PyErr_Clear();
		return false;
	}
	if ((t.device_type != DL_CPU && t.device_type != DL_CUDA_HOST) ||
	    tensor_is_negated(value, &t))
		return false;
	*out = (struct elements){ .data = (const uint8_t *)t.data + t.byte_offset,
				  .dtype = dtype_of_tensor(&t),
				  .ndim = t.ndim,
				  .shape = (const Py_ssize_t *)t.shape,
				  .packed = tensor_is_packed(&t) };
	return true;
}

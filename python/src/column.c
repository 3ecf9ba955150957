#include "python/src/column.h"

#include "python/src/array.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct dtype dtypes[] = {
	[RLV_BOOL] = { "bool", 1, 'b' },     [RLV_U8] = { "uint8", 1, 'u' },
	[RLV_I8] = { "int8", 1, 'i' },       [RLV_U16] = { "uint16", 2, 'u' },
	[RLV_I16] = { "int16", 2, 'i' },     [RLV_U32] = { "uint32", 4, 'u' },
	[RLV_I32] = { "int32", 4, 'i' },     [RLV_U64] = { "uint64", 8, 'u' },
	[RLV_I64] = { "int64", 8, 'i' },     [RLV_F16] = { "float16", 2, 'f' },
	[RLV_F32] = { "float32", 4, 'f' },   [RLV_F64] = { "float64", 8, 'f' },
	[RLV_BF16] = { "bfloat16", 2, 'f' },
};

const struct dtype *dtype_of(uint32_t code)
{
	return code < sizeof(dtypes) / sizeof(dtypes[0]) && dtypes[code].name ? &dtypes[code]
									      : NULL;
}

void column_of(const struct rlv_column *in, struct column *out)
{
	bool is_number = (in->dtype == RLV_F32 || in->dtype == RLV_F64) && in->ndim == 0;

	*out = (struct column){ .name = in->name,
				.dtype = in->dtype,
				.bytes = dtype_of(in->dtype)->bytes,
				.ndim = (int)in->ndim,
				.is_obs = in->role == RLV_OBS,
				.is_reward = is_number && (in->role == RLV_REWARD ||
							   strcmp(in->name, "reward") == 0) };
	for (uint32_t d = 0; d < in->ndim; d++) {
		out->shape[d] = in->shape[d];
		out->bytes *= in->shape[d];
	}
}

double column_number(uint32_t dtype, const void *data, size_t i)
{
	float single;
	double full;

	if (dtype == RLV_F64) {
		memcpy(&full, (const uint8_t *)data + i * sizeof(full), sizeof(full));
		return full;
	}
	memcpy(&single, (const uint8_t *)data + i * sizeof(single), sizeof(single));
	return (double)single;
}

/* Without a branch in the loop: nearly always none is. */
#define FIND_NONFINITE(type, exponent) \
	do { \
		type found = 0; \
		for (uint32_t k = 0; k < n; k++) { \
			type bits; \
			memcpy(&bits, (const uint8_t *)data + (size_t)k * sizeof(bits), \
			       sizeof(bits)); \
			found |= (type)((bits & (exponent)) == (exponent)); \
		} \
		any = found; \
	} while (0)

uint32_t column_find_nonfinite(const struct column *col, const void *data, uint32_t n)
{
	uint32_t i = 0;
	bool any;

	if (col->dtype == RLV_F64)
		FIND_NONFINITE(uint64_t, UINT64_C(0x7ff) << 52);
	else
		FIND_NONFINITE(uint32_t, UINT32_C(0xff) << 23);
	if (!any)
		return n;
	while (i < n && isfinite(column_number(col->dtype, data, i)))
		i++;
	return i;
}

/* -------- buffers -------- */

/* Returns the rlv_dtype of a buffer's elements. 0 = no rlv_dtype has their format. */
static uint32_t dtype_of_buffer(const Py_buffer *view)
{
	static const uint8_t of_format[256] = {
		['?'] = RLV_BOOL, ['B'] = RLV_U8,  ['b'] = RLV_I8,  ['H'] = RLV_U16,
		['h'] = RLV_I16,  ['I'] = RLV_U32, ['i'] = RLV_I32, ['L'] = RLV_U64,
		['l'] = RLV_I64,  ['Q'] = RLV_U64, ['q'] = RLV_I64, ['e'] = RLV_F16,
		['f'] = RLV_F32,  ['d'] = RLV_F64,
	};
	const char *format = view->format ? view->format : "B";
	uint32_t dtype;

	if (format[0] == '@' || format[0] == '=' || format[0] == '<')
		format++;
	if (format[0] == '\0' || format[1] != '\0')
		return 0;
	dtype = of_format[(uint8_t)format[0]];
	if (view->itemsize == 4 && (dtype == RLV_I64 || dtype == RLV_U64))
		dtype -= RLV_I64 - RLV_I32; /* l and L have 4 bytes where they are not native */
	return view->itemsize == dtypes[dtype].bytes ? dtype : 0;
}

/* Points *source at elements, or at what they are converted to. false: their dtype, shape or layout is
   left to numpy, which converts them or raises the exception. */
static bool bind_elements(const struct column *col, const struct elements *from,
			  const struct demand *demand, struct source *source)
{
	int batch = demand->batched ? 1 : 0;
	bool fits = from->packed && from->ndim == col->ndim + batch &&
		    (!batch || from->shape[0] == demand->n);
	size_t n = (size_t)demand->n * (col->bytes / dtypes[col->dtype].bytes);
	const uint8_t *bytes = from->data;
	uint8_t bits = 0;
	void *to;

	for (int d = 0; fits && d < col->ndim; d++)
		fits = from->shape[batch + d] == col->shape[d];
	if (!from->dtype || !fits)
		return false;
	source->data = bytes;
	if (col->dtype == RLV_BOOL && (from->dtype == RLV_U8 || from->dtype == RLV_I8)) {
		for (size_t i = 0; i < n; i++)
			bits |= bytes[i];
		if (bits <= 1) /* the bytes are bools */
			return true;
	}
	/* uint16 are the bits of bfloat16, int64 those of keys */
	if (from->dtype == col->dtype || (from->dtype == RLV_U16 && col->dtype == RLV_BF16) ||
	    (from->dtype == RLV_I64 && demand->keys))
		return true;
	to = demand->stage ? demand->stage : malloc((size_t)demand->n * col->bytes);
	source->own = demand->stage ? NULL : to;
	source->data = to;
	return to && convert_elements(from->dtype, bytes, col->dtype, to, n);
}

/* The same for the buffer of a value. */
static bool bind_buffer(const struct column *col, PyObject *value, const struct demand *demand,
			struct source *source)
{
	Py_buffer *view = &source->view;

	if (PyObject_GetBuffer(value, view, PyBUF_RECORDS_RO)) {
		PyErr_Clear(); /* numpy's message is better */
		return false;
	}
	if (bind_elements(col,
			  &(struct elements){ .data = view->buf,
					      .dtype = dtype_of_buffer(view),
					      .ndim = view->ndim,
					      .shape = view->shape,
					      .packed = PyBuffer_IsContiguous(view, 'C') },
			  demand, source))
		return true;
	source_release(source);
	return false;
}

/* The same for elements of a value, to which the source then has a reference. */
static bool bind_looked(const struct column *col, PyObject *value, const struct elements *from,
			const struct demand *demand, struct source *source)
{
	if (!bind_elements(col, from, demand, source)) {
		source_release(source);
		return false;
	}
	Py_INCREF(value);
	source->owner = value;
	return true;
}

/* The same for what has a method numpy(), such as a tensor on the host that wants no gradient. */
static bool bind_numpy(const struct column *col, PyObject *value, const struct demand *demand,
		       struct source *source)
{
	static PyObject *name;
	PyObject *array;
	bool bound;

	if (!name)
		name = PyUnicode_InternFromString("numpy");
	array = name ? PyObject_CallMethodObjArgs(value, name, NULL) : NULL;
	bound = array && PyObject_CheckBuffer(array) && bind_buffer(col, array, demand, source);

	if (!array)
		PyErr_Clear(); /* the slow way says what is wrong */
	Py_XDECREF(array);
	return bound;
}

int column_bind(const struct column *col, PyObject *value, const struct demand *demand,
		struct source *source)
{
	bool is_number = !demand->batched && col->ndim == 0 && demand->stage;
	PyObject *shape, *array;
	struct elements from;
	long long integer;
	int overflow, ret;
	bool bound;

	source->data = demand->stage;
	source->own = NULL;
	source->owner = NULL;
	source->view.obj = NULL;
	if (is_number && PyFloat_Check(value) &&
	    convert_float(col->dtype, PyFloat_AsDouble(value), demand->stage))
		return 0;
	if (is_number && PyLong_Check(value)) {
		integer = PyLong_AsLongLongAndOverflow(value, &overflow);
		if (!overflow && convert_integer(col->dtype, integer, demand->stage))
			return 0;
	}
	if (array_look(value, &from))
		bound = bind_looked(col, value, &from, demand, source);
	else if (PyObject_CheckBuffer(value))
		bound = bind_buffer(col, value, demand, source);
	else
		bound = (tensor_look(value, &from) &&
			 bind_looked(col, value, &from, demand, source)) ||
			bind_numpy(col, value, demand, source);
	if (bound)
		return 0;
	shape = PyList_New(0);
	if (shape && demand->batched)
		list_add(&shape, PyLong_FromUnsignedLong(demand->n));
	for (int d = 0; shape && d < col->ndim; d++)
		list_add(&shape, PyLong_FromSsize_t(col->shape[d]));
	shape = tuple_of_list(shape);
	if (!shape)
		return -1;
	array = python_call("relive._convert", "column", "(OsNsi)", value,
			    dtype_of(col->dtype)->name, shape, col->name, !demand->unchecked);
	if (!array)
		return -1;
	ret = PyObject_GetBuffer(array, &source->view, PyBUF_RECORDS_RO);
	Py_DECREF(array);
	if (ret == 0)
		source->data = source->view.buf;
	return ret;
}

void source_release(struct source *source)
{
	if (source->view.obj)
		PyBuffer_Release(&source->view);
	Py_CLEAR(source->owner);
	free(source->own);
	source->own = NULL;
}

/* -------- elements of other dtypes -------- */

/*
 * A loop over elements is slower than numpy's loops, but faster than a call of numpy: use it for rows and for
 * ends of episodes, not for images.
 */
enum { MOST_ELEMENTS = 16384 };

/* Copies one element of 1, 2, 4 or 8 bytes, with sizes that the compiler knows: a call of memcpy
   would cost more than the rest of the conversion. */
static inline void copy_element(void *to, const void *from, uint32_t bytes)
{
	if (bytes == 8)
		memcpy(to, from, 8);
	else if (bytes == 4)
		memcpy(to, from, 4);
	else if (bytes == 2)
		memcpy(to, from, 2);
	else
		memcpy(to, from, 1);
}

bool convert_float(uint32_t dtype, double number, void *to)
{
	float single = (float)number;

	if (dtype == RLV_F32)
		memcpy(to, &single, sizeof(single));
	else if (dtype == RLV_F64)
		memcpy(to, &number, sizeof(number));
	return dtype == RLV_F64 ||
	       (dtype == RLV_F32 && (fabs(number) <= (double)FLT_MAX || !isfinite(number)));
}

/* Returns the integer that the low type->bytes bytes of `bits` hold, with its sign if the type has
   one. Elements are little-endian. */
static inline int64_t integer_of(const struct dtype *type, uint64_t bits)
{
	unsigned int unused = 64 - 8 * type->bytes;

	bits <<= unused;
	return type->kind == 'i' ? (int64_t)bits >> unused : (int64_t)(bits >> unused);
}

static inline bool store_integer(const struct dtype *type, int64_t number, void *to)
{
	copy_element(to, &number, type->bytes);
	if (type->kind == 'b')
		return number == 0 || number == 1;
	return integer_of(type, (uint64_t)number) == number && (number >= 0 || type->kind == 'i');
}

bool convert_integer(uint32_t dtype, int64_t number, void *to)
{
	const struct dtype *type = dtype_of(dtype);

	return type->kind == 'f' ? convert_float(dtype, (double)number, to)
				 : store_integer(type, number, to);
}

bool convert_elements(uint32_t from_dtype, const void *from, uint32_t to_dtype, void *to, size_t n)
{
	const struct dtype *type = dtype_of(from_dtype), *to_type = dtype_of(to_dtype);
	bool is_float = from_dtype == RLV_F32 || from_dtype == RLV_F64;
	/* not U64: it may be more than an int64_t holds */
	bool fits = n <= MOST_ELEMENTS && from_dtype != RLV_U64 && (is_float || type->kind != 'f');
	const char *at = from;
	uint64_t bits = 0;
	char *put = to;

	for (size_t i = 0; fits && i < n; i++, at += type->bytes, put += to_type->bytes) {
		copy_element(&bits, at, type->bytes);
		if (is_float)
			fits = convert_float(to_dtype, column_number(from_dtype, from, i), put);
		else if (to_type->kind == 'f')
			fits = convert_float(to_dtype, (double)integer_of(type, bits), put);
		else
			fits = store_integer(to_type, integer_of(type, bits), put);
	}
	return fits;
}

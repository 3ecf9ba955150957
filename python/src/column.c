#include "python/src/column.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct dtype dtypes[] = {
	[RLV_BOOL] = { "bool", 1 },     [RLV_U8] = { "uint8", 1 },    [RLV_I8] = { "int8", 1 },
	[RLV_U16] = { "uint16", 2 },    [RLV_I16] = { "int16", 2 },   [RLV_U32] = { "uint32", 4 },
	[RLV_I32] = { "int32", 4 },     [RLV_U64] = { "uint64", 8 },  [RLV_I64] = { "int64", 8 },
	[RLV_F16] = { "float16", 2 },   [RLV_F32] = { "float32", 4 }, [RLV_F64] = { "float64", 8 },
	[RLV_BF16] = { "bfloat16", 2 },
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

/* -------- numbers -------- */

/* Stores a Python number as a scalar. false: numpy converts it, or says why not. */
static bool store_number(const struct column *col, PyObject *value, void *to)
{
	long long integer;
	int overflow;

	if (PyFloat_Check(value))
		return convert_float(col->dtype, PyFloat_AsDouble(value), to);
	if (!PyLong_Check(value))
		return false;
	integer = PyLong_AsLongLongAndOverflow(value, &overflow);
	return !overflow && convert_integer(col->dtype, integer, to);
}

/* -------- buffers -------- */

/* The rlv_dtype of a buffer's elements, 0 if there is none. */
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

static bool has_shape(const struct column *col, const Py_buffer *view, const struct demand *demand)
{
	int batch = demand->batched ? 1 : 0;

	if (view->ndim != col->ndim + batch || (batch && view->shape[0] != demand->n))
		return false;
	for (int d = 0; d < col->ndim; d++)
		if (view->shape[batch + d] != col->shape[d])
			return false;
	return PyBuffer_IsContiguous(view, 'C');
}

/* True if the buffer's elements need no conversion: bytes of 0 and 1 are bools, uint16 are the bits of
   bfloat16. */
static bool is_same(const struct column *col, uint32_t dtype, const Py_buffer *view)
{
	const uint8_t *bytes = view->buf;
	uint8_t bits = 0;

	if (dtype == col->dtype || (dtype == RLV_U16 && col->dtype == RLV_BF16))
		return true;
	if (col->dtype != RLV_BOOL || (dtype != RLV_U8 && dtype != RLV_I8))
		return false;
	for (Py_ssize_t i = 0; i < view->len; i++)
		bits |= bytes[i];
	return bits <= 1;
}

/* Binds a value with a buffer. false: numpy converts its dtype or shape, or says why not. */
static bool bind_buffer(const struct column *col, PyObject *value, const struct demand *demand,
			struct source *source)
{
	uint32_t dtype;
	void *to;

	if (PyObject_GetBuffer(value, &source->view, PyBUF_RECORDS_RO)) {
		PyErr_Clear(); /* numpy's message is better */
		source_init(source);
		return false;
	}
	if (has_shape(col, &source->view, demand)) {
		dtype = dtype_of_buffer(&source->view);
		source->data = source->view.buf;
		if (is_same(col, dtype, &source->view))
			return true;
		to = demand->stage ? demand->stage : malloc((size_t)demand->n * col->bytes);
		source->own = demand->stage ? NULL : to;
		source->data = to;
		if (to && dtype &&
		    convert_elements(dtype, source->view.buf, col->dtype, to,
				     (size_t)(source->view.len / source->view.itemsize)))
			return true;
	}
	source_release(source);
	source_init(source);
	return false;
}

/* -------- numpy -------- */

static int bind_by_numpy(const struct column *col, PyObject *value, const struct demand *demand,
			 struct source *source)
{
	PyObject *shape = PyList_New(0), *array;
	int ret;

	if (shape && demand->batched)
		list_add(&shape, PyLong_FromUnsignedLong(demand->n));
	for (int d = 0; shape && d < col->ndim; d++)
		list_add(&shape, PyLong_FromSsize_t(col->shape[d]));
	shape = tuple_of_list(shape);
	if (!shape)
		return -1;
	array = python_call("relive._convert", "column", "(OsOsi)", value,
			    dtype_of(col->dtype)->name, shape, col->name, !demand->unchecked);
	Py_DECREF(shape);
	if (!array)
		return -1;
	ret = PyObject_GetBuffer(array, &source->view, PyBUF_RECORDS_RO);
	Py_DECREF(array);
	if (ret) {
		source_init(source);
		return -1;
	}
	source->data = source->view.buf;
	return 0;
}

int column_bind(const struct column *col, PyObject *value, const struct demand *demand,
		struct source *source)
{
	if (!demand->batched && col->ndim == 0 && demand->stage &&
	    store_number(col, value, demand->stage)) {
		source->data = demand->stage;
		return 0;
	}
	if (PyObject_CheckBuffer(value) && bind_buffer(col, value, demand, source))
		return 0;
	return bind_by_numpy(col, value, demand, source);
}

void source_release(struct source *source)
{
	if (source->view.obj)
		PyBuffer_Release(&source->view);
	free(source->own);
}

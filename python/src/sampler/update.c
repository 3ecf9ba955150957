/*
 * Priorities back into the table.
 */
#include "python/src/sampler/sampler.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static PyTypeObject *updated_type;

static PyObject *updated_of(const struct rlv_update_result *result)
{
	PyObject *tuple = PyStructSequence_New(updated_type);

	if (!tuple)
		return NULL;
	PyStructSequence_SetItem(tuple, 0, PyLong_FromUnsignedLong(result->updated));
	PyStructSequence_SetItem(tuple, 1, PyLong_FromUnsignedLong(result->stale));
	PyStructSequence_SetItem(tuple, 2, PyLong_FromUnsignedLong(result->clamped));
	if (PyErr_Occurred())
		Py_CLEAR(tuple);
	return tuple;
}

PyObject *sampler_update(PyObject *object, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "keys", "td_error", "priorities", "strict", NULL };
	static const struct column key = { .name = "keys", .dtype = RLV_U64, .bytes = 8 };
	struct column value = { .name = "td_error", .dtype = RLV_F32, .bytes = 4 };
	struct sampler *s = (struct sampler *)object;
	struct source key_source = { 0 }, value_source = { 0 };
	PyObject *keys, *td_error = Py_None, *priorities = Py_None, *tuple = NULL;
	struct rlv_update_result result = { 0 };
	struct demand demand = { .batched = true, .keys = true };
	float *sizes = NULL;
	int strict = 0, ret;
	bool is_td_error;
	Py_ssize_t n;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO$p", names, &keys, &td_error,
					 &priorities, &strict))
		return NULL;
	is_td_error = td_error != Py_None;
	if (s->landing && s->landing->device >= 0) {
		tuple = python_call("relive.landing", "update", "(OOOO)", object, keys, td_error,
				    priorities);
		if (tuple != Py_NotImplemented)
			return tuple;
		Py_CLEAR(tuple);
	}
	n = PyObject_Size(keys);
	if (n < 0)
		return NULL;
	if (n > INT32_MAX)
		return error_format(
			-EINVAL, "update_priorities: %zd keys, want at most %d: use several calls",
			n, INT32_MAX);
	if (is_td_error == (priorities != Py_None))
		return error_format(-EINVAL,
				    "update_priorities: give one of td_error and priorities");
	demand.n = (uint32_t)n;
	if (!is_td_error)
		value.name = "priorities";
	ret = column_bind(&key, keys, &demand, &key_source);
	demand.keys = false;
	if (ret || column_bind(&value, is_td_error ? td_error : priorities, &demand, &value_source))
		goto out;
	if (is_td_error) { /* the library wants |TD errors| */
		sizes = PyMem_Malloc((size_t)n * sizeof(*sizes));
		if (!sizes) {
			PyErr_NoMemory();
			goto out;
		}
		memcpy(sizes, value_source.data, (size_t)n * sizeof(*sizes));
		for (Py_ssize_t i = 0; i < n; i++)
			sizes[i] = fabsf(sizes[i]);
	}
	if (handle_enter(&s->h))
		goto out;
	ret = (is_td_error ? rlv_sampler_update : rlv_sampler_set_priorities)(
		s->h.sampler, key_source.data, sizes ? sizes : value_source.data, demand.n,
		&result);
	handle_leave(&s->h);
	tuple = ret ? error_raise(ret) : updated_of(&result);
	if (tuple && strict && result.stale) {
		python_call("relive.errors", "raise_stale", "(O)", tuple);
		Py_CLEAR(tuple);
	}
out:
	source_release(&key_source);
	source_release(&value_source);
	PyMem_Free(sizes);
	return tuple;
}

static PyStructSequence_Field updated_fields[] = {
	{ "updated", "priorities that were set" },
	{ "stale", "keys whose items were overwritten or retired: ignored" },
	{ "clamped", "values outside the view's range, stored as the nearest limit" },
	{ 0 },
};

static PyStructSequence_Desc updated_desc = {
	.name = "relive._core.Updated",
	.doc = "Counts of the keys of an update.",
	.fields = updated_fields,
	.n_in_sequence = 3,
};

int update_init(PyObject *module)
{
	updated_type = PyStructSequence_NewType(&updated_desc);
	return updated_type ? PyModule_AddType(module, updated_type) : -1;
}

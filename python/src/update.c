/*
 * Priorities back into the table.
 */
#include "python/src/sampler.h"

#include "python/src/column.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STACK_VALUES 1024

static PyTypeObject *updated_type;

struct update {
	struct source keys, values;
	uint32_t n;
	float stack[STACK_VALUES];
	float *scratch; /* n values */
};

/* Binds the keys, and td_error or priorities. 0, or -1 with an exception. */
static int update_bind(struct update *u, PyObject *keys, PyObject *td_error, PyObject *priorities)
{
	static const struct column key = { .name = "keys", .dtype = RLV_U64, .bytes = 8 };
	bool is_td_error = priorities == Py_None;
	const struct column value = { .name = is_td_error ? "td_error" : "priorities",
				      .dtype = RLV_F32,
				      .bytes = 4 };
	Py_ssize_t n = PyObject_Size(keys);
	struct demand demand = { .n = (uint32_t)n, .batched = true };
	float number;

	u->n = (uint32_t)n;
	u->scratch = u->stack;
	source_init(&u->keys);
	source_init(&u->values);
	if (n < 0)
		return -1;
	if (n > INT32_MAX)
		return error_invalid(
			"update_priorities: %zd keys, want at most %d: use several calls", n,
			INT32_MAX);
	if (column_bind(&key, keys, &demand, &u->keys))
		return -1;
	if ((td_error == Py_None) == (priorities == Py_None))
		return error_invalid("update_priorities: give one of td_error and priorities");
	if (u->n > STACK_VALUES)
		u->scratch = malloc(u->n * sizeof(float));
	if (!u->scratch) {
		PyErr_NoMemory();
		return -1;
	}
	demand.stage = u->scratch;
	if (column_bind(&value, is_td_error ? td_error : priorities, &demand, &u->values))
		return -1;
	for (uint32_t i = 0; is_td_error && i < u->n; i++) { /* the library wants |TD errors| */
		memcpy(&number, (const char *)u->values.data + i * sizeof(number), sizeof(number));
		u->scratch[i] = fabsf(number);
	}
	if (is_td_error)
		u->values.data = u->scratch;
	return 0;
}

PyObject *sampler_update(PyObject *object, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "keys", "td_error", "priorities", "strict", NULL };
	struct sampler *s = (struct sampler *)object;
	PyObject *keys, *td_error = Py_None, *priorities = Py_None;
	PyObject *tuple = NULL, *raised;
	struct rlv_update_result result = { 0 };
	struct update u; /* update_bind sets it: the stack is large */
	int strict = 0;
	int ret = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO$p", names, &keys, &td_error,
					 &priorities, &strict))
		return NULL;
	if (update_bind(&u, keys, td_error, priorities) || handle_enter(&s->h))
		goto out;
	ret = (td_error != Py_None ? rlv_sampler_update : rlv_sampler_set_priorities)(
		s->h.sampler, u.keys.data, u.values.data, u.n, &result);
	handle_leave(&s->h);
	if (ret)
		error_raise(ret);
	else
		tuple = PyStructSequence_New(updated_type);
	if (tuple) {
		PyStructSequence_SetItem(tuple, 0, PyLong_FromUnsignedLong(result.updated));
		PyStructSequence_SetItem(tuple, 1, PyLong_FromUnsignedLong(result.stale));
		PyStructSequence_SetItem(tuple, 2, PyLong_FromUnsignedLong(result.clamped));
		if (PyErr_Occurred())
			Py_CLEAR(tuple);
	}
	if (tuple && strict && result.stale) {
		raised = python_call("relive.errors", "raise_stale", "(O)", tuple);
		Py_DECREF(tuple);
		tuple = raised;
	}
out:
	source_release(&u.keys);
	source_release(&u.values);
	if (u.scratch != u.stack)
		free(u.scratch);
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

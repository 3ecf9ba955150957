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
	bool is_td_error;
	float stack[STACK_VALUES];
	float *scratch; /* n values */
};

static int bind_keys(struct update *u, PyObject *keys)
{
	static const struct column column = { .name = "keys", .dtype = RLV_U64, .bytes = 8 };
	Py_ssize_t n = PyObject_Size(keys);
	struct demand demand = { .n = (uint32_t)n, .batched = true };

	if (n < 0)
		return -1;
	if (n > INT32_MAX) {
		error_format(-EINVAL, "keys: %zd, want at most %d", n, INT32_MAX);
		return -1;
	}
	u->n = (uint32_t)n;
	return column_bind(&column, keys, &demand, &u->keys);
}

static int bind_values(struct update *u, PyObject *td_error, PyObject *priorities)
{
	struct column column = { .name = "priorities", .dtype = RLV_F32, .bytes = 4 };
	struct demand demand = { .n = u->n, .batched = true };
	PyObject *values = priorities;

	if ((td_error == Py_None) == (priorities == Py_None)) {
		error_format(-EINVAL, "update_priorities: give one of td_error and priorities");
		return -1;
	}
	u->is_td_error = priorities == Py_None;
	if (u->is_td_error) {
		column.name = "td_error";
		values = td_error;
	}
	u->scratch = u->stack;
	if (u->n > STACK_VALUES)
		u->scratch = malloc(u->n * sizeof(float));
	if (!u->scratch) {
		PyErr_NoMemory();
		return -1;
	}
	demand.stage = u->scratch;
	return column_bind(&column, values, &demand, &u->values);
}

static int run_update(struct sampler *s, struct update *u, struct rlv_update_result *result)
{
	const uint64_t *keys = u->keys.data;
	const float *values = u->values.data;
	float value;
	int ret;

	for (uint32_t i = 0; u->is_td_error && i < u->n; i++) { /* the library wants |TD errors| */
		memcpy(&value, (const char *)u->values.data + i * sizeof(value), sizeof(value));
		u->scratch[i] = fabsf(value);
		values = u->scratch;
	}
	if (handle_enter(&s->h))
		return 1;
	Py_BEGIN_ALLOW_THREADS if (u->is_td_error)
		ret = rlv_sampler_update(s->sampler, keys, values, u->n, result);
	else ret = rlv_sampler_set_priorities(s->sampler, keys, values, u->n, result);
	Py_END_ALLOW_THREADS handle_leave(&s->h);
	return ret;
}

static PyObject *result_tuple(const struct rlv_update_result *result)
{
	const unsigned long counts[] = { result->updated, result->stale, result->clamped };
	PyObject *tuple = PyStructSequence_New(updated_type);

	for (int i = 0; tuple && i < 3; i++) {
		PyObject *count = PyLong_FromUnsignedLong(counts[i]);

		if (count)
			PyStructSequence_SetItem(tuple, i, count);
		else
			Py_CLEAR(tuple);
	}
	return tuple;
}

PyObject *sampler_update(PyObject *object, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "keys", "td_error", "priorities", "strict", NULL };
	struct sampler *s = (struct sampler *)object;
	PyObject *keys, *td_error = Py_None, *priorities = Py_None;
	PyObject *tuple, *raised;
	struct rlv_update_result result = { 0 };
	struct update u;
	int strict = 0;
	int ret = 1;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO$p", names, &keys, &td_error,
					 &priorities, &strict))
		return NULL;
	source_init(&u.keys);
	source_init(&u.values);
	u.scratch = NULL;
	if (bind_keys(&u, keys) == 0 && bind_values(&u, td_error, priorities) == 0)
		ret = run_update(s, &u, &result);
	source_release(&u.keys);
	source_release(&u.values);
	if (u.scratch != u.stack)
		free(u.scratch);
	if (ret)
		return ret < 0 ? error_raise(ret) : NULL;
	tuple = result_tuple(&result);
	if (!tuple || !strict || result.stale == 0)
		return tuple;
	raised = python_call("relive.errors", "raise_stale", "(O)", tuple);
	Py_DECREF(tuple);
	return raised;
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

/*
 * The arguments of append: keywords to columns.
 */
#include "python/src/writer/writer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------- keywords -------- */

/*
 * Sets w->last_keys to the keyword numbers of a call's n names, in a tuple or list.
 * Names in a tuple that are the last call's, as the same tuple or the same strings, are not looked up again.
 * 0, or -1 with an exception: a name is unknown.
 */
static int number_names(struct writer *w, PyObject *names, Py_ssize_t n)
{
	PyObject *name, *tuple, *old = w->last_names;
	uint16_t keys[KEYS];
	bool same;

	if (names == old || n == 0)
		return 0;
	same = old && PyTuple_Check(names) && PyTuple_Size(old) == n;
	for (Py_ssize_t i = 0; same && i < n; i++)
		same = PyTuple_GetItem(names, i) == PyTuple_GetItem(old, i);
	if (same)
		return 0;
	tuple = PySequence_Tuple(names);
	n = tuple ? PyTuple_Size(tuple) : 0;
	for (Py_ssize_t i = 0; tuple && i < n; i++) {
		PyObject *key;

		name = PyTuple_GetItem(tuple, i);
		key = n <= KEYS ? PyDict_GetItemWithError(w->keys, name) : NULL;
		if (!key && !PyErr_Occurred())
			error_format(-EINVAL, "append: no column or option %R in table %s", name,
				     ((struct table *)w->h.parent)->info.name);
		if (key)
			keys[i] = (uint16_t)PyLong_AsLong(key);
		else
			Py_CLEAR(tuple);
	}
	if (!tuple)
		return -1;
	memcpy(w->last_keys, keys, sizeof(keys[0]) * (size_t)n);
	w->last_names = tuple;
	Py_XDECREF(old);
	return 0;
}

/* Holds the values of a dict in call->held. True if all keys are those of the last call, in its order. */
static bool hold_values(const struct writer *w, struct call *call, PyObject *dict)
{
	PyObject *old = w->last_names, *name, *value;
	Py_ssize_t at = 0, n = PyDict_Size(dict);
	bool same = old && PyTuple_Size(old) == n;

	while (call->n_held < KEYS && PyDict_Next(dict, &at, &name, &value)) {
		same = same && name == PyTuple_GetItem(old, call->n_held);
		Py_INCREF(value);
		call->held[call->n_held++] = value;
	}
	return same;
}

/* The same for the keys of a dict in the order of hold_values, which a class of dicts that iterates in
   another does not change. */
static int number_keys(struct writer *w, PyObject *dict)
{
	PyObject *names = PyDict_Keys(dict);
	int ret = names ? number_names(w, names, PyList_Size(names)) : -1;

	Py_XDECREF(names);
	return ret;
}

static void call_give(struct call *call, uint16_t key, PyObject *value)
{
	call->values[key] = value == Py_None ? NULL : value;
	if (value == Py_None && key >= KEY_FINAL_OF && key < KEY_TERMINATED)
		call->finals_are_none = true;
}

int call_begin(struct writer *w, struct call *call, PyObject *const *values,
	       Py_ssize_t n_positional, PyObject *names)
{
	const size_t columns = w->n_columns * sizeof(void *);
	Py_ssize_t n = names ? PyTuple_Size(names) : 0;
	PyObject *version;

	if (n_positional > 1 || (n_positional && !PyDict_Check(values[0]))) {
		PyErr_Format(PyExc_TypeError, "writer: give columns as keywords, or as one dict");
		return -1;
	}
	if (w->busy) {
		error_format(
			-EBUSY,
			"writer: another thread is in a call of it: open a writer for each thread");
		return -1;
	}
	w->busy = true;
	/* only what this writer uses: most tables have few of RLV_MAX_COLUMNS */
	memset(call->values, 0, columns);
	memset(call->values + KEY_FINAL_OF, 0, columns);
	memset(call->values + KEY_TERMINATED, 0, (KEYS - KEY_TERMINATED) * sizeof(void *));
	memset(call->columns, 0, columns);
	memset(call->finals, 0, columns);
	memset(call->ends, 0, offsetof(struct call, sources) - offsetof(struct call, ends));
	if (n_positional && !hold_values(w, call, values[0]) && number_keys(w, values[0]))
		goto err;
	for (uint32_t i = 0; i < call->n_held; i++)
		call_give(call, w->last_keys[i], call->held[i]);
	if (n && number_names(w, names, n))
		goto err;
	for (Py_ssize_t i = 0; i < n; i++)
		call_give(call, w->last_keys[i], values[n_positional + i]);
	version = call->values[KEY_POLICY_VERSION];
	if (!version || uint32_of(version, &call->policy_version))
		return 0;
	error_invalid("append: policy_version %R: want an integer, 0 to 2^32 - 1", version);
err:
	call_end(w, call, -1);
	return -1;
}

PyObject *call_end(struct writer *w, struct call *call, int ret)
{
	for (uint32_t i = 0; i < call->n_sources; i++)
		source_release(&call->sources[i]);
	while (call->n_held)
		Py_DECREF(call->held[--call->n_held]);
	while (call->n_scratch)
		free(call->scratch[--call->n_scratch]);
	w->busy = false;
	if (ret)
		return NULL;
	Py_RETURN_NONE;
}

int call_refuse(const struct writer *w, const struct call *call, int from, int to, const char *why)
{
	PyObject *name = Py_None, *number;
	Py_ssize_t at = 0;

	while (from < to && !call->values[from])
		from++;
	if (from == to)
		return 0;
	while (PyDict_Next(w->keys, &at, &name, &number) && PyLong_AsLong(number) != from)
		;
	return error_invalid("%S: %s", name, why);
}

/* -------- values -------- */

static int call_bind_column(struct call *call, const struct column *col, PyObject *value,
			    const struct demand *demand, const void **data_out)
{
	struct source *source = &call->sources[call->n_sources];

	if (column_bind(col, value, demand, source))
		return -1;
	call->n_sources++;
	*data_out = source->data;
	return 0;
}

void *call_scratch(struct call *call, size_t bytes)
{
	void *memory = malloc(call->n * bytes);

	if (memory)
		call->scratch[call->n_scratch++] = memory;
	else
		PyErr_NoMemory();
	return memory;
}

/* Raises InvalidArgument for a NaN or infinite reward, which spoils sums and losses. 0, or -1. */
static int check_rewards(const struct writer *w, const struct call *call, bool batched)
{
	for (uint32_t c = 0; c < w->n_columns; c++) {
		const struct column *col = &w->columns[c];
		const void *data = call->columns[c];
		uint32_t i = col->is_reward ? column_find_nonfinite(col, data, call->n) : call->n;
		PyObject *number;
		char at[16] = "";

		if (i == call->n)
			continue;
		number = PyFloat_FromDouble(column_number(col->dtype, data, i));
		if (batched)
			snprintf(at, sizeof(at), "[%u]", i);
		if (number)
			error_invalid(
				"append: column %s%s: %S is not a finite reward; a writer opened "
				"with check_values=False stores it",
				col->name, at, number);
		Py_XDECREF(number);
		return -1;
	}
	return 0;
}

int call_bind(struct writer *w, struct call *call, bool batched)
{
	static const struct column ends[] = {
		{ .name = "terminated", .dtype = RLV_BOOL, .bytes = 1 },
		{ .name = "truncated", .dtype = RLV_BOOL, .bytes = 1 },
		{ .name = "final", .dtype = RLV_BOOL, .bytes = 1 },
	};
	static const struct column td_error = { .name = "td_error", .dtype = RLV_F64, .bytes = 8 };
	struct demand demand = { .n = call->n, .batched = batched, .unchecked = w->unchecked };
	bool staged = call->n <= w->n_envs;
	const void *data;
	double *to;

	for (uint32_t c = 0; c < w->n_columns; c++) {
		PyObject *value = call->values[c];

		if (!value)
			return error_invalid("append: column %s is missing", w->columns[c].name);
		demand.stage = staged ? w->stage[c] : NULL;
		if (call_bind_column(call, &w->columns[c], value, &demand, &call->columns[c]))
			return -1;
	}
	for (int e = 0; e < 3; e++) {
		PyObject *value = call->values[KEY_TERMINATED + e];

		if (!value)
			continue;
		demand.stage = staged ? w->ends[e] : NULL;
		if (call_bind_column(call, &ends[e], value, &demand, &data))
			return -1;
		call->ends[e] = data;
	}
	if (!w->unchecked && check_rewards(w, call, batched))
		return -1;
	if (!call->values[KEY_TD_ERROR])
		return 0;
	demand.stage = to = staged ? w->td_error : call_scratch(call, sizeof(*to));
	if (!to || call_bind_column(call, &td_error, call->values[KEY_TD_ERROR], &demand, &data))
		return -1;
	memmove(to, data, call->n * sizeof(*to));
	for (uint32_t i = 0; i < call->n; i++) /* the library wants |TD errors| */
		to[i] = fabs(to[i]);
	call->td_error = to;
	return 0;
}

/* -------- final observations -------- */

/* Returns 1 if all observation columns are given, 0 if none is, -1 with an exception if only some
   are. first_key: 0 for the columns' own names, KEY_FINAL_OF for final_<column>. */
static int call_has_observation(const struct writer *w, const struct call *call, uint32_t first_key)
{
	uint32_t given = 0;

	for (uint32_t c = 0; c < w->n_columns; c++)
		given += call->values[first_key + c] != NULL;
	if (given == 0 || given == w->n_obs)
		return given != 0;
	return error_invalid(
		"final observation: some observation columns are missing: give all or none");
}

/*
 * Takes final_obs from infos, the dict of gymnasium's step(), as the call's final_obs, unless the
 * call gives that. 0, or -1 with an exception: infos is no dict, or has final_obs in mode disabled.
 */
static int read_infos(struct writer *w, struct call *call)
{
	PyObject *infos = call->values[KEY_INFOS], *final, *key;

	if (!infos)
		return 0;
	if (!PyDict_Check(infos))
		return error_invalid(
			"append: infos: want the dict that the vector's step() returned");
	final = PyDict_GetItemString(infos, "final_obs");
	if (!final || final == Py_None) {
		call->finals_are_none = true;
		return 0;
	}
	if (w->autoreset == AUTORESET_DISABLED)
		return error_invalid("append: infos has final observations, but autoreset is "
				     "\"disabled\": open the writer as table.writer(envs), or with "
				     "autoreset=\"same_step\"");
	key = PyDict_GetItemString(w->keys, "final_obs");
	if (!key || call->values[PyLong_AsLong(key)])
		return 0;
	Py_INCREF(final);
	call->held[call->n_held++] = final;
	call->values[PyLong_AsLong(key)] = final;
	return 0;
}

int call_bind_finals(struct writer *w, struct call *call)
{
	int given = read_infos(w, call) ? -1 : call_has_observation(w, call, KEY_FINAL_OF);
	struct demand demand = { .batched = w->batched, .unchecked = w->unchecked };
	PyObject *ended;

	if (given < 0 || autoreset_check_finals(w, call, given))
		return -1;
	if (!given)
		return 0;
	ended = PyList_New(0); /* numbers of the environments whose episode ends in this call */
	for (uint32_t i = 0; ended && i < call->n; i++)
		if (call_row_ended(call, i))
			list_add(&ended, PyLong_FromUnsignedLong(i));
	demand.n = ended ? (uint32_t)PyList_Size(ended) : 0;
	call->has_finals = demand.n != 0;
	for (uint32_t c = 0; ended && demand.n && c < w->n_columns; c++) {
		const struct column *col = &w->columns[c];
		PyObject *rows = call->values[KEY_FINAL_OF + c];

		if (!col->is_obs)
			continue;
		if (w->batched) /* packed, in the order of the environments */
			rows = python_call("relive._convert", "final_rows", "(OOssi)", rows, ended,
					   col->name, dtype_of(col->dtype)->name, !w->unchecked);
		else
			Py_INCREF(rows);
		if (!rows || call_bind_column(call, col, rows, &demand, &call->finals[c]))
			Py_CLEAR(ended);
		Py_XDECREF(rows); /* the source's buffer keeps it */
	}
	Py_XDECREF(ended);
	return ended ? 0 : -1;
}

int call_bind_last(struct writer *w, struct call *call)
{
	const struct demand one = { .n = 1, .unchecked = w->unchecked };
	int given = call_has_observation(w, call, 0);

	for (uint32_t c = 0; given > 0 && c < w->n_columns; c++)
		if (call->values[c] &&
		    call_bind_column(call, &w->columns[c], call->values[c], &one, &call->finals[c]))
			return -1;
	return given;
}

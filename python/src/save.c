/*
 * Saved tables: Table.save and Store.load. The library calls back now and then, so that a bar moves and ^C
 * ends the call.
 */
#include "python/src/core.h"

#include <relive/save.h>

#include <errno.h>

struct steps {
	struct handle *h; /* locked; its thread state is saved */
	PyObject *show;   /* called with done and total */
};

static int step(void *ctx, uint64_t done, uint64_t total)
{
	struct steps *steps = ctx;
	PyObject *shown;
	int failed;

	PyEval_RestoreThread(steps->h->thread);
	shown = PyObject_CallFunction(steps->show, "KK", (unsigned long long)done,
				      (unsigned long long)total);
	failed = !shown || PyErr_CheckSignals();
	Py_XDECREF(shown);
	steps->h->thread = PyEval_SaveThread();
	return failed;
}

static PyObject *save_result(int ret, const struct rlv_save_info *info)
{
	PyObject *items;

	if (ret)
		return PyErr_Occurred() ? NULL : error_raise(ret);
	items = PyList_New(0);
	for (uint32_t v = 0; items && v < info->n_views; v++)
		list_add(&items, PyLong_FromUnsignedLongLong(info->items[v]));
	return Py_BuildValue("{s:s,s:N,s:K,s:K,s:K}", "table", info->table, "items",
			     tuple_of_list(items), "rows", info->rows, "bytes", info->bytes,
			     "reused_bytes", info->reused_bytes);
}

PyObject *table_save(PyObject *object, PyObject *args)
{
	struct table *self = (struct table *)object;
	struct rlv_save_opts opts = RLV_SAVE_OPTS_INIT;
	struct rlv_save_info info = { .size = sizeof(info) };
	struct steps steps = { .h = &self->h };
	PyObject *path = NULL, *base = NULL, *told = NULL;
	int ret;

	if (!PyArg_ParseTuple(args, "O&IOO", PyUnicode_FSConverter, &path, &opts.compress, &base,
			      &steps.show))
		return NULL;
	if (base == Py_None)
		base = NULL;
	else if (!PyUnicode_FSConverter(base, &base))
		goto out_path;
	opts.base = base ? PyBytes_AsString(base) : NULL;
	opts.progress = step;
	opts.ctx = &steps;
	if (handle_enter(&self->h) == 0) {
		ret = rlv_table_save(self->h.table, PyBytes_AsString(path), &opts, &info);
		handle_leave(&self->h);
		told = save_result(ret, &info);
	}
	Py_XDECREF(base);
out_path:
	Py_DECREF(path);
	return told;
}

PyObject *store_load(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	struct rlv_load_opts opts = RLV_LOAD_OPTS_INIT;
	struct rlv_save_info info = { .size = sizeof(info) };
	struct steps steps = { .h = self };
	struct rlv_table *table = NULL;
	PyObject *path = NULL, *told = NULL;
	int ret, replace;

	if (!PyArg_ParseTuple(args, "O&zIpO", PyUnicode_FSConverter, &path, &opts.name,
			      &opts.shards, &replace, &steps.show))
		return NULL;
	opts.replace = replace;
	opts.progress = step;
	opts.ctx = &steps;
	if (handle_enter(self) == 0) {
		ret = rlv_table_load(self->store, PyBytes_AsString(path), &opts, &info, &table);
		if (ret == 0)
			ret = rlv_table_close(&table);
		handle_leave(self);
		told = save_result(ret, &info);
	}
	Py_DECREF(path);
	return told;
}

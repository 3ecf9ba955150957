/*
 * Table: created from a signature and views, or opened by name; parent of writers and samplers.
 */
#include "python/src/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *table_type;

/* -------- options from tuples -------- */

static int parse_column(PyObject *tuple, struct rlv_column *out)
{
	PyObject *shape;
	Py_ssize_t ndim;

	if (!PyArg_ParseTuple(tuple, "sIIO!", &out->name, &out->dtype, &out->role, &PyTuple_Type,
			      &shape))
		return -1;
	ndim = PyTuple_Size(shape);
	out->ndim = ndim > UINT16_MAX ? UINT16_MAX : (uint32_t)ndim;
	for (Py_ssize_t d = 0; d < ndim && d < RLV_MAX_DIMS; d++) {
		unsigned long size = PyLong_AsUnsignedLong(PyTuple_GetItem(shape, d));

		if (PyErr_Occurred())
			return -1;
		out->shape[d] = size > UINT32_MAX ? UINT32_MAX : (uint32_t)size;
	}
	return 0;
}

/* -------- life -------- */

static PyObject *columns_list(const struct rlv_table_info *info)
{
	PyObject *list = PyList_New(0);

	for (uint32_t c = 0; list && c < info->n_columns; c++) {
		const struct rlv_column *col = &info->columns[c];
		PyObject *shape = PyList_New(0);

		for (uint32_t d = 0; shape && d < col->ndim; d++)
			list_add(&shape, PyLong_FromUnsignedLong(col->shape[d]));
		list_add(&list, Py_BuildValue("(sIIN)", col->name, col->dtype, col->role,
					      tuple_of_list(shape)));
	}
	return list;
}

/* A Table of a store: created if options are given, else opened. */
static PyObject *table_make(struct handle *store, const char *name,
			    const struct rlv_table_opts *opts)
{
	struct table *self = object_alloc(table_type);
	struct rlv_table_info *info;
	int ret;

	if (!self)
		return NULL;
	handle_init(&self->h, (PyObject *)store, HANDLE_TABLE);
	if (handle_enter(store)) {
		Py_DECREF(self);
		return NULL;
	}
	ret = opts ? rlv_table_create(store->store, name, opts, &self->h.table)
		   : rlv_table_open(store->store, name, &self->h.table);
	self->h.open = ret == 0;
	/* the table's name, columns and sizes do not change: read once */
	self->info = info = calloc(1, sizeof(*info));
	self->names = calloc(RLV_MAX_COLUMNS, sizeof(*self->names));
	if (ret == 0 && (!info || !self->names))
		ret = -ENOMEM;
	if (ret == 0) {
		info->size = sizeof(*info);
		ret = rlv_table_info(self->h.table, info);
	}
	for (uint32_t c = 0; ret == 0 && c < info->n_columns; c++) {
		memcpy(self->names[c], info->columns[c].name, strlen(info->columns[c].name) + 1);
		info->columns[c].name = self->names[c];
	}
	handle_leave(store);
	if (ret == 0) {
		self->name = info->name;
		self->columns = columns_list(info);
	} else {
		error_raise(ret);
	}
	if (self->columns)
		return (PyObject *)self;
	Py_DECREF(self);
	return NULL;
}

static PyObject *table_create(PyObject *Py_UNUSED(class), PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "store",    "name",    "columns",     "views",
				 "capacity", "shards",  "max_writers", "max_clients",
				 "block",    "row_crc", NULL };
	struct rlv_table_opts opts = RLV_TABLE_OPTS_INIT;
	struct rlv_column columns[RLV_MAX_COLUMNS] = { 0 };
	struct rlv_view views[RLV_MAX_VIEWS] = { 0 };
	PyObject *store, *column_tuples, *view_tuples;
	Py_ssize_t n_columns, n_views;
	unsigned long long capacity, min_size;
	const char *name;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!sO!O!KIIIII", names, store_type, &store,
					 &name, &PyList_Type, &column_tuples, &PyList_Type,
					 &view_tuples, &capacity, &opts.shards, &opts.max_writers,
					 &opts.max_clients, &opts.block, &opts.row_crc))
		return NULL;
	n_columns = PyList_Size(column_tuples);
	n_views = PyList_Size(view_tuples);
	if (n_columns > RLV_MAX_COLUMNS || n_views > RLV_MAX_VIEWS)
		return error_format(-EINVAL,
				    "create_table: %zd columns and %zd views, want at most %d and "
				    "%d: leave some out",
				    n_columns, n_views, RLV_MAX_COLUMNS, RLV_MAX_VIEWS);
	for (Py_ssize_t i = 0; i < n_columns; i++)
		if (parse_column(PyList_GetItem(column_tuples, i), &columns[i]))
			return NULL;
	for (Py_ssize_t i = 0; i < n_views; i++) {
		struct rlv_view *v = &views[i];

		if (!PyArg_ParseTuple(PyList_GetItem(view_tuples, i), "IIIIIIddKddd", &v->stack,
				      &v->n_step, &v->selector, &v->period, &v->max_times_sampled,
				      &v->max_staleness, &v->alpha, &v->eps, &min_size,
				      &v->limiter.samples_per_insert, &v->limiter.min_diff,
				      &v->limiter.max_diff))
			return NULL;
		v->limiter.min_size = min_size;
	}
	opts.n_columns = (uint32_t)n_columns;
	opts.columns = columns;
	opts.n_views = (uint32_t)n_views;
	opts.views = views;
	opts.capacity = capacity;
	return table_make((struct handle *)store, name, &opts);
}

static PyObject *table_open(PyObject *Py_UNUSED(class), PyObject *args)
{
	PyObject *store;
	const char *name;

	if (!PyArg_ParseTuple(args, "O!s", store_type, &store, &name))
		return NULL;
	return table_make((struct handle *)store, name, NULL);
}

/* Writers and samplers hold a reference to their table: none is open. */
static void table_dealloc(PyObject *object)
{
	struct table *self = (struct table *)object;

	handle_drop(&self->h);
	free(self->info);
	free(self->names);
	Py_CLEAR(self->columns);
	handle_free(&self->h);
}

/* -------- information -------- */

static PyObject *views_list(const struct rlv_table_info *info)
{
	PyObject *list = PyList_New(0);

	for (uint32_t i = 0; list && i < info->n_views; i++) {
		const struct rlv_view_info *at = &info->views[i];
		const struct rlv_view *v = &at->view;

		list_add(&list,
			 Py_BuildValue("{s:(IIIIIIddKddd),s:L,s:K,s:K,s:d,s:d,s:K}", "view",
				       v->stack, v->n_step, v->selector, v->period,
				       v->max_times_sampled, v->max_staleness, v->alpha, v->eps,
				       v->limiter.min_size, v->limiter.samples_per_insert,
				       v->limiter.min_diff, v->limiter.max_diff, "items", at->items,
				       "inserted", at->inserted, "sampled", at->sampled,
				       "priority_sum", at->priority_sum, "max_priority",
				       at->max_priority, "overhead_bytes", at->overhead_bytes));
	}
	return list;
}

static PyObject *table_info(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct table *self = (struct table *)object;
	struct rlv_table_info info = { .size = sizeof(info) };
	int ret;

	if (handle_enter(&self->h))
		return NULL;
	ret = rlv_table_info(self->h.table, &info);
	handle_leave(&self->h);
	if (ret)
		return error_raise(ret);
	return Py_BuildValue("{s:s,s:O,s:N,s:I,s:K,s:K,s:I,s:I,s:I,s:I,s:I,s:I,s:K,s:K}", "name",
			     info.name, "columns", self->columns, "views", views_list(&info),
			     "shards", info.shards, "capacity", info.capacity, "slots", info.slots,
			     "block", info.block, "window", info.window, "row_bytes",
			     info.row_bytes, "row_header_bytes", info.row_header_bytes,
			     "max_writers", info.max_writers, "max_clients", info.max_clients,
			     "rows_bytes", info.rows_bytes, "tree_bytes", info.tree_bytes);
}

static PyObject *table_verify(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct table *self = (struct table *)object;
	struct rlv_verify_report r = { .size = sizeof(r) };
	int ret;

	if (handle_enter(&self->h))
		return NULL;
	ret = rlv_table_verify(self->h.table, &r);
	handle_leave(&self->h);
	if (ret)
		return error_raise(ret);
	return Py_BuildValue("{s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:s}", "problems", r.problems,
			     "items", r.items, "wrong_sums", r.wrong_sums, "wrong_leaves",
			     r.wrong_leaves, "wrong_blocks", r.wrong_blocks, "wrong_rows",
			     r.wrong_rows, "wrong_words", r.wrong_words, "open_blocks",
			     r.open_blocks, "first_problem", r.first_problem);
}

static PyMethodDef methods[] = {
	{ "create", METHOD(table_create), METH_VARARGS | METH_KEYWORDS | METH_CLASS, NULL },
	{ "open", table_open, METH_VARARGS | METH_CLASS, NULL },
	{ "close", handle_close, METH_NOARGS, NULL },
	{ "info", table_info, METH_NOARGS, NULL },
	{ "verify", table_verify, METH_NOARGS, NULL },
	{ 0 },
};

static PyMemberDef members[] = {
	{ "is_open", T_BOOL, offsetof(struct table, h.open), READONLY, NULL },
	{ "name", T_STRING, offsetof(struct table, name), READONLY, NULL },
	{ "columns", T_OBJECT_EX, offsetof(struct table, columns), READONLY, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_dealloc, table_dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_members, members },
	{ 0, NULL },
};

PyType_Spec table_spec = {
	.name = "relive._core.Table",
	.basicsize = sizeof(struct table),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

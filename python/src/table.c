/*
 * Table: created from a signature and views, or opened by name; parent of writers and samplers.
 */
#include "python/src/core.h"

#include <errno.h>
#include <stdio.h>

PyTypeObject *table_type;

/* What a table is created with. */
struct create {
	struct rlv_table_opts opts;
	struct rlv_column columns[RLV_MAX_COLUMNS];
	struct rlv_view views[RLV_MAX_VIEWS];
};

/* Reads the columns and views of a new table, two lists of tuples, into *create. 0, or -1 with an
   exception. */
static int create_read(struct create *create, PyObject *columns, PyObject *views)
{
	Py_ssize_t n_columns = PyList_Size(columns), n_views = PyList_Size(views);

	if (n_columns > RLV_MAX_COLUMNS || n_views > RLV_MAX_VIEWS)
		return error_invalid("create_table: %zd columns and %zd views, want at most %d and "
				     "%d: leave some out",
				     n_columns, n_views, RLV_MAX_COLUMNS, RLV_MAX_VIEWS);
	for (Py_ssize_t i = 0; i < n_columns; i++) {
		struct rlv_column *c = &create->columns[i];
		PyObject *shape;
		Py_ssize_t ndim;

		if (!PyArg_ParseTuple(PyList_GetItem(columns, i), "sIIO!", &c->name, &c->dtype,
				      &c->role, &PyTuple_Type, &shape))
			return -1;
		ndim = PyTuple_Size(shape);
		c->ndim = ndim > UINT16_MAX ? UINT16_MAX : (uint32_t)ndim;
		for (Py_ssize_t d = 0; d < ndim && d < RLV_MAX_DIMS; d++) {
			unsigned long size = PyLong_AsUnsignedLong(PyTuple_GetItem(shape, d));

			c->shape[d] = size > UINT32_MAX ? UINT32_MAX : (uint32_t)size;
		}
		if (PyErr_Occurred())
			return -1;
	}
	for (Py_ssize_t i = 0; i < n_views; i++) {
		struct rlv_view *v = &create->views[i];

		if (!PyArg_ParseTuple(PyList_GetItem(views, i), "IIIIIIddkddd", &v->stack,
				      &v->n_step, &v->selector, &v->period, &v->max_times_sampled,
				      &v->max_staleness, &v->alpha, &v->eps, &v->limiter.min_size,
				      &v->limiter.samples_per_insert, &v->limiter.min_diff,
				      &v->limiter.max_diff))
			return -1;
	}
	create->opts.n_columns = (uint32_t)n_columns;
	create->opts.columns = create->columns;
	create->opts.n_views = (uint32_t)n_views;
	create->opts.views = create->views;
	return 0;
}

/* A Table of a store: created if columns and views are given, else opened. */
static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "store",    "name",    "columns",     "views",
				 "capacity", "shards",  "max_writers", "max_clients",
				 "block",    "row_crc", NULL };
	struct create create = { .opts = RLV_TABLE_OPTS_INIT };
	struct rlv_table_opts *opts = &create.opts;
	PyObject *parent, *columns = NULL, *views = NULL;
	struct handle *store;
	struct table *self;
	const char *name;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!s|O!O!kIIIII", names, store_type, &parent,
					 &name, &PyList_Type, &columns, &PyList_Type, &views,
					 &opts->capacity, &opts->shards, &opts->max_writers,
					 &opts->max_clients, &opts->block, &opts->row_crc) ||
	    (views && columns && create_read(&create, columns, views)))
		return NULL;
	self = handle_new(type, parent, NULL, HANDLE_TABLE, NULL);
	if (!self)
		return NULL;
	store = (struct handle *)parent;
	if (handle_enter(store))
		return handle_opened(&self->h, -ECANCELED);
	ret = views && columns ? rlv_table_create(store->store, name, opts, &self->h.table)
			       : rlv_table_open(store->store, name, &self->h.table);
	/* the table's name, columns and sizes do not change: read once */
	self->info.size = sizeof(self->info);
	if (ret == 0)
		ret = rlv_table_info(self->h.table, &self->info);
	for (uint32_t c = 0; ret == 0 && c < self->info.n_columns; c++) {
		snprintf(self->names[c], RLV_NAME_BYTES, "%s", self->info.columns[c].name);
		self->info.columns[c].name = self->names[c];
	}
	handle_leave(store);
	return handle_opened(&self->h, ret);
}

/* -------- information -------- */

/* A list of tuples. */
static PyObject *table_columns(PyObject *object, void *Py_UNUSED(unused))
{
	const struct rlv_table_info *info = &((struct table *)object)->info;
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

static PyObject *table_info(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct table *self = (struct table *)object;
	struct rlv_table_info info = { .size = sizeof(info) };
	PyObject *views;
	int ret;

	if (handle_enter(&self->h))
		return NULL;
	ret = rlv_table_info(self->h.table, &info);
	handle_leave(&self->h);
	if (ret)
		return error_raise(ret);
	views = PyList_New(0);
	for (uint32_t i = 0; views && i < info.n_views; i++) {
		const struct rlv_view_info *at = &info.views[i];
		const struct rlv_view *v = &at->view;

		list_add(&views,
			 Py_BuildValue("{s:(IIIIIIddKddd),s:L,s:K,s:K,s:d,s:d,s:K}", "view",
				       v->stack, v->n_step, v->selector, v->period,
				       v->max_times_sampled, v->max_staleness, v->alpha, v->eps,
				       v->limiter.min_size, v->limiter.samples_per_insert,
				       v->limiter.min_diff, v->limiter.max_diff, "items", at->items,
				       "inserted", at->inserted, "sampled", at->sampled,
				       "priority_sum", at->priority_sum, "max_priority",
				       at->max_priority, "overhead_bytes", at->overhead_bytes));
	}
	if (!views)
		return NULL;
	return Py_BuildValue("{s:s,s:N,s:N,s:I,s:K,s:K,s:I,s:I,s:I,s:I,s:I,s:I,s:K,s:K}", "name",
			     info.name, "columns", table_columns(object, NULL), "views", views,
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
	{ "close", handle_close, METH_NOARGS, NULL },
	{ "info", table_info, METH_NOARGS, NULL },
	{ "save", table_save, METH_VARARGS, NULL },
	{ "verify", table_verify, METH_NOARGS, NULL },
	{ 0 },
};

static PyMemberDef members[] = {
	{ "is_open", T_BOOL, offsetof(struct table, h.open), READONLY, NULL },
	{ "name", T_STRING_INPLACE, offsetof(struct table, info.name), READONLY, NULL },
	{ 0 },
};

static PyGetSetDef attributes[] = {
	{ "columns", table_columns, NULL, NULL, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, table_new },
	{ Py_tp_dealloc, handle_dealloc }, /* writers and samplers hold a reference: none is open */
	{ Py_tp_methods, methods },
	{ Py_tp_members, members },
	{ Py_tp_getset, attributes },
	{ 0, NULL },
};

PyType_Spec table_spec = {
	.name = "relive._core.Table",
	.basicsize = sizeof(struct table),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = slots,
};

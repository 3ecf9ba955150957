/*
 * Table: created from a signature and views, or opened by name; parent of writers and samplers.
 */
#include "python/src/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *table_type;

/* -------- options from tuples -------- */

/* The n-th element; borrowed. NULL = not that long. */
static PyObject *item(PyObject *sequence, Py_ssize_t n)
{
	PyObject *object = PySequence_GetItem(sequence, n);

	Py_XDECREF(object); /* the sequence keeps it */
	return object;
}

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
		unsigned long size = PyLong_AsUnsignedLong(item(shape, d));

		if (PyErr_Occurred())
			return -1;
		out->shape[d] = size > UINT32_MAX ? UINT32_MAX : (uint32_t)size;
	}
	return 0;
}

static int parse_view(PyObject *tuple, struct rlv_view *out)
{
	unsigned long long min_size;

	if (!PyArg_ParseTuple(tuple, "IIIIIIddKddd", &out->stack, &out->n_step, &out->selector,
			      &out->period, &out->max_times_sampled, &out->max_staleness,
			      &out->alpha, &out->eps, &min_size, &out->limiter.samples_per_insert,
			      &out->limiter.min_diff, &out->limiter.max_diff))
		return -1;
	out->limiter.min_size = min_size;
	return 0;
}

struct wishes {
	struct rlv_table_opts opts;
	struct rlv_column columns[RLV_MAX_COLUMNS];
	struct rlv_view views[RLV_MAX_VIEWS];
};

static int parse_lists(struct wishes *w, PyObject *columns, PyObject *views)
{
	Py_ssize_t n_columns = PySequence_Size(columns);
	Py_ssize_t n_views = PySequence_Size(views);

	if (n_columns < 0 || n_views < 0)
		return -1;
	if (n_columns > RLV_MAX_COLUMNS || n_views > RLV_MAX_VIEWS) {
		error_format(-EINVAL, "%zd columns and %zd views: want at most %d and %d",
			     n_columns, n_views, RLV_MAX_COLUMNS, RLV_MAX_VIEWS);
		return -1;
	}
	for (Py_ssize_t i = 0; i < n_columns; i++)
		if (parse_column(item(columns, i), &w->columns[i]))
			return -1;
	for (Py_ssize_t i = 0; i < n_views; i++)
		if (parse_view(item(views, i), &w->views[i]))
			return -1;
	w->opts.n_columns = (uint32_t)n_columns;
	w->opts.columns = w->columns;
	w->opts.n_views = (uint32_t)n_views;
	w->opts.views = w->views;
	return 0;
}

/* -------- life -------- */

/* The table's name, columns and sizes do not change: read once. */
static int read_info(struct table *self)
{
	struct rlv_table_info *info = calloc(1, sizeof(*info));
	int ret;

	self->info = info;
	self->names = calloc(RLV_MAX_COLUMNS, sizeof(*self->names));
	if (!info || !self->names)
		return -ENOMEM;
	info->size = sizeof(*info);
	ret = rlv_table_info(self->table, info);
	for (uint32_t c = 0; ret == 0 && c < info->n_columns; c++) {
		memcpy(self->names[c], info->columns[c].name, strlen(info->columns[c].name) + 1);
		info->columns[c].name = self->names[c];
	}
	return ret;
}

/* A Table of a store: created if wishes are given, else opened. */
static PyObject *make(struct store *store, const char *name, const struct wishes *wishes)
{
	struct table *self = object_alloc(table_type);
	int ret;

	if (!self)
		return NULL;
	handle_init(&self->h, (PyObject *)store);
	if (handle_enter(&store->h))
		goto err_free;
	Py_BEGIN_ALLOW_THREADS if (wishes)
		ret = rlv_table_create(store->store, name, &wishes->opts, &self->table);
	else ret = rlv_table_open(store->store, name, &self->table);
	self->h.open = ret == 0;
	if (ret == 0)
		ret = read_info(self);
	Py_END_ALLOW_THREADS handle_leave(&store->h);
	if (ret == 0)
		return (PyObject *)self;
	error_raise(ret);
err_free:
	Py_DECREF(self);
	return NULL;
}

static PyObject *table_create(PyObject *class, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "store",    "name",    "columns",     "views",
				 "capacity", "shards",  "max_writers", "max_clients",
				 "block",    "row_crc", NULL };
	struct wishes wishes = { .opts = RLV_TABLE_OPTS_INIT };
	struct rlv_table_opts *opts = &wishes.opts;
	unsigned long long capacity;
	PyObject *store, *columns, *views;
	const char *name;

	(void)class;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!sOOKIIIII", names, store_type, &store,
					 &name, &columns, &views, &capacity, &opts->shards,
					 &opts->max_writers, &opts->max_clients, &opts->block,
					 &opts->row_crc) ||
	    parse_lists(&wishes, columns, views))
		return NULL;
	opts->capacity = capacity;
	return make((struct store *)store, name, &wishes);
}

static PyObject *table_open(PyObject *class, PyObject *args)
{
	PyObject *store;
	const char *name;

	(void)class;
	if (!PyArg_ParseTuple(args, "O!s", store_type, &store, &name))
		return NULL;
	return make((struct store *)store, name, NULL);
}

/* For handle_close. */
static int close_locked(struct handle *h)
{
	struct table *self = (struct table *)h;
	int ret;

	Py_BEGIN_ALLOW_THREADS ret = rlv_table_close(&self->table);
	Py_END_ALLOW_THREADS self->h.open = self->table != NULL;
	handle_leave(&self->h);
	return ret;
}

static PyObject *table_close(PyObject *object, PyObject *unused)
{
	(void)unused;
	return handle_close((struct handle *)object, close_locked);
}

static void table_dealloc(PyObject *object)
{
	struct table *self = (struct table *)object;

	if (self->table && handle_enter_close(&self->h) == 1)
		(void)close_locked(&self->h); /* its handles hold a reference: none is open */
	free(self->info);
	free(self->names);
	handle_fini(&self->h);
	object_free(self);
}

/* -------- information -------- */

static PyObject *shape_tuple(const struct rlv_column *column)
{
	PyObject *shape = PyList_New(0);

	for (uint32_t d = 0; shape && d < column->ndim; d++)
		list_add(&shape, PyLong_FromUnsignedLong(column->shape[d]));
	return tuple_of_list(shape);
}

static PyObject *columns_list(const struct rlv_table_info *info)
{
	PyObject *list = PyList_New(0);

	for (uint32_t c = 0; list && c < info->n_columns; c++) {
		const struct rlv_column *col = &info->columns[c];

		list_add(&list, Py_BuildValue("(sIIN)", col->name, col->dtype, col->role,
					      shape_tuple(col)));
	}
	return list;
}

static PyObject *view_dict(const struct rlv_view_info *info)
{
	const struct rlv_view *v = &info->view;

	return Py_BuildValue(
		"{s:(IIIIIIddKddd),s:L,s:K,s:K,s:d,s:d,s:K}", "view", v->stack, v->n_step,
		v->selector, v->period, v->max_times_sampled, v->max_staleness, v->alpha, v->eps,
		v->limiter.min_size, v->limiter.samples_per_insert, v->limiter.min_diff,
		v->limiter.max_diff, "items", info->items, "inserted", info->inserted, "sampled",
		info->sampled, "priority_sum", info->priority_sum, "max_priority",
		info->max_priority, "overhead_bytes", info->overhead_bytes);
}

static PyObject *info_dict(const struct rlv_table_info *info)
{
	PyObject *columns = columns_list(info);
	PyObject *views = columns ? PyList_New(0) : NULL;

	for (uint32_t v = 0; views && v < info->n_views; v++)
		list_add(&views, view_dict(&info->views[v]));
	if (!views) {
		Py_XDECREF(columns);
		return NULL;
	}
	return Py_BuildValue("{s:s,s:N,s:N,s:I,s:K,s:K,s:I,s:I,s:I,s:I,s:I,s:I,s:K,s:K}", "name",
			     info->name, "columns", columns, "views", views, "shards", info->shards,
			     "capacity", info->capacity, "slots", info->slots, "block", info->block,
			     "window", info->window, "row_bytes", info->row_bytes,
			     "row_header_bytes", info->row_header_bytes, "max_writers",
			     info->max_writers, "max_clients", info->max_clients, "rows_bytes",
			     info->rows_bytes, "tree_bytes", info->tree_bytes);
}

static PyObject *table_info(PyObject *object, PyObject *unused)
{
	struct table *self = (struct table *)object;
	struct rlv_table_info info = { .size = sizeof(info) };
	int ret;

	(void)unused;
	if (handle_enter(&self->h))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = rlv_table_info(self->table, &info);
	Py_END_ALLOW_THREADS handle_leave(&self->h);
	if (ret)
		return error_raise(ret);
	memcpy(info.columns, self->info->columns, sizeof(info.columns)); /* names that stay */
	return info_dict(&info);
}

static PyObject *table_verify(PyObject *object, PyObject *unused)
{
	struct table *self = (struct table *)object;
	struct rlv_verify_report r = { .size = sizeof(r) };
	int ret;

	(void)unused;
	if (handle_enter(&self->h))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = rlv_table_verify(self->table, &r);
	Py_END_ALLOW_THREADS handle_leave(&self->h);
	if (ret)
		return error_raise(ret);
	return Py_BuildValue("{s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:s}", "problems", r.problems,
			     "items", r.items, "wrong_sums", r.wrong_sums, "wrong_leaves",
			     r.wrong_leaves, "wrong_blocks", r.wrong_blocks, "wrong_rows",
			     r.wrong_rows, "wrong_words", r.wrong_words, "open_blocks",
			     r.open_blocks, "first_problem", r.first_problem);
}

static PyObject *table_name(PyObject *object, void *unused)
{
	(void)unused;
	return PyUnicode_FromString(((struct table *)object)->info->name);
}

static PyObject *table_columns(PyObject *object, void *unused)
{
	(void)unused;
	return columns_list(((struct table *)object)->info);
}

static PyMethodDef methods[] = {
	{ "create", METHOD(table_create), METH_VARARGS | METH_KEYWORDS | METH_CLASS, NULL },
	{ "open", table_open, METH_VARARGS | METH_CLASS, NULL },
	{ "close", table_close, METH_NOARGS, NULL },
	{ "info", table_info, METH_NOARGS, NULL },
	{ "verify", table_verify, METH_NOARGS, NULL },
	{ 0 },
};

static PyMemberDef members[] = {
	{ "is_open", T_BOOL, offsetof(struct table, h.open), READONLY, NULL },
	{ 0 },
};

static PyGetSetDef attributes[] = {
	{ "name", table_name, NULL, NULL, NULL },
	{ "columns", table_columns, NULL, NULL, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_dealloc, table_dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_members, members },
	{ Py_tp_getset, attributes },
	{ 0, NULL },
};

static PyType_Spec spec = {
	.name = "relive._core.Table",
	.basicsize = sizeof(struct table),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int table_init(PyObject *module)
{
	table_type = type_add(module, &spec);
	return table_type ? 0 : -1;
}

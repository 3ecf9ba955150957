/*
 * Store: opened from a URI, parent of tables.
 */
#include "python/src/core.h"

#include "relive/admin.h"

#include <stdlib.h>

PyTypeObject *store_type;

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "uri",      "pages",     "pool_bytes", "timeout_ns",
				 "token",    "read_only", "stall_ns",   "trust",
				 "tls_cert", "tls_key",   "tls_ca",     NULL };
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	struct rlv_store *handle = NULL;
	long long timeout_ns = 0, stall_ns = 0;
	unsigned long long pool_bytes = 0;
	int read_only = 0, trust = 0;
	const char *uri;
	struct store *self;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|IKLzpLpzzz", names, &uri, &opts.pages,
					 &pool_bytes, &timeout_ns, &opts.token, &read_only,
					 &stall_ns, &trust, &opts.tls_cert, &opts.tls_key,
					 &opts.tls_ca))
		return NULL;
	opts.pool_bytes = pool_bytes;
	opts.timeout_ns = timeout_ns;
	opts.stall_ns = stall_ns;
	opts.read_only = read_only;
	opts.trust = trust;
	Py_BEGIN_ALLOW_THREADS ret = rlv_store_open(uri, &opts, &handle);
	Py_END_ALLOW_THREADS if (ret) return error_raise(ret);
	self = object_alloc(type);
	if (!self) {
		if (rlv_store_close(&handle)) /* without tables it cannot fail */
			PyErr_NoMemory();
		return NULL;
	}
	handle_init(&self->h, NULL);
	self->store = handle;
	self->h.open = true;
	return (PyObject *)self;
}

/* For handle_close. */
static int close_locked(struct handle *h)
{
	struct store *self = (struct store *)h;
	int ret;

	Py_BEGIN_ALLOW_THREADS ret = rlv_store_close(&self->store);
	Py_END_ALLOW_THREADS self->h.open = self->store != NULL;
	handle_leave(&self->h);
	return ret;
}

static PyObject *store_close(PyObject *object, PyObject *unused)
{
	(void)unused;
	return handle_close((struct handle *)object, close_locked);
}

static void store_dealloc(PyObject *object)
{
	struct store *self = (struct store *)object;

	if (self->store && handle_enter_close(&self->h) == 1)
		(void)close_locked(&self->h); /* tables hold a reference: none is open */
	handle_fini(&self->h);
	object_free(self);
}

static PyObject *store_persist(PyObject *object, PyObject *unused)
{
	struct store *self = (struct store *)object;
	int ret;

	(void)unused;
	if (handle_enter(&self->h))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = rlv_store_persist(self->store);
	Py_END_ALLOW_THREADS handle_leave(&self->h);
	return error_or_none(ret);
}

static PyObject *store_drop(PyObject *object, PyObject *name)
{
	struct store *self = (struct store *)object;
	const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
	int ret;

	if (!text || handle_enter(&self->h))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = rlv_table_drop(self->store, text);
	Py_END_ALLOW_THREADS handle_leave(&self->h);
	return error_or_none(ret);
}

/* -------- tables -------- */

/* Reads all names, *n_out of them, for free(). NULL: no memory, or *ret_out is the error. */
static char (*read_names(struct store *self, size_t *n_out, int *ret_out))[RLV_NAME_BYTES]
{
	char(*names)[RLV_NAME_BYTES] = NULL;
	size_t room = 16;

	for (;;) {
		free(names);
		names = malloc(room * sizeof(*names));
		*n_out = room;
		*ret_out = names ? rlv_store_tables(self->store, names, n_out) : 0;
		if (!names || *ret_out || *n_out <= room)
			return names;
		room = *n_out;
	}
}

static PyObject *store_tables(PyObject *object, PyObject *unused)
{
	struct store *self = (struct store *)object;
	char(*names)[RLV_NAME_BYTES];
	PyObject *list = NULL;
	size_t n;
	int ret;

	(void)unused;
	if (handle_enter(&self->h))
		return NULL;
	Py_BEGIN_ALLOW_THREADS names = read_names(self, &n, &ret);
	Py_END_ALLOW_THREADS handle_leave(&self->h);
	if (!names)
		PyErr_NoMemory();
	else if (ret)
		error_raise(ret);
	else
		list = PyList_New(0);
	for (size_t i = 0; list && i < n; i++)
		list_add(&list, PyUnicode_FromString(names[i]));
	free(names);
	return list;
}

/* -------- information -------- */

static PyObject *info_dict(const struct rlv_store_info *info, const struct rlv_node_info *at,
			   size_t n)
{
	PyObject *nodes = PyList_New(0);

	for (size_t i = 0; nodes && i < n; i++)
		list_add(&nodes,
			 Py_BuildValue("{s:s,s:s,s:K,s:K,s:K,s:I,s:I,s:O,s:s}", "name", at[i].name,
				       "address", at[i].address, "pool_bytes", at[i].pool_bytes,
				       "used_bytes", at[i].used_bytes, "incarnation",
				       at[i].incarnation, "regions", at[i].regions, "broken",
				       at[i].broken, "up", at[i].state ? Py_True : Py_False,
				       "pages", at[i].pages));
	if (!nodes)
		return NULL;
	return Py_BuildValue("{s:s,s:s,s:K,s:I,s:I,s:I,s:s,s:N}", "uri", info->uri,
			     "server_version", info->server_version, "term", info->term, "tables",
			     info->n_tables, "clients", info->n_clients, "rebuilds", info->rebuilds,
			     "waiting", info->waiting, "nodes", nodes);
}

/* Reads all nodes, *n_out of them, for free(); again if more joined meanwhile. NULL = no memory. */
static struct rlv_node_info *read_nodes(struct store *self, size_t *n_out, int *ret_out)
{
	struct rlv_node_info *nodes = NULL;
	size_t n = 8, room = 0;

	*ret_out = 0;
	while (room < n && *ret_out == 0) {
		free(nodes);
		room = n;
		nodes = calloc(room, sizeof(*nodes));
		if (!nodes)
			return NULL;
		*ret_out = rlv_store_nodes(self->store, nodes, sizeof(*nodes), &n);
	}
	*n_out = n;
	return nodes;
}

static PyObject *store_info(PyObject *object, PyObject *unused)
{
	struct store *self = (struct store *)object;
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_node_info *nodes = NULL;
	PyObject *dict = NULL;
	size_t n = 0;
	int ret;

	(void)unused;
	if (handle_enter(&self->h))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = rlv_store_info(self->store, &info);
	if (ret == 0)
		nodes = read_nodes(self, &n, &ret);
	Py_END_ALLOW_THREADS handle_leave(&self->h);
	if (ret)
		error_raise(ret);
	else if (nodes)
		dict = info_dict(&info, nodes, n);
	else
		PyErr_NoMemory();
	free(nodes);
	return dict;
}

static PyObject *store_token(PyObject *object, PyObject *role)
{
	struct store *self = (struct store *)object;
	const char *text = PyUnicode_AsUTF8AndSize(role, NULL);
	char token[RLV_TOKEN_BYTES];
	int ret;

	if (!text || handle_enter(&self->h))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = rlv_store_token(self->store, text, token);
	Py_END_ALLOW_THREADS handle_leave(&self->h);
	return ret ? error_raise(ret) : PyUnicode_FromString(token);
}

static PyObject *store_rotate_tokens(PyObject *object, PyObject *unused)
{
	struct store *self = (struct store *)object;
	uint32_t epoch = 0;
	int ret;

	(void)unused;
	if (handle_enter(&self->h))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = rlv_store_rotate_tokens(self->store, &epoch);
	Py_END_ALLOW_THREADS handle_leave(&self->h);
	return ret ? error_raise(ret) : PyLong_FromUnsignedLong(epoch);
}

static PyMethodDef methods[] = {
	{ "close", store_close, METH_NOARGS, NULL },
	{ "persist", store_persist, METH_NOARGS, NULL },
	{ "drop", store_drop, METH_O, NULL },
	{ "tables", store_tables, METH_NOARGS, NULL },
	{ "info", store_info, METH_NOARGS, NULL },
	{ "token", store_token, METH_O, NULL },
	{ "rotate_tokens", store_rotate_tokens, METH_NOARGS, NULL },
	{ 0 },
};

static PyMemberDef members[] = {
	{ "is_open", T_BOOL, offsetof(struct store, h.open), READONLY, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, store_new },
	{ Py_tp_dealloc, store_dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_members, members },
	{ 0, NULL },
};

static PyType_Spec spec = {
	.name = "relive._core.Store",
	.basicsize = sizeof(struct store),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};

int store_init(PyObject *module)
{
	store_type = type_add(module, &spec);
	return store_type ? 0 : -1;
}

/*
 * Store: opened from a URI, parent of tables.
 */
#include "python/src/core.h"

#include "relive/admin.h"

#include <errno.h>
#include <stdlib.h>

PyTypeObject *store_type;

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "uri",      "pages",     "pool_bytes", "timeout_ns",
				 "token",    "read_only", "stall_ns",   "trust",
				 "tls_cert", "tls_key",   "tls_ca",     NULL };
	struct rlv_store_opts opts = RLV_STORE_OPTS_INIT;
	int read_only = 0, trust = 0;
	PyThreadState *thread;
	const char *uri;
	struct handle *self;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|Iklzplpzzz", names, &uri, &opts.pages,
					 &opts.pool_bytes, &opts.timeout_ns, &opts.token,
					 &read_only, &opts.stall_ns, &trust, &opts.tls_cert,
					 &opts.tls_key, &opts.tls_ca))
		return NULL;
	opts.read_only = read_only;
	opts.trust = trust;
	self = handle_new(type, NULL, NULL, HANDLE_STORE, NULL);
	if (!self)
		return NULL;
	thread = PyEval_SaveThread();
	ret = rlv_store_open(uri, &opts, &self->store);
	PyEval_RestoreThread(thread);
	return handle_opened(self, ret);
}

static PyObject *store_drop(PyObject *object, PyObject *name)
{
	struct handle *self = (struct handle *)object;
	const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
	int ret;

	if (!text || handle_enter(self))
		return NULL;
	ret = rlv_table_drop(self->store, text);
	handle_leave(self);
	return error_or_none(ret);
}

static PyObject *store_names(PyObject *object,
			     int (*get)(struct rlv_store *, char (*)[RLV_NAME_BYTES], size_t *))
{
	struct handle *self = (struct handle *)object;
	char(*names)[RLV_NAME_BYTES] = NULL;
	size_t n = 16, room = 0;
	PyObject *list = NULL;
	int ret = 0;

	if (handle_enter(self))
		return NULL;
	while (ret == 0 && room < n) { /* again, if there are more than there was room for */
		free(names);
		room = n;
		names = malloc(room * sizeof(*names));
		ret = names ? get(self->store, names, &n) : -ENOMEM;
	}
	handle_leave(self);
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

static PyObject *store_tables(PyObject *object, PyObject *Py_UNUSED(unused))
{
	return store_names(object, rlv_store_tables);
}

static PyObject *store_kvs(PyObject *object, PyObject *Py_UNUSED(unused))
{
	return store_names(object, rlv_store_kvs);
}

static PyObject *store_drop_kv(PyObject *object, PyObject *name)
{
	struct handle *self = (struct handle *)object;
	const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
	int ret;

	if (!text || handle_enter(self))
		return NULL;
	ret = rlv_kv_drop(self->store, text);
	handle_leave(self);
	return error_or_none(ret);
}

static PyObject *store_info(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *self = (struct handle *)object;
	struct rlv_store_info info = { .size = sizeof(info) };
	struct rlv_node_info *nodes;
	PyObject *list = NULL;
	size_t n;
	int ret;

	if (handle_enter(self))
		return NULL;
	ret = rlv_store_info(self->store, &info);
	n = info.n_nodes; /* without those that join meanwhile */
	nodes = calloc(n + 1, sizeof(*nodes));
	if (ret == 0 && nodes)
		ret = rlv_store_nodes(self->store, nodes, sizeof(*nodes), &n);
	handle_leave(self);
	if (!nodes)
		PyErr_NoMemory();
	else if (ret)
		error_raise(ret);
	else
		list = PyList_New(0);
	for (size_t i = 0; list && i < n && i < info.n_nodes; i++) {
		const struct rlv_node_info *at = &nodes[i];
		bool up = at->state == RLV_NODE_UP || at->state == RLV_NODE_DRAINING;

		list_add(&list,
			 Py_BuildValue("{s:s,s:s,s:K,s:K,s:K,s:I,s:I,s:O,s:s,s:s,s:s}", "name",
				       at->name, "address", at->address, "pool_bytes",
				       at->pool_bytes, "used_bytes", at->used_bytes, "incarnation",
				       at->incarnation, "regions", at->regions, "broken",
				       at->broken, "up", up ? Py_True : Py_False, "pages",
				       at->pages, "transport", at->transport, "why", at->why));
	}
	free(nodes);
	if (!list)
		return NULL;
	return Py_BuildValue("{s:s,s:s,s:K,s:I,s:I,s:I,s:s,s:N}", "uri", info.uri, "server_version",
			     info.server_version, "term", info.term, "tables", info.n_tables,
			     "clients", info.n_clients, "rebuilds", info.rebuilds, "waiting",
			     info.waiting, "nodes", list);
}

static PyObject *store_token(PyObject *object, PyObject *role)
{
	struct handle *self = (struct handle *)object;
	const char *text = PyUnicode_AsUTF8AndSize(role, NULL);
	char token[RLV_TOKEN_BYTES];
	int ret;

	if (!text || handle_enter(self))
		return NULL;
	ret = rlv_store_token(self->store, text, token);
	handle_leave(self);
	return ret ? error_raise(ret) : PyUnicode_FromString(token);
}

static PyObject *store_rotate_tokens(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *self = (struct handle *)object;
	uint32_t epoch = 0;
	int ret;

	if (handle_enter(self))
		return NULL;
	ret = rlv_store_rotate_tokens(self->store, &epoch);
	handle_leave(self);
	return ret ? error_raise(ret) : PyLong_FromUnsignedLong(epoch);
}

static PyMethodDef methods[] = {
	{ "close", handle_close, METH_NOARGS, NULL },
	{ "persist", handle_flush, METH_NOARGS, NULL },
	{ "drop", store_drop, METH_O, NULL },
	{ "load", store_load, METH_VARARGS, NULL },
	{ "tables", store_tables, METH_NOARGS, NULL },
	{ "drop_kv", store_drop_kv, METH_O, NULL },
	{ "kvs", store_kvs, METH_NOARGS, NULL },
	{ "info", store_info, METH_NOARGS, NULL },
	{ "token", store_token, METH_O, NULL },
	{ "rotate_tokens", store_rotate_tokens, METH_NOARGS, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, store_new },   { Py_tp_dealloc, handle_dealloc }, /* tables hold a reference: none is open */
	{ Py_tp_methods, methods }, { Py_tp_members, handle_members }, { 0, NULL },
};

PyType_Spec store_spec = {
	.name = "relive._core.Store",
	.basicsize = sizeof(struct handle),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};

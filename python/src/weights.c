/*
 * Weights: a handle of weights; Shards: one of those of several ranks; and Generation: memory of one generation, as a buffer. Names, trees and
 * numpy's arrays are in weights.py.
 */
#include "python/src/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *weights_type, *shards_type, *generation_type;

/* Memory of a generation. */
struct generation {
	PyObject base;
	struct rlv_generation of;
	PyObject *from; /* of a mapped one: its handle */
};

/* Weights(store, name) opens, Weights(store, name, keep, bytes, anchor_every, max_clients, copies, prefault) creates. */
static PyObject *weights_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
	struct rlv_weights_opts opts = RLV_WEIGHTS_OPTS_INIT;
	PyObject *store;
	struct handle *self;
	const char *name;
	int ret;

	if (!PyArg_ParseTuple(args, "O!s|IKIIII", store_type, &store, &name, &opts.keep,
			      &opts.bytes, &opts.anchor_every, &opts.max_clients, &opts.copies,
			      &opts.prefault))
		return NULL;
	self = handle_new(type, store, NULL, HANDLE_WEIGHTS, NULL);
	if (!self)
		return NULL;
	if (handle_enter((struct handle *)store)) {
		Py_DECREF(self);
		return NULL;
	}
	ret = PyTuple_Size(args) > 2
		      ? rlv_weights_create(((struct handle *)store)->store, name, &opts,
					   &self->weights)
		      : rlv_weights_open(((struct handle *)store)->store, name, &self->weights);
	handle_leave((struct handle *)store);
	return handle_opened(self, ret);
}

/* -------- publish -------- */

/* Tensors of a publish, with the buffers that they lie in. */
struct tensors {
	Py_ssize_t n;
	struct rlv_tensor *at;
	Py_buffer *buffers;
	Py_ssize_t n_buffers;
};

static void tensors_free(struct tensors *tensors)
{
	for (Py_ssize_t i = 0; i < tensors->n_buffers; i++)
		PyBuffer_Release(&tensors->buffers[i]);
	PyMem_Free(tensors->at);
	PyMem_Free(tensors->buffers);
}

/* From (name, dtype, shape, buffer). 0, or -1 with an exception. */
static int tensor_read(PyObject *item, struct tensors *tensors)
{
	struct rlv_tensor *tensor = &tensors->at[tensors->n_buffers];
	Py_buffer *buffer = &tensors->buffers[tensors->n_buffers];
	PyObject *shape;

	tensor->size = sizeof(*tensor);
	if (!PyArg_ParseTuple(item, "sIO!y*", &tensor->name, &tensor->dtype, &PyTuple_Type, &shape,
			      buffer))
		return -1;
	tensors->n_buffers++;
	tensor->data = buffer->buf;
	tensor->bytes = (uint64_t)buffer->len;
	tensor->ndim = (uint32_t)PyTuple_Size(shape);
	for (uint32_t i = 0; i < tensor->ndim && i < RLV_TENSOR_DIMS; i++)
		tensor->shape[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(shape, i));
	return PyErr_Occurred() ? -1 : 0;
}

static int tensors_read(PyObject *list, struct tensors *tensors)
{
	Py_ssize_t n = PyList_Size(list);
	int ret = 0;

	*tensors = (struct tensors){ .n = n };
	tensors->at = PyMem_Calloc((size_t)n + 1, sizeof(*tensors->at));
	tensors->buffers = PyMem_Calloc((size_t)n + 1, sizeof(*tensors->buffers));
	if (!tensors->at || !tensors->buffers) {
		(void)PyErr_NoMemory();
		ret = -1;
	}
	for (Py_ssize_t i = 0; ret == 0 && i < n; i++)
		ret = tensor_read(PyList_GetItem(list, i), tensors);
	return ret;
}

/* publish([(name, dtype, shape, buffer)], version, flags), of weights or shards */
static PyObject *tensors_publish(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	unsigned long long version;
	struct tensors tensors;
	unsigned flags;
	PyObject *list;
	int ret = 0;
	bool ran = false;

	if (!PyArg_ParseTuple(args, "O!KI", &PyList_Type, &list, &version, &flags))
		return NULL;
	if (tensors_read(list, &tensors) == 0 && handle_enter(self) == 0) {
		ret = self->kind == HANDLE_SHARDS
			      ? rlv_shards_publish(self->shards, tensors.at, (size_t)tensors.n,
						   version, flags)
			      : rlv_weights_publish(self->weights, tensors.at, (size_t)tensors.n,
						    version, flags);
		handle_leave(self);
		ran = true;
	}
	tensors_free(&tensors);
	return ran ? error_or_none(ret) : NULL;
}

/* -------- fetch -------- */

/* (name, memory, dtype, shape, offset, bytes, mapped) */
static PyObject *tensor_wrap(struct generation *of, const struct rlv_tensor *tensor)
{
	PyObject *shape = PyTuple_New(tensor->ndim);

	for (uint32_t k = 0; shape && k < tensor->ndim; k++)
		(void)PyTuple_SetItem(shape, k, PyLong_FromUnsignedLongLong(tensor->shape[k]));
	if (!shape)
		return NULL;
	return Py_BuildValue(
		"sOINKKI", tensor->name, (PyObject *)of, tensor->dtype, shape,
		(unsigned long long)((const char *)tensor->data - (const char *)of->of.data),
		(unsigned long long)tensor->bytes, tensor->mapped);
}

/* (version, [tensor_wrap], deltas, flags). handle: of a mapped one, which ends before it; else NULL. */
static PyObject *generation_wrap(struct rlv_generation *of, PyObject *handle)
{
	struct generation *self = object_alloc(generation_type, 0);
	PyObject *list = PyList_New(0), *made = NULL;
	bool failed = !self || !list;

	if (self) {
		self->of = *of;
		self->from = Py_XNewRef(handle);
	} else {
		rlv_generation_release(of);
	}
	for (uint32_t i = 0; !failed && i < self->of.n_tensors; i++) {
		PyObject *item = tensor_wrap(self, &self->of.tensors[i]);

		failed = !item || PyList_Append(list, item);
		Py_XDECREF(item);
	}
	if (!failed)
		made = Py_BuildValue("KOII", (unsigned long long)self->of.version, list,
				     self->of.n_deltas, self->of.flags);
	Py_XDECREF((PyObject *)self);
	Py_XDECREF(list);
	return made;
}

/* fetch(newer_than, ns, map): as generation_wrap, or None when the time is over. */
static PyObject *weights_fetch(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	struct rlv_generation got = RLV_GENERATION_INIT;
	unsigned long long than;
	long long timeout_ns;
	int ret, map;

	if (!PyArg_ParseTuple(args, "KLp", &than, &timeout_ns, &map) || handle_enter(self))
		return NULL;
	ret = map ? rlv_weights_map(self->weights, than, timeout_ns, &got)
		  : rlv_weights_fetch(self->weights, than, timeout_ns, &got);
	handle_leave(self);
	if (ret == -ETIMEDOUT)
		return Py_NewRef(Py_None);
	return ret ? error_raise(ret) : generation_wrap(&got, map ? object : NULL);
}

/* begin(newer_than, ns): (as generation_wrap, how many arrays are ready), or None when the time is over. */
static PyObject *weights_begin(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	struct rlv_generation got = RLV_GENERATION_INIT;
	unsigned long long than;
	long long timeout_ns;
	PyObject *found;
	uint32_t ready;
	int ret;

	if (!PyArg_ParseTuple(args, "KL", &than, &timeout_ns) || handle_enter(self))
		return NULL;
	ret = rlv_weights_begin(self->weights, than, timeout_ns, &got, &ready);
	handle_leave(self);
	if (ret == -ETIMEDOUT)
		return Py_NewRef(Py_None);
	if (ret)
		return error_raise(ret);
	found = generation_wrap(&got, NULL);
	return found ? Py_BuildValue("NI", found, ready) : NULL;
}

/* more(generation, ready): how many arrays are ready then. */
static PyObject *weights_more(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	PyObject *generation;
	unsigned ready;
	uint32_t now;
	int ret;

	if (!PyArg_ParseTuple(args, "O!I", generation_type, &generation, &ready) ||
	    handle_enter(self))
		return NULL;
	now = ready;
	ret = rlv_weights_more(self->weights, &((struct generation *)generation)->of, &now);
	handle_leave(self);
	return ret ? error_raise(ret) : PyLong_FromUnsignedLong(now);
}

/* get(version): as generation_wrap. */
static PyObject *weights_get(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	struct rlv_generation got = RLV_GENERATION_INIT;
	unsigned long long version;
	int ret;

	if (!PyArg_ParseTuple(args, "K", &version) || handle_enter(self))
		return NULL;
	ret = rlv_weights_get(self->weights, version, &got);
	handle_leave(self);
	return ret ? error_raise(ret) : generation_wrap(&got, NULL);
}

/* watch(than, ns): the newest version, or 0 when the time is over. */
static PyObject *weights_watch(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	unsigned long long than;
	long long timeout_ns;
	uint64_t version = 0;
	int ret;

	if (!PyArg_ParseTuple(args, "KL", &than, &timeout_ns) || handle_enter(self))
		return NULL;
	ret = rlv_weights_watch(self->weights, than, timeout_ns, &version);
	handle_leave(self);
	if (ret && ret != -ETIMEDOUT)
		return error_raise(ret);
	return PyLong_FromUnsignedLongLong(ret ? 0 : version);
}

/* limit(bytes) */
static PyObject *weights_limit(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	unsigned long long bytes;
	int ret;

	if (!PyArg_ParseTuple(args, "K", &bytes) || handle_enter(self))
		return NULL;
	ret = rlv_weights_limit(self->weights, bytes);
	handle_leave(self);
	return error_or_none(ret);
}

/* check(number) */
static PyObject *weights_check(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	unsigned check;
	int ret;

	if (!PyArg_ParseTuple(args, "I", &check) || handle_enter(self))
		return NULL;
	ret = self->kind == HANDLE_SHARDS ? rlv_shards_check(self->shards, check)
					  : rlv_weights_check(self->weights, check);
	handle_leave(self);
	return error_or_none(ret);
}

static PyObject *weights_info(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *self = (struct handle *)object;
	struct rlv_weights_info info = RLV_WEIGHTS_INFO_INIT;
	int ret;

	if (handle_enter(self))
		return NULL;
	ret = rlv_weights_info(self->weights, &info);
	handle_leave(self);
	if (ret)
		return error_raise(ret);
	return Py_BuildValue(
		"{s:K,s:K,s:I,s:I,s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "version",
		info.version, "oldest", info.oldest, "generations", info.generations, "keep",
		info.keep, "anchor_every", info.anchor_every, "published", info.published,
		"anchors", info.anchors, "fetched", info.fetched, "deltas", info.deltas, "repairs",
		info.repairs, "lost", info.lost, "round_trips", info.round_trips, "read_bytes",
		info.read_bytes, "write_bytes", info.write_bytes, "publish_lag", info.publish_lag);
}

/* -------- shards -------- */

struct shards {
	struct handle h;
	uint32_t ranks;
};

/* Shards(store, name, ranks, rank, keep, bytes, anchor_every, max_clients, copies, prefault) */
static PyObject *shards_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
	struct rlv_weights_opts weights = RLV_WEIGHTS_OPTS_INIT;
	struct rlv_shards_opts opts = RLV_SHARDS_OPTS_INIT;
	struct handle *store;
	struct shards *self;
	const char *name;
	int ret;

	if (!PyArg_ParseTuple(args, "O!sIIIKIIII", store_type, &store, &name, &opts.ranks,
			      &opts.rank, &weights.keep, &weights.bytes, &weights.anchor_every,
			      &weights.max_clients, &weights.copies, &weights.prefault))
		return NULL;
	opts.weights = &weights;
	self = handle_new(type, &store->base, NULL, HANDLE_SHARDS, NULL);
	if (!self)
		return NULL;
	self->ranks = opts.ranks;
	if (handle_enter(store)) {
		Py_DECREF(self);
		return NULL;
	}
	ret = rlv_shards_open(store->store, name, &opts, &self->h.shards);
	handle_leave(store);
	return handle_opened(&self->h, ret);
}

/* Gives all of them away. */
static PyObject *generations_wrap(struct rlv_generation *got, uint32_t n)
{
	PyObject *list = PyList_New(0);

	for (uint32_t i = 0; i < n; i++) {
		PyObject *item = list ? generation_wrap(&got[i], NULL) : NULL;

		if (!list)
			rlv_generation_release(&got[i]);
		else if (!item || PyList_Append(list, item))
			Py_CLEAR(list);
		Py_XDECREF(item);
	}
	return list;
}

static PyObject *ready_list(const uint32_t *ready, uint32_t n)
{
	PyObject *list = PyList_New((Py_ssize_t)n);

	for (uint32_t i = 0; list && i < n; i++)
		(void)PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromUnsignedLong(ready[i]));
	return list;
}

/* fetch(newer_than, ns): a list with generation_wrap of each rank, or None when the time is over. */
static PyObject *shards_fetch(PyObject *object, PyObject *args)
{
	struct shards *self = (struct shards *)object;
	struct rlv_generation got[RLV_SHARDS_MAX];
	unsigned long long than;
	long long timeout_ns;
	int ret;

	if (!PyArg_ParseTuple(args, "KL", &than, &timeout_ns) || handle_enter(&self->h))
		return NULL;
	for (uint32_t i = 0; i < self->ranks; i++)
		got[i] = (struct rlv_generation)RLV_GENERATION_INIT;
	ret = rlv_shards_fetch(self->h.shards, than, timeout_ns, got);
	handle_leave(&self->h);
	if (ret == -ETIMEDOUT)
		return Py_NewRef(Py_None);
	return ret ? error_raise(ret) : generations_wrap(got, self->ranks);
}

/* begin(newer_than, ns): as fetch, and a list with how many arrays of each rank are ready. */
static PyObject *shards_begin(PyObject *object, PyObject *args)
{
	struct shards *self = (struct shards *)object;
	struct rlv_generation got[RLV_SHARDS_MAX];
	uint32_t ready[RLV_SHARDS_MAX] = { 0 };
	unsigned long long than;
	long long timeout_ns;
	PyObject *found;
	int ret;

	if (!PyArg_ParseTuple(args, "KL", &than, &timeout_ns) || handle_enter(&self->h))
		return NULL;
	for (uint32_t i = 0; i < self->ranks; i++)
		got[i] = (struct rlv_generation)RLV_GENERATION_INIT;
	ret = rlv_shards_begin(self->h.shards, than, timeout_ns, got, ready);
	handle_leave(&self->h);
	if (ret == -ETIMEDOUT)
		return Py_NewRef(Py_None);
	if (ret)
		return error_raise(ret);
	found = generations_wrap(got, self->ranks);
	return found ? Py_BuildValue("NN", found, ready_list(ready, self->ranks)) : NULL;
}

/* more([generation of each rank], [ready]): how many arrays of each rank are ready then. */
static PyObject *shards_more(PyObject *object, PyObject *args)
{
	struct shards *self = (struct shards *)object;
	struct rlv_generation of[RLV_SHARDS_MAX];
	uint32_t ready[RLV_SHARDS_MAX];
	PyObject *generations, *counts;
	int ret;

	if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &generations, &PyList_Type, &counts))
		return NULL;
	for (uint32_t i = 0; i < self->ranks; i++) {
		PyObject *one = PyList_GetItem(generations, i);
		PyObject *count = one ? PyList_GetItem(counts, i) : NULL;

		if (!count)
			return NULL;
		if (!PyObject_TypeCheck(one, generation_type))
			return PyErr_Format(PyExc_TypeError, "more: not a generation");
		of[i] = ((struct generation *)one)->of;
		ready[i] = (uint32_t)PyLong_AsUnsignedLong(count);
	}
	if (PyErr_Occurred() || handle_enter(&self->h))
		return NULL;
	ret = rlv_shards_more(self->h.shards, of, ready);
	handle_leave(&self->h);
	return ret ? error_raise(ret) : ready_list(ready, self->ranks);
}

static PyObject *shards_limit(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	unsigned long long bytes;
	int ret;

	if (!PyArg_ParseTuple(args, "K", &bytes) || handle_enter(self))
		return NULL;
	ret = rlv_shards_limit(self->shards, bytes);
	handle_leave(self);
	return error_or_none(ret);
}

/* newest(): the newest version of all ranks, 0 if there is none. */
static PyObject *shards_newest(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *self = (struct handle *)object;
	uint64_t version = 0;
	int ret;

	if (handle_enter(self))
		return NULL;
	ret = rlv_shards_poll(self->shards, &version);
	handle_leave(self);
	if (ret && ret != -ENODATA)
		return error_raise(ret);
	return PyLong_FromUnsignedLongLong(version);
}

static PyMethodDef shards_methods[] = {
	{ "close", handle_close, METH_NOARGS, NULL },
	{ "publish", tensors_publish, METH_VARARGS, NULL },
	{ "fetch", shards_fetch, METH_VARARGS, NULL },
	{ "begin", shards_begin, METH_VARARGS, NULL },
	{ "more", shards_more, METH_VARARGS, NULL },
	{ "limit", shards_limit, METH_VARARGS, NULL },
	{ "check", weights_check, METH_VARARGS, NULL },
	{ "newest", shards_newest, METH_NOARGS, NULL },
	{ 0 },
};

/* -------- types -------- */

static PyMethodDef methods[] = {
	{ "close", handle_close, METH_NOARGS, NULL },
	{ "publish", tensors_publish, METH_VARARGS, NULL },
	{ "fetch", weights_fetch, METH_VARARGS, NULL },
	{ "begin", weights_begin, METH_VARARGS, NULL },
	{ "more", weights_more, METH_VARARGS, NULL },
	{ "get", weights_get, METH_VARARGS, NULL },
	{ "watch", weights_watch, METH_VARARGS, NULL },
	{ "limit", weights_limit, METH_VARARGS, NULL },
	{ "check", weights_check, METH_VARARGS, NULL },
	{ "info", weights_info, METH_NOARGS, NULL },
	{ 0 },
};

HANDLE_SPEC(weights_spec, "Weights", weights_new);

static PyType_Slot shards_slots[] = {
	{ Py_tp_new, shards_new },
	{ Py_tp_dealloc, handle_dealloc },
	{ Py_tp_methods, shards_methods },
	{ Py_tp_members, handle_members },
	{ 0, NULL },
};

PyType_Spec shards_spec = {
	.name = "relive._core.Shards",
	.basicsize = sizeof(struct shards),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = shards_slots,
};

static int generation_buffer(PyObject *object, Py_buffer *view, int flags)
{
	struct generation *self = (struct generation *)object;

	return PyBuffer_FillInfo(view, object, (void *)(uintptr_t)self->of.data,
				 (Py_ssize_t)self->of.bytes, 1, flags);
}

static void generation_dealloc(PyObject *object)
{
	struct generation *self = (struct generation *)object;

	rlv_generation_release(&self->of);
	Py_CLEAR(self->from); /* a mapped one is released before its handle closes */
	object_free(object);
}

static PyMethodDef generation_methods[] = { { 0 } };

static PyType_Slot generation_slots[] = {
	{ Py_tp_dealloc, generation_dealloc },
	{ Py_tp_methods, generation_methods },
	{ Py_bf_getbuffer, generation_buffer },
	{ 0, NULL },
};

PyType_Spec generation_spec = {
	.name = "relive._core.Generation",
	.basicsize = sizeof(struct generation),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = generation_slots,
};

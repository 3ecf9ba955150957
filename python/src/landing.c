/*
 * Landing: batches in the memory of a device, and its arrays for other libraries.
 */
#include "python/src/slot.h"

#include <errno.h>
#include <stdlib.h>

PyTypeObject *landing_type;

/* -------- life -------- */

static PyObject *landing_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "device", "timeout", "pool",    "path", "graph",
				 "strict", "avoid",   "weights", NULL };
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;
	struct rlv_landing_opts opts = RLV_LANDING_OPTS_INIT;
	PyObject *pool = Py_None;
	double timeout = 0;
	int graph = 0, strict = 0;
	PyThreadState *thread;
	struct landing *self;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|dOIppII", names, &opts.device, &timeout,
					 &pool, &opts.path, &graph, &strict, &opts.avoid,
					 &opts.weights))
		return NULL;
	if (pool != Py_None && !PyObject_TypeCheck(pool, pool_type)) {
		PyErr_SetString(PyExc_TypeError, "landing: pool: want a relive.Pool");
		return NULL;
	}
	opts.timeout_ns = (int64_t)(timeout * 1e9);
	opts.unwaited = 1; /* batch_make waits */
	opts.graph = (uint32_t)graph;
	opts.strict = (uint32_t)strict;
	if (pool != Py_None) {
		opts.pool = pool_borrow(pool);
		if (!opts.pool)
			return NULL;
	}
	self = object_alloc(type, 0);
	if (!self) {
		if (opts.pool)
			pool_return(pool);
		return NULL;
	}
	self->pool = opts.pool ? pool : NULL;
	thread = PyEval_SaveThread();
	ret = rlv_landing_open(&opts, &self->landing);
	if (ret == 0)
		ret = rlv_landing_info(self->landing, &info);
	PyEval_RestoreThread(thread);
	self->device = info.device;
	self->weighs = info.weights == RLV_LANDING_WEIGHTS_DEVICE;
	if (ret == 0)
		return (PyObject *)self;
	Py_DECREF(self);
	return error_raise(ret);
}

static void landing_dealloc(PyObject *object)
{
	struct landing *self = (struct landing *)object;
	PyThreadState *thread = PyEval_SaveThread();
	int ret = rlv_landing_close(&self->landing);

	PyEval_RestoreThread(thread);
	(void)ret; /* a child's, or none: every buffer has held a reference */
	if (self->pool)
		pool_return(self->pool);
	object_free(object);
}

PyObject *landing_array(const struct slot *slot, bool is_weight, PyObject *array)
{
	bool left = slot->path == RLV_LANDING_GATHER || slot->path == RLV_LANDING_DMABUF ||
		    slot->path == RLV_LANDING_PEERMEM ||
		    (is_weight && slot->landing && slot->landing->weighs);
	PyObject *result;

	if (!array || !slot->landing || slot->landing->device < 0)
		return array;
	result = python_call("relive.landing", "DeviceArray", "(OOi)", array, slot->landing,
			     (int)left);
	Py_DECREF(array);
	return result;
}

/* -------- DLPack: what its specification calls DLManagedTensor, version 0 -------- */

enum { DL_CUDA = 2 };

struct dl_tensor {
	void *data;
	int32_t device_type, device_id;
	int32_t ndim;
	uint8_t code, bits;
	uint16_t lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
};

struct dl_managed {
	struct dl_tensor tensor;
	void *context;
	void (*deleter)(struct dl_managed *managed);
};

struct exported {
	struct dl_managed managed; /* first */
	Py_buffer view;            /* of the host's side: keeps the batch */
	int64_t dims[2 * (RLV_MAX_DIMS + 2)];
};

static const char capsule_name[] = "dltensor";

/* Called by whoever consumed it, on any thread. */
static void exported_delete(struct dl_managed *managed)
{
	struct exported *exported = (struct exported *)managed;
	PyGILState_STATE state = PyGILState_Ensure();

	PyBuffer_Release(&exported->view);
	PyGILState_Release(state);
	free(exported);
}

/* A consumer renames the capsule. */
static void capsule_end(PyObject *capsule)
{
	struct dl_managed *managed;

	if (!PyCapsule_IsValid(capsule, capsule_name))
		return;
	managed = PyCapsule_GetPointer(capsule, capsule_name);
	managed->deleter(managed);
}

static int exported_fill(struct exported *exported, const struct landing *landing)
{
	struct dl_tensor *tensor = &exported->managed.tensor;
	const Py_buffer *view = &exported->view;
	uint64_t address;
	int ret = rlv_landing_device(landing->landing, view->buf, &address);

	if (ret || view->ndim > RLV_MAX_DIMS + 2)
		return ret ? ret : -EINVAL;
	for (int d = 0; d < view->ndim; d++) {
		exported->dims[d] = view->shape[d];
		exported->dims[view->ndim + d] = view->strides[d] / view->itemsize;
	}
	tensor->data = (void *)(uintptr_t)address;
	tensor->device_type = DL_CUDA;
	tensor->device_id = landing->device;
	tensor->ndim = view->ndim;
	tensor->lanes = 1;
	tensor->shape = exported->dims;
	tensor->strides = exported->dims + view->ndim;
	return 0;
}

static PyObject *landing_dlpack(PyObject *object, PyObject *args)
{
	struct landing *self = (struct landing *)object;
	struct exported *exported;
	PyObject *array, *capsule;
	unsigned char code, bits;
	int ret;

	if (!PyArg_ParseTuple(args, "Obb", &array, &code, &bits))
		return NULL;
	exported = calloc(1, sizeof(*exported));
	if (!exported)
		return PyErr_NoMemory();
	if (PyObject_GetBuffer(array, &exported->view, PyBUF_STRIDED_RO)) {
		free(exported);
		return NULL;
	}
	exported->managed.deleter = exported_delete;
	exported->managed.tensor.code = code;
	exported->managed.tensor.bits = bits;
	ret = exported_fill(exported, self);
	capsule = ret ? error_raise(ret)
		      : PyCapsule_New(&exported->managed, capsule_name, capsule_end);
	if (!capsule)
		exported_delete(&exported->managed);
	return capsule;
}

/* -------- the rest -------- */

static PyObject *landing_address(PyObject *object, PyObject *args)
{
	struct landing *self = (struct landing *)object;
	uint64_t address;
	Py_buffer view;
	PyObject *array;
	int ret;

	if (!PyArg_ParseTuple(args, "O", &array) ||
	    PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO))
		return NULL;
	ret = rlv_landing_device(self->landing, view.buf, &address);
	PyBuffer_Release(&view);
	return ret ? error_raise(ret) : PyLong_FromUnsignedLongLong(address);
}

static PyObject *landing_use(PyObject *object, PyObject *args)
{
	struct landing *self = (struct landing *)object;
	unsigned long long stream;
	Py_buffer view;
	PyObject *array;
	int ret;

	if (!PyArg_ParseTuple(args, "OK", &array, &stream) ||
	    PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO))
		return NULL;
	ret = rlv_landing_use(self->landing, view.buf, (void *)(uintptr_t)stream);
	PyBuffer_Release(&view);
	return error_or_none(ret);
}

static PyObject *landing_fetch(PyObject *object, PyObject *array)
{
	struct landing *self = (struct landing *)object;
	PyThreadState *thread;
	Py_buffer view;
	size_t bytes;
	int ret;

	if (PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO))
		return NULL;
	bytes = (size_t)view.itemsize;
	for (int d = 0; d < view.ndim; d++)
		bytes += (size_t)((view.shape[d] - 1) * view.strides[d]);
	thread = PyEval_SaveThread();
	ret = rlv_landing_fetch(self->landing, view.buf, bytes);
	PyEval_RestoreThread(thread);
	PyBuffer_Release(&view);
	return error_or_none(ret);
}

static PyObject *landing_info(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct landing *self = (struct landing *)object;
	struct rlv_landing_info info = RLV_LANDING_INFO_INIT;
	int ret = rlv_landing_info(self->landing, &info);

	if (ret)
		return error_raise(ret);
	return Py_BuildValue(
		"{s:s,s:s,s:s,s:i,s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:s,s:d}", "path",
		rlv_landing_path_name(info.path), "reason", info.reason, "name", info.name,
		"device", (int)info.device, "buffers", (unsigned int)info.buffers, "bytes",
		(unsigned long long)info.bytes, "batches", (unsigned long long)info.batches,
		"copied_bytes", (unsigned long long)info.copied_bytes, "gathered_bytes",
		(unsigned long long)info.gathered_bytes, "direct_bytes",
		(unsigned long long)info.direct_bytes, "graphs", (unsigned long long)info.graphs,
		"graph_launches", (unsigned long long)info.graph_launches, "weighed",
		(unsigned long long)info.weighed, "weights",
		info.weights == RLV_LANDING_WEIGHTS_DEVICE ? "device" : "host", "waited",
		(double)info.waited_ns / 1e9);
}

static PyObject *landing_paths(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct landing *self = (struct landing *)object;
	struct rlv_landing_path_info paths[16];
	size_t n = sizeof(paths) / sizeof(paths[0]);
	PyThreadState *thread = PyEval_SaveThread();
	int ret = rlv_landing_paths(self->landing, paths, sizeof(paths[0]), &n);
	PyObject *list;

	PyEval_RestoreThread(thread);
	if (ret)
		return error_raise(ret);
	list = PyList_New(0);
	for (size_t i = 0; list && i < n && i < sizeof(paths) / sizeof(paths[0]); i++)
		list_add(&list,
			 Py_BuildValue("{s:s,s:N,s:K,s:s}", "path",
				       rlv_landing_path_name(paths[i].path), "possible",
				       PyBool_FromLong((long)paths[i].possible), "batches",
				       (unsigned long long)paths[i].batches, "why", paths[i].why));
	return list;
}

static PyMethodDef methods[] = {
	{ "dlpack", landing_dlpack, METH_VARARGS, NULL },
	{ "address", landing_address, METH_VARARGS, NULL },
	{ "use", landing_use, METH_VARARGS, NULL },
	{ "fetch", landing_fetch, METH_O, NULL },
	{ "info", landing_info, METH_NOARGS, NULL },
	{ "paths", landing_paths, METH_NOARGS, NULL },
	{ 0 },
};

static PyMemberDef members[] = {
	{ "device", T_INT, offsetof(struct landing, device), READONLY, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, landing_new },
	{ Py_tp_dealloc, landing_dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_members, members },
	{ 0, NULL },
};

PyType_Spec landing_spec = {
	.name = "relive._core.Landing",
	.basicsize = sizeof(struct landing),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};

#include "python/src/core.h"

#include "python/src/column.h"

static PyObject *limiter_tuple(struct rlv_limiter l)
{
	return Py_BuildValue("(Kddd)", l.min_size, l.samples_per_insert, l.min_diff, l.max_diff);
}

static PyObject *limiter_min_size(PyObject *module, PyObject *args)
{
	unsigned long long min_size;

	(void)module;
	if (!PyArg_ParseTuple(args, "K", &min_size))
		return NULL;
	return limiter_tuple(rlv_limiter_min_size(min_size));
}

static PyObject *limiter_sample_to_insert(PyObject *module, PyObject *args)
{
	unsigned long long min_size;
	double ratio, error_buffer;

	(void)module;
	if (!PyArg_ParseTuple(args, "dKd", &ratio, &min_size, &error_buffer))
		return NULL;
	return limiter_tuple(rlv_limiter_sample_to_insert(ratio, min_size, error_buffer));
}

static PyObject *limiter_queue(PyObject *module, PyObject *args)
{
	unsigned long long size;

	(void)module;
	if (!PyArg_ParseTuple(args, "K", &size))
		return NULL;
	return limiter_tuple(rlv_limiter_queue(size));
}

static PyObject *limiter_stack(PyObject *module, PyObject *args)
{
	unsigned long long size;

	(void)module;
	if (!PyArg_ParseTuple(args, "K", &size))
		return NULL;
	return limiter_tuple(rlv_limiter_stack(size));
}

static PyObject *build_info(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
	return Py_BuildValue("{s:s,s:O,s:O}", "version", rlv_version(), "remote",
			     RLV_PYTHON_REMOTE ? Py_True : Py_False, "libpmem",
			     RLV_PYTHON_LIBPMEM ? Py_True : Py_False);
}

static PyMethodDef functions[] = {
	{ "limiter_min_size", limiter_min_size, METH_VARARGS, NULL },
	{ "limiter_sample_to_insert", limiter_sample_to_insert, METH_VARARGS, NULL },
	{ "limiter_queue", limiter_queue, METH_VARARGS, NULL },
	{ "limiter_stack", limiter_stack, METH_VARARGS, NULL },
	{ "build_info", build_info, METH_NOARGS, NULL },
	{ 0 },
};

PyTypeObject *type_add(PyObject *module, PyType_Spec *spec)
{
	PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(spec);

	if (type && PyModule_AddType(module, type))
		Py_CLEAR(type);
	return type;
}

PyObject *python_call(const char *module, const char *function, PyObject *args)
{
	PyObject *from = PyImport_ImportModule(module);
	PyObject *callable = from ? PyObject_GetAttrString(from, function) : NULL;
	PyObject *result = callable ? PyObject_CallObject(callable, args) : NULL;

	Py_XDECREF(callable);
	Py_XDECREF(from);
	return result;
}

PyObject *stats_dict(const struct rlv_stats *s)
{
	return Py_BuildValue(
		"{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}",
		"calls", s->calls, "steps", s->steps, "items", s->items, "updates", s->updates,
		"stale_updates", s->stale_updates, "clamped", s->clamped, "redraws", s->redraws,
		"blocks_claimed", s->blocks_claimed, "blocks_skipped", s->blocks_skipped,
		"repeated_rows", s->repeated_rows, "limiter_waits", s->limiter_waits,
		"limiter_wait_ns", s->limiter_wait_ns, "phases", s->phases, "reads", s->reads,
		"writes", s->writes, "cas", s->cas, "faa", s->faa, "read_bytes", s->read_bytes,
		"write_bytes", s->write_bytes, "truncated_lost", s->truncated_lost);
}

/* dtypes: numpy's name -> rlv_dtype. */
static int add_dtypes(PyObject *module)
{
	PyObject *dict = PyDict_New();
	int ret = dict ? 0 : -1;

	for (uint32_t code = RLV_BOOL; ret == 0 && dtype_of(code); code++) {
		PyObject *number = PyLong_FromUnsignedLong(code);

		ret = number ? PyDict_SetItemString(dict, dtype_of(code)->name, number) : -1;
		Py_XDECREF(number);
	}
	if (ret == 0)
		ret = PyModule_AddObjectRef(module, "dtypes", dict);
	Py_XDECREF(dict);
	return ret;
}

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "relive._core",
	.m_size = -1, /* one interpreter: the library counts its handles for the process */
	.m_methods = functions,
};

PyMODINIT_FUNC PyInit__core(void); /* the interpreter declares it nowhere */

PyMODINIT_FUNC PyInit__core(void)
{
	PyObject *module = PyModule_Create(&definition);

	if (!module)
		return NULL;
	if (error_init() || handle_init_forks() || add_dtypes(module) || store_init(module) ||
	    table_init(module) || writer_init(module) || sampler_init(module) ||
	    batch_init(module)) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}

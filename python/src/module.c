#include "python/src/core.h"

#include "python/src/column.h"

static PyObject *limiter_tuple(struct rlv_limiter l)
{
	return Py_BuildValue("(Kddd)", l.min_size, l.samples_per_insert, l.min_diff, l.max_diff);
}

static PyObject *limiter_of_size(PyObject *size, struct rlv_limiter (*make)(uint64_t size))
{
	unsigned long long items = PyLong_AsUnsignedLongLong(size);

	return PyErr_Occurred() ? NULL : limiter_tuple(make(items));
}

static PyObject *limiter_min_size(PyObject *module, PyObject *size)
{
	(void)module;
	return limiter_of_size(size, rlv_limiter_min_size);
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

static PyObject *limiter_queue(PyObject *module, PyObject *size)
{
	(void)module;
	return limiter_of_size(size, rlv_limiter_queue);
}

static PyObject *limiter_stack(PyObject *module, PyObject *size)
{
	(void)module;
	return limiter_of_size(size, rlv_limiter_stack);
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
	{ "limiter_min_size", limiter_min_size, METH_O, NULL },
	{ "limiter_sample_to_insert", limiter_sample_to_insert, METH_VARARGS, NULL },
	{ "limiter_queue", limiter_queue, METH_O, NULL },
	{ "limiter_stack", limiter_stack, METH_O, NULL },
	{ "build_info", build_info, METH_NOARGS, NULL },
	{ 0 },
};

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

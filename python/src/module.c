#include "python/src/core.h"

#include "python/src/column.h"

#include <string.h>

/* limiter(kind, size, ratio=0, error_buffer=0): the library's limiter of a kind, as a tuple. */
static PyObject *module_limiter(PyObject *Py_UNUSED(module), PyObject *args)
{
	double ratio = 0, error_buffer = 0;
	unsigned long long size;
	struct rlv_limiter l;
	const char *kind;

	if (!PyArg_ParseTuple(args, "sK|dd", &kind, &size, &ratio, &error_buffer))
		return NULL;
	if (strcmp(kind, "min_size") == 0)
		l = rlv_limiter_min_size(size);
	else if (strcmp(kind, "queue") == 0)
		l = rlv_limiter_queue(size);
	else if (strcmp(kind, "stack") == 0)
		l = rlv_limiter_stack(size);
	else
		l = rlv_limiter_sample_to_insert(ratio, size, error_buffer);
	return Py_BuildValue("(Kddd)", l.min_size, l.samples_per_insert, l.min_diff, l.max_diff);
}

static PyObject *build_info(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
	return Py_BuildValue("{s:s,s:O,s:O}", "version", rlv_version(), "remote",
			     RLV_PYTHON_REMOTE ? Py_True : Py_False, "libpmem",
			     RLV_PYTHON_LIBPMEM ? Py_True : Py_False);
}

static PyMethodDef functions[] = {
	{ "module_limiter", module_limiter, METH_VARARGS, NULL },
	{ "build_info", build_info, METH_NOARGS, NULL },
	{ 0 },
};

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
	PyObject *dtypes = module ? PyDict_New() : NULL; /* numpy's name -> rlv_dtype */
	bool failed = !dtypes;

	for (uint32_t code = RLV_BOOL; !failed && dtype_of(code); code++) {
		PyObject *number = PyLong_FromUnsignedLong(code);

		failed = !number || PyDict_SetItemString(dtypes, dtype_of(code)->name, number);
		Py_XDECREF(number);
	}
	if (failed || PyModule_AddObjectRef(module, "dtypes", dtypes) || error_init() ||
	    handle_init_forks() || store_init(module) || table_init(module) ||
	    writer_init(module) || sampler_init(module) || batch_init(module))
		Py_CLEAR(module);
	Py_XDECREF(dtypes);
	return module;
}

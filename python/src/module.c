#include "python/src/core.h"

#include "python/src/sampler/sampler.h"

static PyMethodDef functions[] = {
	{ "move_frames", frames_move, METH_VARARGS, NULL },
	{ 0 },
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT, .m_name = "relive._core", .m_methods = functions,
	.m_size = -1, /* one interpreter: the library counts its handles for the process */
};

PyMODINIT_FUNC PyInit__core(void); /* the interpreter declares it nowhere */

PyMODINIT_FUNC PyInit__core(void)
{
	static const struct {
		PyType_Spec *spec;
		PyTypeObject **type;
	} types[] = {
		{ &store_spec, &store_type },
		{ &table_spec, &table_type },
		{ &writer_spec, &writer_type },
		{ &sampler_spec, &sampler_type },
		{ &batch_spec, &batch_type },
		{ &kv_spec, &kv_type },
		{ &weights_spec, &weights_type },
		{ &shards_spec, &shards_type },
		{ &generation_spec, &generation_type },
		{ &landing_spec, &landing_type },
		{ &pool_spec, &pool_type },
		{ &pool_memory_spec, &pool_memory_type },
	};
	PyObject *module = PyModule_Create(&definition);
	PyObject *dtypes = PyDict_New(); /* numpy's name -> rlv_dtype */
	PyObject *build = Py_BuildValue("{s:s,s:O,s:O}", "version", rlv_version(), "remote",
					RLV_PYTHON_REMOTE ? Py_True : Py_False, "libpmem",
					RLV_PYTHON_LIBPMEM ? Py_True : Py_False);
	bool failed = !module || !dtypes || !build;

	for (uint32_t code = RLV_BOOL; !failed && dtype_of(code); code++) {
		PyObject *number = PyLong_FromUnsignedLong(code);

		failed = !number || PyDict_SetItemString(dtypes, dtype_of(code)->name, number);
		Py_XDECREF(number);
	}
	failed = failed || PyModule_AddObjectRef(module, "dtypes", dtypes) ||
		 PyModule_AddObjectRef(module, "build", build) || handle_init_forks() ||
		 array_init() || update_init(module);
	for (size_t i = 0; !failed && i < sizeof(types) / sizeof(types[0]); i++)
		failed = type_add(module, types[i].spec, types[i].type);
	if (failed)
		Py_CLEAR(module);
	Py_XDECREF(dtypes);
	Py_XDECREF(build);
	return module;
}

#include "python/src/core.h"

#include <stdarg.h>
#include <string.h>

int type_add(PyObject *module, PyType_Spec *spec, PyTypeObject **type_out)
{
	PyObject *from = PyImport_ImportModule("relive._docs");
	PyObject *docs = from ? PyObject_GetAttrString(from, "METHODS") : NULL;
	const char *name = strrchr(spec->name, '.') + 1;
	PyType_Slot *slot = spec->slots;

	while (slot->slot != Py_tp_methods)
		slot++;
	for (PyMethodDef *m = slot->pfunc; docs && m->ml_name; m++) {
		PyObject *key = PyUnicode_FromFormat("%s.%s", name, m->ml_name);
		PyObject *doc = key ? PyDict_GetItemWithError(docs, key) : NULL;

		if (doc)
			m->ml_doc = PyUnicode_AsUTF8AndSize(doc, NULL);
		Py_XDECREF(key);
	}
	Py_XDECREF(from); /* docs stays: the texts are borrowed from it */
	if (PyErr_Occurred())
		return -1;
	*type_out = (PyTypeObject *)PyType_FromSpec(spec);
	return *type_out ? PyModule_AddType(module, *type_out) : -1;
}

void *object_alloc(PyTypeObject *type, Py_ssize_t n)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);

	return alloc(type, n);
}

void object_free(void *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

	free_object(self);
	Py_DECREF(type);
}

PyObject *python_call(const char *module, const char *function, const char *format, ...)
{
	PyObject *from = PyImport_ImportModule(module);
	PyObject *callable = from ? PyObject_GetAttrString(from, function) : NULL;
	PyObject *args = NULL, *result;
	va_list values;

	va_start(values, format);
	if (callable)
		args = Py_VaBuildValue(format, values);
	va_end(values);
	result = args ? PyObject_CallObject(callable, args) : NULL;
	Py_XDECREF(args);
	Py_XDECREF(callable);
	Py_XDECREF(from);
	return result;
}

void list_add(PyObject **list, PyObject *item)
{
	if (!item || PyList_Append(*list, item))
		Py_CLEAR(*list);
	Py_XDECREF(item);
}

PyObject *tuple_of_list(PyObject *list)
{
	PyObject *tuple = list ? PyList_AsTuple(list) : NULL;

	Py_XDECREF(list);
	return tuple;
}

bool uint32_of(PyObject *value, uint32_t *out)
{
	PyObject *index = PyNumber_Index(value);
	unsigned long number = index ? PyLong_AsUnsignedLong(index) : 0;

	Py_XDECREF(index);
	if (PyErr_Occurred() || number > UINT32_MAX) {
		PyErr_Clear();
		return false;
	}
	*out = (uint32_t)number;
	return true;
}

#include "python/src/core.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

static PyObject *raise_with_code(int code, PyObject *message)
{
	PyObject *error = message ? python_call("relive.errors", "of_code", "(iN)", code, message)
				  : NULL;

	if (error) {
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
		Py_DECREF(error);
	}
	return NULL;
}

PyObject *error_raise(int code)
{
	const char *text = rlv_last_error();

	return raise_with_code(code,
			       PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"));
}

PyObject *error_or_none(int code)
{
	if (code)
		return error_raise(code);
	Py_RETURN_NONE;
}

PyObject *error_format(int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	raise_with_code(code, PyUnicode_FromFormatV(format, args));
	va_end(args);
	return NULL;
}

int error_invalid(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	raise_with_code(-EINVAL, PyUnicode_FromFormatV(format, args));
	va_end(args);
	return -1;
}

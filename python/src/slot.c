#include "python/src/slot.h"

#include <errno.h>
#include <stdlib.h>

struct slot *slot_open(PyObject *allocator, size_t align, size_t bytes)
{
	struct slot *slot = calloc(1, sizeof(*slot));
	PyGILState_STATE state;
	PyObject *buffer;
	void *memory;

	if (!slot || (!allocator && rlv_buffer_alloc(align, bytes, &memory))) {
		free(slot);
		return NULL;
	}
	slot->refs = 1;
	if (!allocator) {
		slot->memory = memory;
		slot->bytes = bytes;
		return slot;
	}
	state = PyGILState_Ensure();
	buffer = PyObject_CallFunction(allocator, "n", (Py_ssize_t)bytes);
	if (buffer && PyObject_GetBuffer(buffer, &slot->view, PyBUF_CONTIG) == 0) {
		slot->memory = slot->view.buf;
		slot->bytes = (size_t)slot->view.len;
		if (slot->bytes < bytes || (uintptr_t)slot->memory % align != 0)
			error_format(
				-EINVAL,
				"sampler: allocator returned %zu bytes at %p: want %zu bytes aligned to %zu",
				slot->bytes, (void *)slot->memory, bytes, align);
	}
	Py_XDECREF(buffer);
	if (PyErr_Occurred()) {
		slot_put(slot);
		slot = NULL;
	}
	PyGILState_Release(state);
	return slot;
}

void slot_put(struct slot *slot)
{
	if (--slot->refs)
		return;
	if (slot->view.obj)
		PyBuffer_Release(&slot->view);
	else
		rlv_buffer_free(slot->memory, slot->bytes);
	free(slot);
}

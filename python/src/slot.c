#include "python/src/slot.h"

#include <errno.h>
#include <stdlib.h>

/* -------- the library's memory: devices know it, and it lies on huge pages -------- */

static int own_memory(struct slot *slot, size_t align, size_t bytes)
{
	void *memory;

	if (rlv_buffer_alloc(align, bytes, &memory))
		return -1;
	slot->memory = memory;
	slot->bytes = bytes;
	return 0;
}

/* -------- Python's -------- */

static int given_memory(struct slot *slot, PyObject *allocator, size_t align, size_t bytes)
{
	PyObject *buffer = PyObject_CallFunction(allocator, "n", (Py_ssize_t)bytes);
	int ret;

	if (!buffer)
		return -1;
	ret = PyObject_GetBuffer(buffer, &slot->view, PyBUF_CONTIG);
	Py_DECREF(buffer);
	if (ret)
		return -1;
	slot->memory = slot->view.buf;
	slot->bytes = (size_t)slot->view.len;
	if (slot->bytes >= bytes && (uintptr_t)slot->memory % align == 0)
		return 0;
	error_format(-EINVAL, "allocator: %zu bytes at %p, want %zu aligned to %zu", slot->bytes,
		     (void *)slot->memory, bytes, align);
	return -1;
}

/* -------- life -------- */

static void slot_free(struct slot *slot)
{
	if (slot->view.obj)
		PyBuffer_Release(&slot->view);
	else
		rlv_buffer_free(slot->memory, slot->bytes);
	free(slot);
}

struct slot *slot_open(PyObject *allocator, size_t align, size_t bytes)
{
	struct slot *slot = calloc(1, sizeof(*slot));
	int ret = -1;

	if (slot && allocator != Py_None)
		ret = given_memory(slot, allocator, align, bytes);
	else if (slot)
		ret = own_memory(slot, align, bytes);
	if (ret == 0) {
		slot->refs = 1;
		return slot;
	}
	if (!PyErr_Occurred())
		PyErr_NoMemory();
	if (slot)
		slot_free(slot);
	return NULL;
}

void slot_get(struct slot *slot)
{
	slot->refs++;
}

void slot_put(struct slot *slot)
{
	if (--slot->refs == 0)
		slot_free(slot);
}

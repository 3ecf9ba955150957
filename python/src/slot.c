#include "python/src/sampler/sampler.h"

#include <errno.h>
#include <stdlib.h>

static int memory_alloc(struct landing *landing, size_t align, size_t bytes, void **memory_out)
{
	return landing ? rlv_landing_alloc(landing->landing, align, bytes, memory_out)
		       : rlv_buffer_alloc(align, bytes, memory_out);
}

void *slot_alloc(void *sampler, size_t align, size_t bytes)
{
	struct sampler *s = sampler;
	struct slot **slots = realloc(s->slots, (s->n_slots + 1) * sizeof(struct slot *));
	struct slot *slot = slots ? calloc(1, sizeof(*slot)) : NULL;
	PyGILState_STATE state;
	PyObject *buffer;
	void *memory;

	if (slots)
		s->slots = slots;
	if (!slot || (!s->allocator && memory_alloc(s->landing, align, bytes, &memory))) {
		free(slot);
		return NULL;
	}
	slot->refs = 1;
	if (!s->allocator) {
		slot->memory = memory;
		slot->bytes = bytes;
		slots[s->n_slots++] = slot;
		slot->landing = s->landing;
		if (!s->landing)
			return memory;
		state = PyGILState_Ensure();
		Py_INCREF(&s->landing->base);
		PyGILState_Release(state);
		return memory;
	}
	state = PyGILState_Ensure();
	buffer = PyObject_CallFunction(s->allocator, "n", (Py_ssize_t)bytes);
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
	memory = PyErr_Occurred() ? NULL : slot->memory;
	if (memory)
		slots[s->n_slots++] = slot;
	else
		slot_put(slot);
	PyGILState_Release(state);
	return memory;
}

void slot_put(struct slot *slot)
{
	if (--slot->refs)
		return;
	if (slot->view.obj) {
		PyBuffer_Release(&slot->view);
	} else if (slot->landing) {
		PyThreadState *thread = PyEval_SaveThread();

		rlv_landing_free(slot->landing->landing, slot->memory, slot->bytes);
		PyEval_RestoreThread(thread);
		Py_DECREF(&slot->landing->base);
	} else {
		rlv_buffer_free(slot->memory, slot->bytes);
	}
	free(slot);
}

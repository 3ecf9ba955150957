#include "python/src/slot.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* -------- our own memory -------- */

static size_t round_up(size_t bytes, size_t to)
{
	return (bytes + to - 1) / to * to;
}

/* Large buffers on huge pages, where the host gives them. */
static int map_memory(struct slot *slot, size_t bytes)
{
	size_t mapped = round_up(bytes, HUGE_PAGE);
	void *memory =
		mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -1;
	madvise(memory, mapped, MADV_HUGEPAGE); /* a wish */
	slot->memory = memory;
	slot->bytes = mapped;
	slot->mapped = true;
	return 0;
}

static int own_memory(struct slot *slot, size_t align, size_t bytes)
{
	if (bytes >= HUGE_PAGE)
		return map_memory(slot, bytes);
	slot->bytes = round_up(bytes, align);
	slot->memory = aligned_alloc(align, slot->bytes);
	return slot->memory ? 0 : -1;
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
	else if (slot->mapped)
		munmap(slot->memory, slot->bytes);
	else
		free(slot->memory);
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

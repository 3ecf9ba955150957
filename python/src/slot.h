/*
 * Slot: the memory of one batch buffer of a sampler, counted by the sampler and by the lease of the
 * batch in it. It outlives the sampler, so arrays stay readable after close.
 *
 *   sampler -> slot <- lease <- numpy array
 *                        ^----- batch
 *
 * A lease that goes away, when the batch and the last array of it are gone, marks its slot as given
 * back; the sampler gives the buffer to the library before its next sample. So no lock is taken
 * where an array dies, and no buffer is filled under one.
 */
#ifndef RLV_PYTHON_SRC_SLOT_H
#define RLV_PYTHON_SRC_SLOT_H

#include "python/src/core.h"

#include <stdatomic.h>

struct slot {
	unsigned refs; /* guarded by the interpreter lock */
	atomic_bool returned;
	const struct rlv_batch *batch; /* the library's; NULL = never filled */
	uint32_t n;                    /* items of that batch, and ... */
	int64_t table_size;            /* ... what it says: a close frees it */
	uint8_t *memory;
	size_t bytes;
	Py_buffer view; /* Python's memory, if .obj; else the library's */
};

/*
 * A slot in the library's memory: devices know it, and it lies on huge pages. NULL: no memory; there is
 * no exception, and no need of the interpreter lock.
 */
struct slot *slot_open(size_t align, size_t bytes);

/* In what allocator(bytes) gives, a writable buffer. NULL with an exception. */
struct slot *slot_open_given(PyObject *allocator, size_t align, size_t bytes);
void slot_get(struct slot *slot);
void slot_put(struct slot *slot);

#endif

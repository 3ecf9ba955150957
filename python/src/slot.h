/*
 * Slot: the memory of one batch buffer of a sampler, counted by the sampler and by the lease of the
 * batch in it, a capsule. It outlives the sampler, so arrays stay readable after close.
 *
 *   sampler -> slot <- lease <- numpy array
 *                        ^----- batch
 *
 * When the batch and its last array are freed, the lease marks its slot as returned; the sampler
 * returns the buffer to the library before its next sample. So freeing an array takes no lock, and
 * no buffer is filled while an array uses it.
 */
#ifndef RLV_PYTHON_SRC_SLOT_H
#define RLV_PYTHON_SRC_SLOT_H

#include "python/src/core.h"

#include <relive/landing.h>

#include <stdatomic.h>

/*
 * The memory of a device in which batches arrive (landing.c). Open as long as it is referenced: by samplers, and
 * by the slots whose memory it gave.
 */
struct landing {
	PyObject base;
	struct rlv_landing *landing;
	PyObject *pool; /* borrowed from; NULL = none */
	int device; /* number of the CUDA device; -1 = memory of the host, whose arrays are numpy's */
	bool weighs; /* it computes importance weights */
};

struct slot {
	unsigned refs; /* guarded by the interpreter lock */
	atomic_bool returned;
	const struct rlv_batch *batch; /* the library's; NULL = never filled */
	uint32_t n;                    /* items of that batch, and ... */
	int64_t table_size;            /* ... its size: a close frees the batch */
	uint32_t path;                 /* how it came to a device; 0 = not */
	struct layout *layout;         /* of that batch; a reference of the lease */
	uint8_t *memory;
	size_t bytes;
	Py_buffer view; /* Python's memory, if .obj; else the landing's, or the library's */
	struct landing *landing; /* a reference; NULL = none */
};

/*
 * rlv_memory.alloc of a sampler: adds a slot to it and returns the slot's memory. That is the
 * buffer that its Python allocator(bytes) returned, if it has one, while the sampler is opened;
 * else its landing's or rlv_buffer_alloc's, without the interpreter lock. The handle is locked, or no other thread
 * knows it. NULL: no memory, or an exception: of the allocator, or its buffer is too small or not
 * aligned.
 */
void *slot_alloc(void *sampler, size_t align, size_t bytes);

/* Returns the array of a slot's batch as the device has it, or as it is if that is the host's. Takes the
   reference; NULL stays NULL. */
PyObject *landing_array(const struct slot *slot, bool is_weight, PyObject *array);

/* Drops a reference. */
void slot_put(struct slot *slot);

#endif

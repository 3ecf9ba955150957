/*
 * Sampler: a handle of the library, the slots of its batches, and the prefetch thread.
 */
#ifndef RLV_PYTHON_SRC_SAMPLER_H
#define RLV_PYTHON_SRC_SAMPLER_H

#include "python/src/batch.h"

#define SAMPLER_MOST_AHEAD 64

struct prefetch;

struct sampler {
	struct handle h;
	uint32_t batch_size;
	uint32_t depth;              /* prefetched batches; 0 = none */
	struct rlv_sample_opts opts; /* default of samples; guarded by the handle's lock */
	struct rlv_sample_opts set;  /* current options in the library; guarded by the same */
	PyObject *allocator; /* NULL, or bytes -> writable buffer; borrowed, while it is opened */
	struct slot **slots; /* grows on demand; guarded by the handle's lock */
	uint32_t n_slots;
	struct layout *layout;     /* of the last batch; NULL until the first */
	struct prefetch *prefetch; /* NULL until the first next() */
};

/*
 * Tries to sample once. 0 with the slot of the batch, or an error code. The handle is locked, the
 * interpreter lock is not held.
 */
int sampler_try(struct sampler *s, uint32_t n, const struct rlv_sample_opts *opts,
		int64_t timeout_ns, struct slot **slot_out);

/* True if a buffer whose arrays are gone can be given back to the library. */
bool sampler_has_returned(const struct sampler *s);

/* -------- update.c -------- */

int update_init(PyObject *module);

/* The method update_priorities. */
PyObject *sampler_update(PyObject *object, PyObject *args, PyObject *kwargs);

/* -------- prefetch.c -------- */

/* Starts the thread. NULL with an exception. free() it after prefetch_join, or in a forked child. */
struct prefetch *prefetch_open(struct sampler *s);

/*
 * Takes the slot of the oldest batch: 0, or -1 with an exception, or 1: the thread has met an error,
 * which a sample of the caller's meets, too. Waits in slices. The slot is valid until the caller lets
 * other threads run: then one may close the sampler.
 */
int prefetch_take(struct prefetch *p, struct wait *wait, struct slot **slot_out);

/* Tells the thread to end; afterwards prefetch_take gives an exception. */
void prefetch_stop(struct prefetch *p);

/* Ends the thread, without the handle's lock. A second call is a no-op. */
void prefetch_join(struct prefetch *p);

#endif

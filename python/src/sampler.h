/*
 * Sampler: a handle of the library, the slots its batches lie in, and the thread that samples ahead.
 */
#ifndef RLV_PYTHON_SRC_SAMPLER_H
#define RLV_PYTHON_SRC_SAMPLER_H

#include "python/src/batch.h"

#define SAMPLER_MAX_SLOTS 64

struct prefetch;

struct sampler {
	struct handle h;
	struct rlv_sampler *sampler;
	uint32_t batch_size;
	uint32_t depth;      /* batches sampled ahead; 0 = none */
	double beta;         /* of samples that do not say; guarded by the handle's lock */
	double library_beta; /* as the library has it now; guarded by the same */
	PyObject *timeout;   /* of the iterator */
	PyObject *allocator; /* None, or bytes -> writable buffer; while it is opened */
	uint32_t n_slots;
	struct slot *slots[SAMPLER_MAX_SLOTS];
	struct layout *layout;     /* NULL until the first batch */
	struct prefetch *prefetch; /* NULL until the first next() */
};

struct draw {
	uint32_t n;
	double beta; /* as the library wants it */
	int64_t timeout_ns;
};

/* One try. 0 or a code. The handle is locked, the interpreter lock is not held. */
int sampler_try(struct sampler *s, const struct draw *draw, const struct rlv_batch **batch_out);

/* Gives buffers whose arrays are gone back to the library. The handle is locked. */
void sampler_reclaim(struct sampler *s);

/* Is a buffer on its way back? */
bool sampler_has_returned(const struct sampler *s);

/* -------- update.c -------- */

int update_init(PyObject *module);

/* The method update_priorities. */
PyObject *sampler_update(PyObject *object, PyObject *args, PyObject *kwargs);

/* -------- prefetch.c -------- */

/* Starts the thread. NULL with an exception. */
struct prefetch *prefetch_open(struct sampler *s);

/*
 * The oldest batch: 0, or -1 with an exception. Waits in slices. The batch is there until the caller
 * lets other threads run: then one may close the sampler.
 */
int prefetch_take(struct prefetch *p, struct wait *wait, const struct rlv_batch **batch_out);

/* Tells the thread to end; from now on prefetch_take gives an exception. */
void prefetch_stop(struct prefetch *p);

/* Waits for its end, after prefetch_stop and without the handle's lock. A second call is a no-op. */
void prefetch_join(struct prefetch *p);

/* After prefetch_join, or in a forked child; NULL is a no-op. */
void prefetch_free(struct prefetch *p);

#endif

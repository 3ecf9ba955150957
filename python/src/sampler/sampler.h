/*
 * Sampler: a handle of the library, the slots of its batches, and how batches come ahead: by the library over a
 * wire, or by a thread.
 */
#ifndef RLV_PYTHON_SRC_SAMPLER_H
#define RLV_PYTHON_SRC_SAMPLER_H

#include "python/src/batch.h"
#include "python/src/sampler/pace.h"

#include <relive/ahead.h>

#define SAMPLER_MOST_AHEAD 64

struct prefetch;

struct sampler {
	struct handle h;
	uint32_t batch_size;
	uint32_t depth;         /* prefetched batches; 0 = none */
	atomic_bool by_library; /* the library had some after the last draw that may begin some */
	struct pace pace;       /* if by_library */
	struct rlv_sample_opts opts; /* default of samples; guarded by the handle's lock */
	struct rlv_sample_opts set;  /* current options in the library; guarded by the same */
	PyObject *allocator; /* NULL, or bytes -> writable buffer; borrowed, while it is opened */
	struct landing *landing; /* a reference; NULL = batches stay on the host */
	struct slot **slots;     /* grows on demand; guarded by the handle's lock */
	uint32_t n_slots;
	struct layout *layout;     /* of the last batch; NULL until the first */
	struct prefetch *prefetch; /* NULL until it pays */
	atomic_llong draw_ns;      /* a draw takes, of late */
	int64_t gap_ns;            /* the caller takes between two next() */
	int64_t left_ns;           /* when the last next() returned; 0 = none has */
	int64_t trial_ns;          /* what the last batches took ... */
	uint32_t trial;            /* ... so many of them, while the thread drew ahead */
	uint32_t rest;             /* calls until it is tried again */
};

/* How a batch is drawn. */
struct draw_how {
	struct rlv_sample_opts opts;
	enum rlv_ahead ahead; /* what becomes of those that the library has ahead */
};

/*
 * Gives back the buffers whose arrays are gone, and draws n items as *how says, by one rlv_sampler_sample, which waits
 * for timeout_ns at most. 0 with the slot of the batch, or the library's error code. The caller holds the handle's
 * lock, not the interpreter lock.
 */
int sampler_try(struct sampler *s, uint32_t n, const struct draw_how *how, int64_t timeout_ns,
		struct slot **slot_out);

/* Gives back the buffers whose arrays are gone. The caller holds the handle's lock. */
void sampler_give_back(struct sampler *s);

/* Returns the slot of a batch that the library has just filled, with what batch_make needs of it. */
struct slot *sampler_slot(struct sampler *s, const struct rlv_batch *batch);

/* -------- update.c -------- */

int update_init(PyObject *module);

/* The method update_priorities: sets priorities by key. An Updated, or NULL with an exception. */
PyObject *sampler_update(PyObject *object, PyObject *args, PyObject *kwargs);

/* -------- scan.c -------- */

/* The methods _scan_start, _scan_next and _gather of the extension's type: relive._scan calls them. */
PyObject *sampler_scan_start(PyObject *object, PyObject *args);
PyObject *sampler_scan_next(PyObject *object, PyObject *timeout);
PyObject *sampler_gather(PyObject *object, PyObject *args);

/* -------- prefetch.c -------- */

/* Starts the thread that draws batches of s ahead. NULL with an exception. The caller frees the
   result with free(), after prefetch_join, or in a forked child without it. */
struct prefetch *prefetch_open(struct sampler *s);

/* Returns the slot of the oldest prefetched batch; NULL = none is there. It is valid until the caller lets
   other threads run: one may close the sampler. */
struct slot *prefetch_take(struct prefetch *p);

/* Says whether the thread shall draw after the next prefetch_take or prefetch_leave_draws. */
void prefetch_say(struct prefetch *p, bool pays);

/* leave: the caller draws batches itself from now on, until a second call without; the thread does not. */
void prefetch_leave_draws(struct prefetch *p, bool leave);

/* Tells the prefetch thread to end, and does not wait for it. From then on prefetch_take gives no
   batch. */
void prefetch_stop(struct prefetch *p);

/* Stops the prefetch thread and waits until it has ended. The caller does not hold the handle's
   lock, which the thread takes. A second call does nothing. */
void prefetch_join(struct prefetch *p);

#endif

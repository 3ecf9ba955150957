/*
 * relive._core: the C API of Relive as Python types, over the stable ABI of CPython 3.11. What is
 * here is what costs when Python does it: calls, locks, buffers. Names, defaults and documentation
 * are in the Python files of the package.
 *
 *   error.c     negative errno -> exception            writer.c    writer; call.c its keywords,
 *   handle.c    locks, fork, waits that ^C ends                    append.c rows into the table,
 *                                                                  autoreset.c ends of episodes
 *   module.c    the module                             sampler.c   sampler; update.c priorities,
 *   store.c     store                                              prefetch.c a thread ahead
 *   table.c     table, options, information            batch.c     batches; array.c numpy's arrays
 *   column.c    Python values -> packed columns        slot.c      memory of batches
 *   convert.c   elements of other dtypes
 *
 * Invariants
 *   A handle of the library is inside one call at a time: its lock says so, and the interpreter lock
 *   is released before the handle's is waited for.
 *   While a handle is locked, no Python code runs and no Python object is made; but for a sampler's
 *   allocator, which runs while the table is locked and must not use it. Who waits for a handle's lock
 *   does not hold the interpreter lock.
 *   A batch's memory belongs to the arrays made of it, not to the sampler: see slot.h.
 */
#ifndef RLV_PYTHON_SRC_CORE_H
#define RLV_PYTHON_SRC_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <relive/relive.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* -------- error.c -------- */

/* Looks up the exception classes in relive.errors. 0, or -1 with an exception set. */
int error_init(void);

/* Raises the exception of a code with the library's message of this thread. Returns NULL. */
PyObject *error_raise(int code);

/* The same with a message of our own; as PyErr_Format. */
PyObject *error_format(int code, const char *format, ...);

/* -------- handle.c -------- */

/* First members of every type that owns a handle of the library. */
struct handle {
	PyObject_HEAD PyObject
		*parent;      /* object whose handle must stay open: the table of a writer; or
		                 NULL */
	pthread_mutex_t lock; /* held inside the library */
	unsigned forks;       /* of this process when it was opened */
	unsigned waiters;     /* for the lock; guarded by the interpreter lock, as closers */
	unsigned closers;     /* waiters that close */
	bool open;            /* only false -> true -> false */
};

int handle_init_forks(void);

/* Initialises a new object: its lock, and a reference to the parent. Cannot fail. */
void handle_init(struct handle *h, PyObject *parent);
void handle_fini(struct handle *h);

/* Locks an open handle for a call. 0, or -1 with an exception: closed, forked, interrupted. */
int handle_enter(struct handle *h);
void handle_leave(struct handle *h);

/* Called between two calls of one wait: lets waiters have the lock. */
void handle_yield(const struct handle *h);

/* Locks for closing: 1; 0 when there is nothing to close (closed, or the parent's); -1 interrupted. */
int handle_enter_close(struct handle *h);

/* True if this process opened the handle, not its parent before a fork. */
bool handle_is_ours(const struct handle *h);

/* Frees an object of a type made by PyType_FromSpec. */
void object_free(void *self);

/*
 * A wait in slices; signals are checked between them. timeout: None until no progress, else
 * seconds, infinity for ever. 0, or -1 with an exception.
 */
struct wait {
	int64_t deadline_ns;    /* -1 = none */
	int64_t left_ns;        /* of the next slice; 0 = poll once: a timeout of 0 */
	bool stalls;            /* it ends when there is no progress */
	int stalled;            /* last result of the library's watch */
	bool told;              /* the long wait was reported */
	struct rlv_watch watch; /* for the library, after each slice that timed out */
};
int wait_start(struct wait *wait, PyObject *timeout);

/* True if the code means that a slice timed out. */
bool wait_is_over_time(int code);

/*
 * After a call that gave `code`: 1 = call again for wait->left_ns; 0 = it is final; -1 = a signal's
 * handler raised. The caller holds no lock.
 */
int wait_again(struct wait *wait, int code);
int64_t wait_now_ns(void);

/* -------- types -------- */

extern PyTypeObject *store_type, *table_type, *writer_type, *sampler_type;

int store_init(PyObject *module);
int table_init(PyObject *module);
int writer_init(PyObject *module);
int sampler_init(PyObject *module);
int batch_init(PyObject *module);

struct store {
	struct handle h;
	struct rlv_store *store;
};

struct table {
	struct handle h;
	struct rlv_table *table;
	struct rlv_table_info *info;   /* as opened: the counters in it are old */
	char (*names)[RLV_NAME_BYTES]; /* names of the columns in info: those in info end with
	                                  the handle */
};

/* Makes a type from its spec and adds it to the module. NULL with an exception. */
PyTypeObject *type_add(PyObject *module, PyType_Spec *spec);

/* Makes a dict of a writer's or sampler's counters. */
PyObject *stats_dict(const struct rlv_stats *stats);

/* Calls a function of one of the package's Python modules. Steals nothing. */
PyObject *python_call(const char *module, const char *function, PyObject *args);

#endif

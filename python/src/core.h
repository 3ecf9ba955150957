/*
 * relive._core: the C API of Relive as Python types, over the stable ABI of CPython 3.11. What is
 * here is what costs when Python does it: calls, locks, buffers. Names, defaults and documentation
 * are in the Python files of the package.
 *
 *   error.c     negative errno -> exception            writer.c    writer; call.c its keywords,
 *   handle.c    locks, fork, waits that ^C ends                    append.c rows into the table,
 *                                                                  autoreset.c ends of episodes
 *   object.c    objects, lists, calls of Python        sampler.c   sampler; update.c priorities,
 *   module.c    the module                                         prefetch.c a thread ahead,
 *                                                                  scan.c reading without a draw
 *   store.c     store                                  batch.c     batches; array.c numpy's arrays
 *   table.c     table, options, information            slot.c      memory of batches
 *   save.c      saved tables
 *   landing.c   devices where batches arrive
 *   kv.c        heaps                                   weights.c   generations of weights
 *   pool.c      jobs of a device pool
 *   column.c    Python values -> packed columns, and elements of other dtypes
 *   frames.c    images of a batch, moved and as floats
 *
 * Invariants
 *   A handle of the library is inside one call at a time: its lock says so, and the interpreter lock
 *   is released before the handle's is waited for.
 *   While a handle is locked, no Python code runs and no Python object is made; but for a sampler's
 *   allocator and the bar of a save, which run while the table is locked and must not use it. Who waits for a handle's lock
 *   does not hold the interpreter lock.
 *   A batch's memory belongs to the arrays made of it, not to the sampler: see slot.h.
 */
#ifndef RLV_PYTHON_SRC_CORE_H
#define RLV_PYTHON_SRC_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <relive/kv.h>
#include <relive/pool.h>
#include <relive/relive.h>
#include <relive/weights.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* -------- error.c -------- */

/* Raises the exception class of a negative errno, with the text of rlv_last_error() as message.
   Returns NULL. */
PyObject *error_raise(int code);

/* Returns None if code is 0. Else raises the exception of the code, as error_raise, and returns
   NULL. */
PyObject *error_or_none(int code);

/* Raises the exception class of a negative errno, with a message formatted as by PyErr_Format.
   Returns NULL. */
PyObject *error_format(int code, const char *format, ...);

/* Raises InvalidArgument with a message formatted as by PyErr_Format. Returns -1. */
int error_invalid(const char *format, ...);

/* -------- frames.c -------- */

/*
 * The function move_frames(frames, out, shifts, divisor): copies frames, (n, ..., height, width) of
 * uint8, to as many elements of uint8, or of float32 and divided. Frame i is moved up and left by
 * shifts[i], int32 (n, 2), and its edges repeated; None = by nothing. None, or NULL with an exception.
 */
PyObject *frames_move(PyObject *module, PyObject *args);

/* -------- object.c -------- */

/* A method that takes keywords, as PyMethodDef wants it. */
#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

/*
 * Makes a type from its spec and adds it to the module. Its methods get the documentation that
 * relive._docs has for them. 0, or -1 with an exception.
 */
int type_add(PyObject *module, PyType_Spec *spec, PyTypeObject **type_out);

/* Allocates a zeroed object of a type made by PyType_FromSpec, with room for n items of the type's
   itemsize. NULL with an exception. */
void *object_alloc(PyTypeObject *type, Py_ssize_t n);

/* Frees the memory of an object of object_alloc, and drops its reference to its type: the end of
   its tp_dealloc. */
void object_free(void *self);

/* Imports a Python module and calls its function with the arguments that Py_BuildValue makes of
   format, a tuple. Returns a new reference, or NULL with an exception. */
PyObject *python_call(const char *module, const char *function, const char *format, ...);

/* Appends an item to *list, and drops the caller's reference to the item. If the item is NULL or
   appending fails, it frees the list and sets *list to NULL. */
void list_add(PyObject **list, PyObject *item);

/* Returns a new tuple of the list's items, and drops the caller's reference to the list. NULL if
   the list is NULL, or with an exception. */
PyObject *tuple_of_list(PyObject *list);

/* Reads an integer of 0 to 2^32 - 1. false for any other value, without an exception. */
bool uint32_of(PyObject *value, uint32_t *out);

/* -------- handle.c -------- */

enum handle_kind {
	HANDLE_STORE,
	HANDLE_TABLE,
	HANDLE_WRITER,
	HANDLE_SAMPLER,
	HANDLE_KV,
	HANDLE_WEIGHTS,
	HANDLE_SHARDS,
	HANDLE_POOL
};

struct handle;

/* What a type does when a handle ends; NULL = nothing. */
struct handle_hooks {
	void (*before_close)(struct handle *h); /* under its lock */
	void (*after_close)(struct handle *h);
	void (*begin_free)(struct handle *h); /* before the handle is closed for good */
	void (*free)(struct handle *h);       /* what the object has beside the handle */
};

/* First member of every type that owns a handle of the library; a store is nothing else. */
struct handle {
	PyObject base;
	PyObject *parent;  /* object whose handle must stay open: the table of a writer; or NULL */
	PyObject *timeout; /* of waits: None or seconds; NULL = a store or table */
	enum handle_kind kind;
	const struct handle_hooks *hooks;
	union { /* the library's; NULL = closed, or not opened yet */
		void *library;
		struct rlv_store *store;
		struct rlv_table *table;
		struct rlv_writer *writer;
		struct rlv_sampler *sampler;
		struct rlv_kv *kv;
		struct rlv_generations *weights;
		struct rlv_shards *shards;
		struct rlv_pool *pool;
	};
	pthread_mutex_t lock;  /* held inside the library */
	PyThreadState *thread; /* that is inside the library, without the interpreter lock */
	unsigned forks;        /* of this process when it was opened */
	unsigned waiters;      /* for the lock; guarded by the interpreter lock, as closers */
	unsigned closers;      /* waiters that close */
	bool open;             /* only false -> true -> false */
};

int handle_init_forks(void);

/* The member is_open. */
extern PyMemberDef handle_members[];

/* Allocates an object of a handle type, not open yet, with references to the parent and the
   timeout, each of which may be NULL. hooks: static, or NULL. NULL with an exception. */
void *handle_new(PyTypeObject *type, PyObject *parent, PyObject *timeout, enum handle_kind kind,
		 const struct handle_hooks *hooks);

/*
 * Ends the opening of an object whose library call returned `code`: marks h open and returns it if
 * code is 0; else frees h and returns NULL, with the exception that is set already, or else the
 * code's.
 */
PyObject *handle_opened(struct handle *h, int code);

/* tp_dealloc of stores, tables, writers and samplers: closes the handle, ignores the result, and
   frees the object. */
void handle_dealloc(PyObject *object);

/* Defines the spec of a type of handles that has nothing but `methods` of its own. */
#define HANDLE_SPEC(spec, type_name, make) \
	static PyType_Slot slots[] = { \
		{ Py_tp_new, make }, \
		{ Py_tp_dealloc, handle_dealloc }, \
		{ Py_tp_methods, methods }, \
		{ Py_tp_members, handle_members }, \
		{ 0, NULL }, \
	}; \
	PyType_Spec spec = { .name = "relive._core." type_name, \
			     .basicsize = sizeof(struct handle), \
			     .flags = Py_TPFLAGS_DEFAULT, \
			     .slots = slots }

/* Locks the lock of an open handle. 0, or -1 with an exception: the handle is closed, was opened
   before a fork, or a signal's handler raised; then the lock is not held. */
int handle_lock(struct handle *h);

/*
 * Locks an open handle and releases the interpreter lock, for a call of the library: no Python
 * object may be used until handle_leave. 0, or -1 with an exception and the interpreter lock held:
 * the handle is closed, was opened before a fork, or a signal's handler raised.
 */
int handle_enter(struct handle *h);
void handle_leave(struct handle *h);

/*
 * Sleeps 1 ms without the interpreter lock, so that threads that wait for a handle's lock get it.
 */
void handle_pause(void);

/* The method close(): closes the handle, unless it is closed already or was opened by the parent of
   a fork. None, or NULL with an exception. */
PyObject *handle_close(PyObject *object, PyObject *unused);

/*
 * Closes the handle, unless it is closed already or was opened by the parent of a fork. 0 with the
 * result of the library's close in *code_out (0 if nothing was to close), or -1 with the exception
 * of a signal's handler: the handle is still open.
 */
int handle_end(struct handle *h, int *code_out);

/* The method persist() of a store, and flush() of a sampler: calls rlv_store_persist or
   rlv_sampler_flush. None, or NULL with an exception. */
PyObject *handle_flush(PyObject *object, PyObject *unused);

/* The method stats() of a writer or sampler: its rlv_stats as a dict. NULL with an exception. */
PyObject *handle_stats(PyObject *object, PyObject *unused);

/* True if this process opened the handle, not its parent before a fork. */
bool handle_is_ours(const struct handle *h);

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
 * After a library call of a wait that returned `code`: 1 = its slice timed out, call again for
 * wait->left_ns; 0 = the code is final, or the wait is over; -1 with an exception: a signal's
 * handler raised, or warnings are errors. The caller holds no lock.
 */
int wait_again(struct wait *wait, int code);

/* Returns the monotonic time. */
int64_t wait_now_ns(void);

/* Returns the time on a clock, `ns` after now. */
struct timespec time_after(clockid_t clock, int64_t ns);

/* -------- types -------- */

/* The library's pool of a Pool, which cannot be closed until pool_return. NULL with an exception: it is closed. */
struct rlv_pool *pool_borrow(PyObject *pool);
void pool_return(PyObject *pool);

/* -------- save.c -------- */

PyObject *table_save(PyObject *object, PyObject *args);
PyObject *store_load(PyObject *object, PyObject *args);

extern PyTypeObject *store_type, *table_type, *writer_type, *sampler_type, *batch_type, *kv_type,
	*weights_type, *shards_type, *generation_type, *landing_type, *pool_type, *pool_memory_type;

extern PyType_Spec store_spec, table_spec, writer_spec, sampler_spec, batch_spec, kv_spec,
	weights_spec, shards_spec, generation_spec, landing_spec, pool_spec, pool_memory_spec;

struct table {
	struct handle h;
	struct rlv_table_info info; /* as opened: the counters in it are old */
	/* of the columns in info: the library's end with the handle */
	char names[RLV_MAX_COLUMNS][RLV_NAME_BYTES];
};

#endif

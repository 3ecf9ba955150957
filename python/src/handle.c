#include "python/src/core.h"

#include <errno.h>
#include <stdatomic.h>

#define NS_PER_S INT64_C(1000000000)
#define SLICE_NS (NS_PER_S / 20) /* longest delay of a signal */

/* -------- fork -------- */

static atomic_uint forks;

static void count_fork(void)
{
	atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed); /* one thread is left */
}

int handle_init_forks(void)
{
	if (pthread_atfork(NULL, NULL, count_fork) == 0)
		return 0;
	PyErr_SetString(PyExc_OSError, "pthread_atfork failed");
	return -1;
}

bool handle_is_ours(const struct handle *h)
{
	/* relaxed: a fork of this very process happened before */
	return h->forks == atomic_load_explicit(&forks, memory_order_relaxed);
}

/* -------- life -------- */

PyMemberDef handle_members[] = {
	{ "is_open", T_BOOL, offsetof(struct handle, open), READONLY, NULL },
	{ 0 },
};

void *handle_new(PyTypeObject *type, PyObject *parent, PyObject *timeout, enum handle_kind kind,
		 const struct handle_hooks *hooks)
{
	static const struct handle_hooks none; /* all NULL */
	struct handle *h = object_alloc(type, 0);

	if (!h)
		return NULL;
	Py_XINCREF(parent);
	h->parent = parent;
	Py_XINCREF(timeout);
	h->timeout = timeout;
	h->kind = kind;
	h->hooks = hooks ? hooks : &none;
	pthread_mutex_init(&h->lock, NULL); /* cannot fail with default attributes on Linux */
	h->forks = atomic_load_explicit(&forks, memory_order_relaxed);
	return h;
}

PyObject *handle_opened(struct handle *h, int code)
{
	h->open = h->library != NULL;
	if (code == 0)
		return &h->base;
	if (!PyErr_Occurred())
		error_raise(code);
	Py_DECREF(h);
	return NULL;
}

/* -------- lock -------- */

struct timespec time_after(clockid_t clock, int64_t ns)
{
	struct timespec time;

	clock_gettime(clock, &time);
	ns += time.tv_nsec;
	time.tv_sec += ns / NS_PER_S;
	time.tv_nsec = ns % NS_PER_S;
	return time;
}

/* Locks h->lock, and releases the interpreter lock while it waits for it. 0, or -1 with the
   exception of a signal's handler: h->lock is not held. */
static int wait_for_lock(struct handle *h)
{
	bool locked = pthread_mutex_trylock(&h->lock) == 0, interrupted = false;

	if (locked)
		return 0;
	h->waiters++;
	while (!locked && !interrupted) {
		PyThreadState *thread = PyEval_SaveThread();
		struct timespec until = time_after(CLOCK_REALTIME, SLICE_NS);

		locked = pthread_mutex_timedlock(&h->lock, &until) == 0;
		PyEval_RestoreThread(thread);
		interrupted = !locked && PyErr_CheckSignals();
	}
	h->waiters--;
	return locked ? 0 : -1;
}

void handle_pause(void)
{
	const struct timespec time = { .tv_nsec = SLICE_NS / 50 };
	PyThreadState *thread = PyEval_SaveThread();

	nanosleep(&time, NULL);
	PyEval_RestoreThread(thread);
}

int handle_lock(struct handle *h)
{
	if (!handle_is_ours(h)) {
		error_format(
			-ECHILD,
			"the store was opened before fork(): open it again in the child, with its "
			"tables, writers and samplers");
		return -1;
	}
	/* A mutex is not fair: callers in slices would lock again before a closer wakes. Let a closer
	   have 200 ms; not more, as this may be a signal handler in the closer's own thread. */
	for (int i = 0; h->closers && i < 200; i++)
		handle_pause();
	if (wait_for_lock(h))
		return -1;
	if (h->open)
		return 0;
	pthread_mutex_unlock(&h->lock);
	error_format(-EBADF, "this store, table, writer or sampler is closed: open another one");
	return -1;
}

int handle_enter(struct handle *h)
{
	if (handle_lock(h))
		return -1;
	h->thread = PyEval_SaveThread();
	return 0;
}

void handle_leave(struct handle *h)
{
	PyEval_RestoreThread(h->thread);
	pthread_mutex_unlock(&h->lock);
}

/* -------- close -------- */

static void call_hook(void (*hook)(struct handle *h), struct handle *h)
{
	if (hook)
		hook(h);
}

int handle_end(struct handle *h, int *code_out)
{
	PyThreadState *thread;
	int ret;

	*code_out = 0;
	if (!h->open || !handle_is_ours(h))
		return 0;
	h->closers++;
	ret = wait_for_lock(h);
	h->closers--;
	if (ret)
		return -1;
	if (!h->open) {
		pthread_mutex_unlock(&h->lock);
		return 0;
	}
	call_hook(h->hooks->before_close, h);
	thread = PyEval_SaveThread();
	switch (h->kind) {
	case HANDLE_STORE:
		*code_out = rlv_store_close(&h->store);
		break;
	case HANDLE_TABLE:
		*code_out = rlv_table_close(&h->table);
		break;
	case HANDLE_WRITER:
		*code_out = rlv_writer_close(&h->writer);
		break;
	case HANDLE_SAMPLER:
		*code_out = rlv_sampler_close(&h->sampler);
		break;
	case HANDLE_KV:
		*code_out = rlv_kv_close(&h->kv);
		break;
	case HANDLE_WEIGHTS:
		*code_out = rlv_weights_close(&h->weights);
		break;
	case HANDLE_SHARDS:
		*code_out = rlv_shards_close(&h->shards);
		break;
	case HANDLE_POOL:
		*code_out = rlv_pool_close(&h->pool);
	}
	PyEval_RestoreThread(thread);
	h->open = h->library != NULL;
	pthread_mutex_unlock(&h->lock);
	call_hook(h->hooks->after_close, h);
	return 0;
}

PyObject *handle_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
	int code;

	return handle_end((struct handle *)object, &code) ? NULL : error_or_none(code);
}

void handle_dealloc(PyObject *object)
{
	struct handle *h = (struct handle *)object;
	int code;

	call_hook(h->hooks->begin_free, h);
	(void)handle_end(h, &code); /* a caller who wants the result calls close() */
	call_hook(h->hooks->free, h);
	if (handle_is_ours(h)) /* else a thread of the parent may hold it for ever */
		pthread_mutex_destroy(&h->lock);
	Py_CLEAR(h->parent);
	Py_CLEAR(h->timeout);
	object_free(h);
}

/* -------- waits -------- */

int64_t wait_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Sets wait->left_ns, the length of the next slice: SLICE_NS, or the time to the deadline if that
   is less. */
static void next_slice(struct wait *wait)
{
	int64_t left = SLICE_NS;

	if (wait->deadline_ns >= 0)
		left = wait->deadline_ns - wait_now_ns();
	wait->left_ns = left < 0 ? 0 : left > SLICE_NS ? SLICE_NS : left;
}

int wait_start(struct wait *wait, PyObject *timeout)
{
	double seconds;

	wait->deadline_ns = -1;
	wait->left_ns = SLICE_NS;
	wait->stalls = timeout == Py_None;
	wait->stalled = 0;
	wait->told = wait->watch.warned = false;
	wait->watch.size = (uint32_t)sizeof(wait->watch);
	wait->watch.began_ns = 0; /* the library sets the rest */
	if (wait->stalls)
		return 0;
	seconds = PyFloat_AsDouble(timeout);
	if (seconds == -1 && PyErr_Occurred())
		return -1;
	if (!(seconds >= 0))
		return error_invalid("timeout %R: want seconds, 0 or more, or None", timeout);
	if (seconds < 1e9) {
		wait->deadline_ns = wait_now_ns() + (int64_t)(seconds * (double)NS_PER_S);
		next_slice(wait);
	}
	return 0;
}

bool wait_is_over_time(int code)
{
	return code == -ETIMEDOUT || code == -ENODATA || code == -EAGAIN;
}

int wait_again(struct wait *wait, int code)
{
	PyObject *result;

	if (!wait_is_over_time(code) || wait->left_ns == 0)
		return 0;
	if (wait->stalls && wait->stalled)
		return 0;
	if (PyErr_CheckSignals())
		return -1;
	if (!wait->told && wait->watch.warned) {
		wait->told = true;
		result = python_call("relive.errors", "warn_of_wait", "(s)", wait->watch.text);
		Py_XDECREF(result);
		if (!result) /* warnings are errors here */
			return -1;
	}
	next_slice(wait);
	return wait->left_ns > 0;
}

/* -------- methods -------- */

PyObject *handle_flush(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *h = (struct handle *)object;
	int ret;

	if (handle_enter(h))
		return NULL;
	ret = h->kind == HANDLE_STORE ? rlv_store_persist(h->store) : rlv_sampler_flush(h->sampler);
	handle_leave(h);
	return error_or_none(ret);
}

PyObject *handle_stats(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *h = (struct handle *)object;
	struct rlv_stats s = { .size = sizeof(s) };
	int ret;

	if (handle_lock(h))
		return NULL;
	ret = h->kind == HANDLE_WRITER ? rlv_writer_stats(h->writer, &s)
				       : rlv_sampler_stats(h->sampler, &s);
	pthread_mutex_unlock(&h->lock);
	if (ret)
		return error_raise(ret);
	return Py_BuildValue(
		"{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,"
		"s:K,s:K,s:K}",
		"calls", s.calls, "steps", s.steps, "items", s.items, "updates", s.updates,
		"stale_updates", s.stale_updates, "clamped", s.clamped, "redraws", s.redraws,
		"blocks_claimed", s.blocks_claimed, "blocks_skipped", s.blocks_skipped,
		"repeated_rows", s.repeated_rows, "limiter_waits", s.limiter_waits,
		"limiter_wait_ns", s.limiter_wait_ns, "phases", s.phases, "reads", s.reads,
		"writes", s.writes, "cas", s.cas, "faa", s.faa, "read_bytes", s.read_bytes,
		"write_bytes", s.write_bytes, "truncated_lost", s.truncated_lost, "staleness",
		s.staleness, "staleness_max", s.staleness_max, "policy_version", s.policy_version);
}

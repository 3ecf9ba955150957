/*
 * Pool: a job of a device pool, and PoolMemory: a tensor of it, as a buffer. pool.py has names and
 * documentation.
 */
#include "python/src/core.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEVICES 16u
#define MOST_JOBS (64u * MOST_DEVICES)

PyTypeObject *pool_type, *pool_memory_type;

struct pool {
	struct handle h;
	/* Guarded by the interpreter lock: either a close sees the memory, or an alloc the close. */
	Py_ssize_t memories; /* that live, or are being allocated */
	bool closes;
	struct pool_memory *owed; /* died while the job was parked: freed when it is back */
};

struct pool_memory {
	PyObject base;
	struct pool *pool;
	void *ptr;
	Py_ssize_t bytes;
	struct pool_memory *next; /* owed */
};

/* Frees it in the pool, unless its process is the parent of a fork. A parked job frees nothing. */
static void memory_free(struct pool *pool, struct pool_memory *memory)
{
	bool lives = pool && memory->ptr && pool->h.open && handle_is_ours(&pool->h);

	if (lives && rlv_pool_free(pool->h.pool, memory->ptr, 0) == -EBUSY) {
		memory->next = pool->owed;
		pool->owed = memory;
	} else {
		object_free(memory);
	}
}

/* Frees what died while the job was parked. */
static void pool_pay(struct handle *h)
{
	struct pool *pool = (struct pool *)h;
	struct pool_memory *memory = pool->owed;

	pool->owed = NULL;
	while (memory) {
		struct pool_memory *next = memory->next;

		memory_free(pool, memory);
		memory = next;
	}
}

static const struct handle_hooks hooks = { .free = pool_pay };

/* Pool(pool, name, persistent, iteration, quota, keep, duration_ns, weight, priority, device, timeout_ns, parks, store,
   heap): with stream 0. */
static PyObject *pool_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
	struct rlv_pool_opts opts = RLV_POOL_OPTS_INIT;
	const char *pool, *name;
	PyObject *store;
	long long duration, timeout;
	PyThreadState *thread;
	struct handle *self, *in;
	uint32_t stream;
	int parks, ret;

	if (!PyArg_ParseTuple(args, "ssKKKKLIiILpOz", &pool, &name, &opts.persistent_bytes,
			      &opts.iteration_bytes, &opts.quota_bytes, &opts.keep_bytes, &duration,
			      &opts.weight, &opts.priority, &opts.device, &timeout, &parks, &store,
			      &opts.heap))
		return NULL;
	opts.flags = parks ? RLV_POOL_PARKS : 0;
	opts.duration_ns = duration;
	opts.timeout_ns = timeout;
	if (store != Py_None && !PyObject_TypeCheck(store, store_type))
		return error_format(-EINVAL, "store: want a relive.Store");
	self = handle_new(type, store == Py_None ? NULL : store, NULL, HANDLE_POOL, &hooks);
	if (!self)
		return NULL;
	in = (struct handle *)self->parent;
	if (in && handle_enter(in)) {
		Py_DECREF(self);
		return NULL;
	}
	thread = in ? NULL : PyEval_SaveThread();
	opts.store = in ? in->store : NULL;
	ret = rlv_pool_open(pool, name, &opts, &self->pool);
	if (ret == 0)
		ret = rlv_pool_stream(self->pool, NULL, &stream);
	if (in)
		handle_leave(in);
	else
		PyEval_RestoreThread(thread);
	return handle_opened(self, ret);
}

/* close(): Busy while arrays of it live, whose memory would be gone. */
static PyObject *pool_close(PyObject *object, PyObject *unused)
{
	struct pool *self = (struct pool *)object;
	PyObject *none;

	if (self->h.open && self->memories)
		return error_format(
			-EBUSY,
			"the pool has %zd arrays or landings that live: del them, and close samplers, before close()",
			self->memories);
	self->closes = true;
	none = handle_close(object, unused);
	self->closes = none != NULL;
	return none;
}

struct rlv_pool *pool_borrow(PyObject *object)
{
	struct pool *pool = (struct pool *)object;
	struct rlv_pool *found;

	if (handle_enter(&pool->h))
		return NULL;
	found = pool->h.pool;
	handle_leave(&pool->h);
	pool->memories++;
	Py_INCREF(object);
	return found;
}

void pool_return(PyObject *object)
{
	((struct pool *)object)->memories--;
	Py_DECREF(object);
}

/* alloc(class, bytes) */
static PyObject *pool_alloc(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	struct pool *pool = (struct pool *)object;
	struct pool_memory *memory;
	unsigned long long bytes;
	unsigned class;
	int ret;

	if (!PyArg_ParseTuple(args, "IK", &class, &bytes))
		return NULL;
	if (pool->closes)
		return error_format(-EBADF, "the pool is closed");
	memory = object_alloc(pool_memory_type, 0);
	if (!memory)
		return NULL;
	Py_INCREF(object);
	memory->pool = pool;
	pool->memories++;
	if (handle_enter(self)) {
		Py_DECREF((PyObject *)memory);
		return NULL;
	}
	ret = bytes > PY_SSIZE_T_MAX ? -ENOSPC
				     : rlv_pool_alloc(self->pool, (enum rlv_pool_class) class,
						      bytes, 0, &memory->ptr);
	handle_leave(self);
	if (ret) {
		PyObject *raised = error_raise(ret);

		memory->ptr = NULL;
		Py_DECREF((PyObject *)memory);
		return raised;
	}
	memory->bytes = (Py_ssize_t)bytes;
	return &memory->base;
}

static PyObject *pool_end(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *self = (struct handle *)object;
	int ret;

	if (handle_enter(self))
		return NULL;
	ret = rlv_pool_iteration_end(self->pool);
	handle_leave(self);
	return error_or_none(ret);
}

/* begin(timeout_ns), park(timeout_ns), resume(timeout_ns) */
static PyObject *pool_wait(PyObject *object, PyObject *args,
			   int (*call)(struct rlv_pool *pool, int64_t timeout_ns))
{
	struct handle *self = (struct handle *)object;
	long long timeout;
	int ret;

	if (!PyArg_ParseTuple(args, "L", &timeout) || handle_enter(self))
		return NULL;
	ret = call(self->pool, timeout);
	handle_leave(self);
	if (ret == 0)
		pool_pay(self);
	return error_or_none(ret);
}

static PyObject *pool_begin(PyObject *object, PyObject *args)
{
	return pool_wait(object, args, rlv_pool_iteration_begin);
}

static PyObject *pool_park(PyObject *object, PyObject *args)
{
	return pool_wait(object, args, rlv_pool_park);
}

static PyObject *pool_resume(PyObject *object, PyObject *args)
{
	return pool_wait(object, args, rlv_pool_resume);
}

/* room(): bytes that it may take now, and the number of its device */
static PyObject *pool_room(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *self = (struct handle *)object;
	uint64_t bytes = 0;
	uint32_t device = 0;
	int ret;

	if (handle_enter(self))
		return NULL;
	ret = rlv_pool_free_bytes(self->pool, &bytes);
	if (ret == 0)
		ret = rlv_pool_device(self->pool, &device);
	handle_leave(self);
	return ret ? error_raise(ret)
		   : Py_BuildValue("KI", (unsigned long long)bytes, (unsigned)device);
}

/* cuda(): number of its CUDA device; -1 = memory of the host */
static PyObject *pool_cuda(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *self = (struct handle *)object;
	int32_t cuda = -1;
	int ret;

	if (handle_enter(self))
		return NULL;
	ret = rlv_pool_cuda(self->pool, &cuda);
	handle_leave(self);
	return ret ? error_raise(ret) : PyLong_FromLong(cuda);
}

/* bind(class): what torch's allocator gives from now on; returns the file that has it */
static PyObject *pool_bind(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	void *(*function)(int64_t, int, void *) = rlv_torch_alloc;
	void *address;
	Dl_info info;
	unsigned class;
	int ret;

	if (!PyArg_ParseTuple(args, "I", &class) || handle_enter(self))
		return NULL;
	ret = rlv_pool_bind_torch(self->pool, (enum rlv_pool_class) class);
	handle_leave(self);
	if (ret)
		return error_raise(ret);
	memcpy(&address, &function, sizeof(address)); /* ISO C has no such cast */
	if (!dladdr(address, &info))
		return error_format(-EIO, "torch: the library is in no file");
	return PyUnicode_DecodeFSDefault(info.dli_fname);
}

/* -------- for operators -------- */

static PyObject *device_dict(const struct rlv_pool_device_info *device)
{
	return Py_BuildValue("{s:I,s:s,s:I,s:K,s:K,s:K,s:K}", "device", device->number, "name",
			     device->name, "jobs", device->jobs, "device_bytes",
			     device->device_bytes, "budget_bytes", device->budget_bytes,
			     "held_bytes", device->held_bytes, "handovers", device->handovers);
}

static PyObject *job_dict(const struct rlv_pool_job *job)
{
	static const char *const states[] = { "idle", "waits", "runs", "leaves", "parked" };
	static const char *const reasons[] = { "ready", "waits for admission", "waits for memory",
					       "waits for its turn", "idle" };

	return Py_BuildValue("{s:s,s:I,s:I,s:I,s:s,s:s,s:I,s:K,s:K,s:K,s:K}", "job", job->name,
			     "device", job->device, "pid", job->pid, "uid", job->uid, "state",
			     states[job->state < 5 ? job->state : 0], "reason",
			     reasons[job->reason < 5 ? job->reason : 4], "position", job->position,
			     "held_bytes", job->held_bytes, "most_bytes", job->most_bytes,
			     "quota_bytes", job->quota_bytes, "iterations", job->iterations);
}

static PyObject *pool_lists(const struct rlv_pool_device_info *devices, size_t n_devices,
			    const struct rlv_pool_job *jobs, size_t n_jobs)
{
	PyObject *of_devices = PyList_New(0), *of_jobs = PyList_New(0);

	for (size_t i = 0; of_devices && i < n_devices && i < MOST_DEVICES; i++)
		list_add(&of_devices, device_dict(&devices[i]));
	for (size_t i = 0; of_jobs && i < n_jobs && i < MOST_JOBS; i++)
		list_add(&of_jobs, job_dict(&jobs[i]));
	if (of_devices && of_jobs)
		return Py_BuildValue("(NN)", of_devices, of_jobs);
	Py_XDECREF(of_devices);
	Py_XDECREF(of_jobs);
	return NULL;
}

/* status(pool): (devices, jobs), lists of dicts */
static PyObject *pool_status(PyObject *Py_UNUSED(type), PyObject *args)
{
	struct rlv_pool_device_info devices[MOST_DEVICES];
	size_t n_devices = MOST_DEVICES, n_jobs = MOST_JOBS;
	struct rlv_pool_job *jobs;
	PyThreadState *thread;
	PyObject *lists;
	const char *pool;
	int ret;

	if (!PyArg_ParseTuple(args, "s", &pool))
		return NULL;
	jobs = malloc(MOST_JOBS * sizeof(*jobs));
	if (!jobs)
		return PyErr_NoMemory();
	thread = PyEval_SaveThread();
	ret = rlv_pool_devices(pool, devices, sizeof(devices[0]), &n_devices);
	if (ret == 0)
		ret = rlv_pool_jobs(pool, jobs, sizeof(jobs[0]), &n_jobs);
	PyEval_RestoreThread(thread);
	lists = ret ? error_raise(ret) : pool_lists(devices, n_devices, jobs, n_jobs);
	free(jobs);
	return lists;
}

/* limit(pool, bytes, device, user, job): device and user -1, job None = not that */
static PyObject *pool_limit(PyObject *Py_UNUSED(type), PyObject *args)
{
	unsigned long long bytes;
	const char *pool, *job;
	long long device, user;
	PyThreadState *thread;
	int ret;

	if (!PyArg_ParseTuple(args, "sKLLz", &pool, &bytes, &device, &user, &job))
		return NULL;
	thread = PyEval_SaveThread();
	if (job)
		ret = rlv_pool_limit_job(pool, job, bytes);
	else if (user >= 0)
		ret = rlv_pool_limit_user(pool, (uint32_t)user, bytes);
	else if (device >= 0)
		ret = rlv_pool_limit_device(pool, (uint32_t)device, bytes);
	else
		ret = rlv_pool_limit(pool, bytes);
	PyEval_RestoreThread(thread);
	return error_or_none(ret);
}

/* drain(pool, on) */
static PyObject *pool_drain(PyObject *Py_UNUSED(type), PyObject *args)
{
	const char *pool;
	int on;

	if (!PyArg_ParseTuple(args, "sp", &pool, &on))
		return NULL;
	return error_or_none(rlv_pool_drain(pool, on));
}

static PyMethodDef methods[] = {
	{ "close", pool_close, METH_NOARGS, NULL },
	{ "alloc", pool_alloc, METH_VARARGS, NULL },
	{ "begin", pool_begin, METH_VARARGS, NULL },
	{ "end", pool_end, METH_NOARGS, NULL },
	{ "room", pool_room, METH_NOARGS, NULL },
	{ "cuda", pool_cuda, METH_NOARGS, NULL },
	{ "bind", pool_bind, METH_VARARGS, NULL },
	{ "park", pool_park, METH_VARARGS, NULL },
	{ "resume", pool_resume, METH_VARARGS, NULL },
	{ "status", pool_status, METH_VARARGS | METH_STATIC, NULL },
	{ "limit", pool_limit, METH_VARARGS | METH_STATIC, NULL },
	{ "drain", pool_drain, METH_VARARGS | METH_STATIC, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, pool_new },
	{ Py_tp_dealloc, handle_dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_members, handle_members },
	{ 0, NULL },
};

PyType_Spec pool_spec = {
	.name = "relive._core.Pool",
	.basicsize = sizeof(struct pool),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = slots,
};

/* -------- memory -------- */

static int memory_buffer(PyObject *object, Py_buffer *view, int flags)
{
	struct pool_memory *self = (struct pool_memory *)object;

	if (!handle_is_ours(&self->pool->h)) {
		error_format(-ECHILD, "a child of fork() does not have the memory of a pool");
		return -1;
	}
	return PyBuffer_FillInfo(view, object, self->ptr, self->bytes, 0, flags);
}

static void memory_dealloc(PyObject *object)
{
	struct pool_memory *self = (struct pool_memory *)object;
	struct pool *pool = self->pool;

	if (pool)
		pool->memories--;
	memory_free(pool, self);
	Py_XDECREF((PyObject *)pool);
}

static PyMethodDef memory_methods[] = { { 0 } };

static PyType_Slot memory_slots[] = {
	{ Py_tp_dealloc, memory_dealloc },
	{ Py_tp_methods, memory_methods },
	{ Py_bf_getbuffer, memory_buffer },
	{ 0, NULL },
};

PyType_Spec pool_memory_spec = {
	.name = "relive._core.PoolMemory",
	.basicsize = sizeof(struct pool_memory),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = memory_slots,
};

#include "python/src/sampler.h"

#include "python/src/column.h"

#include <errno.h>
#include <math.h>

PyTypeObject *sampler_type;

/* -------- slots -------- */

void sampler_reclaim(struct sampler *s)
{
	for (uint32_t i = 0; i < s->n_slots; i++) {
		struct slot *slot = s->slots[i];

		/* relaxed: a look, so that the usual case changes nothing */
		if (!atomic_load_explicit(&slot->returned, memory_order_relaxed))
			continue;
		/* acquire, with the release of lease_dealloc */
		if (atomic_exchange_explicit(&slot->returned, false, memory_order_acquire))
			rlv_batch_release(s->sampler, slot->batch);
	}
}

bool sampler_has_returned(const struct sampler *s)
{
	for (uint32_t i = 0; i < s->n_slots; i++)
		if (atomic_load_explicit(&s->slots[i]->returned, memory_order_relaxed)) /* a look */
			return true;
	return false;
}

static struct slot *slot_of(struct sampler *s, const struct rlv_batch *batch)
{
	const uint8_t *data = (const uint8_t *)batch->key;

	for (uint32_t i = 0; i < s->n_slots; i++) {
		struct slot *slot = s->slots[i];

		if (data < slot->memory || data >= slot->memory + slot->bytes)
			continue;
		slot->batch = batch;
		slot->n = batch->n;
		slot->table_size = batch->table_size;
		return slot;
	}
	return NULL; /* unreachable: every buffer came from memory_alloc */
}

/* The library asks for the memory of its batch buffers; within rlv_sampler_open only. */
static void *memory_alloc(void *context, size_t align, size_t bytes)
{
	struct sampler *s = context;
	PyGILState_STATE state = PyGILState_Ensure();
	struct slot *slot = NULL;

	if (s->n_slots < SAMPLER_MAX_SLOTS)
		slot = slot_open(s->allocator, align, bytes);
	if (slot)
		s->slots[s->n_slots++] = slot;
	PyGILState_Release(state);
	return slot ? slot->memory : NULL;
}

/* The sampler lets its slots go after rlv_sampler_close. */
static void memory_free(void *context, void *memory, size_t bytes)
{
	(void)context;
	(void)memory;
	(void)bytes;
}

static void put_slots(struct sampler *s)
{
	while (s->n_slots)
		slot_put(s->slots[--s->n_slots]);
}

/* -------- life -------- */

/* The names of a tuple of str, borrowed from it; NULL = all: None. */
static int parse_columns(PyObject *given, const char **names, struct rlv_sampler_opts *opts)
{
	Py_ssize_t n;

	if (given == Py_None)
		return 0;
	if (!PyTuple_Check(given) || (n = PyTuple_Size(given)) > RLV_MAX_COLUMNS) {
		PyErr_Format(PyExc_TypeError, "columns: want a tuple of at most %d names",
			     RLV_MAX_COLUMNS);
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(given, i), NULL);
		if (!names[i])
			return -1;
	}
	opts->columns = names;
	opts->n_columns = (uint32_t)n;
	return 0;
}

struct given {
	PyObject *table, *columns; /* borrowed */
};

static int parse(PyObject *args, PyObject *kwargs, struct rlv_sampler_opts *opts,
		 struct given *given, struct sampler *out)
{
	static char *names[] = { "table",      "view",          "batch_size",  "n_step",
				 "gamma",      "beta",          "layout",      "weights",
				 "batches",    "defer_updates", "seed",        "rank",
				 "world_size", "independent",   "short_batch", "prefetch",
				 "timeout",    "allocator",     "columns",     NULL };
	unsigned int u[10];
	unsigned long long seed;
	int independent, short_batch;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!IIIddIIIIKIIppIOOO", names, table_type,
					 &given->table, &u[0], &u[1], &u[2], &opts->gamma,
					 &opts->beta, &u[3], &u[4], &u[5], &u[6], &seed, &u[7],
					 &u[8], &independent, &short_batch, &u[9], &out->timeout,
					 &out->allocator, &given->columns))
		return -1;
	opts->view = u[0];
	opts->batch_size = u[1];
	opts->n_step = u[2];
	opts->layout = u[3];
	opts->weights = u[4];
	opts->batches = u[5];
	opts->defer_updates = u[6];
	opts->seed = seed;
	opts->rank = u[7];
	opts->world_size = u[8];
	opts->independent = independent;
	opts->short_batch = short_batch;
	out->batch_size = u[1];
	out->depth = u[9];
	out->beta = opts->beta;
	return 0;
}

static int open_sampler(struct sampler *s, struct table *table, struct rlv_sampler_opts opts)
{
	const struct rlv_memory memory = { memory_alloc, memory_free, s };
	int ret;

	opts.memory = &memory;
	if (handle_enter(&table->h))
		return -1;
	Py_BEGIN_ALLOW_THREADS ret = rlv_sampler_open(table->table, &opts, &s->sampler);
	Py_END_ALLOW_THREADS handle_leave(&table->h);
	s->h.open = ret == 0;
	s->library_beta = s->beta;
	if (ret && !PyErr_Occurred()) /* an allocator's exception says more */
		error_raise(ret);
	return ret ? -1 : 0;
}

static PyObject *sampler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	const char *columns[RLV_MAX_COLUMNS];
	struct sampler parsed = { 0 };
	struct given given;
	struct sampler *s;
	int ret;

	if (parse(args, kwargs, &opts, &given, &parsed) ||
	    parse_columns(given.columns, columns, &opts))
		return NULL;
	s = (struct sampler *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!s)
		return NULL;
	handle_init(&s->h, given.table);
	s->batch_size = parsed.batch_size;
	s->depth = parsed.depth;
	s->beta = parsed.beta;
	Py_INCREF(parsed.timeout);
	s->timeout = parsed.timeout;
	Py_INCREF(parsed.allocator);
	s->allocator = parsed.allocator;
	ret = open_sampler(s, (struct table *)given.table, opts);
	Py_CLEAR(s->allocator); /* it may refer to what refers to the sampler */
	if (ret == 0)
		return (PyObject *)s;
	Py_DECREF(s);
	return NULL;
}

/* From prefetch_stop on nobody takes a batch that is ahead; from !open on none is sampled. */
static int close_locked(struct sampler *s)
{
	int ret;

	if (s->prefetch)
		prefetch_stop(s->prefetch);
	Py_BEGIN_ALLOW_THREADS ret = rlv_sampler_close(&s->sampler);
	Py_END_ALLOW_THREADS s->h.open = false;
	handle_leave(&s->h);
	if (s->prefetch)
		prefetch_join(s->prefetch);
	put_slots(s);
	return ret;
}

static PyObject *sampler_close(PyObject *object, PyObject *unused)
{
	struct sampler *s = (struct sampler *)object;
	int entered;
	int ret;

	(void)unused;
	entered = handle_enter_close(&s->h);
	if (entered < 0)
		return NULL;
	ret = entered ? close_locked(s) : 0;
	if (ret)
		return error_raise(ret);
	Py_RETURN_NONE;
}

static void sampler_dealloc(PyObject *object)
{
	struct sampler *s = (struct sampler *)object;

	if (s->prefetch && handle_is_ours(&s->h)) { /* so that the lock is free */
		prefetch_stop(s->prefetch);
		prefetch_join(s->prefetch);
	}
	if (s->sampler && handle_enter_close(&s->h) == 1)
		(void)close_locked(s);
	prefetch_free(s->prefetch);
	put_slots(s);
	if (s->layout)
		layout_put(s->layout);
	Py_CLEAR(s->timeout);
	handle_fini(&s->h);
	object_free(s);
}

/* -------- sample -------- */

/* Other threads run in layout_open: one of them may have been first. */
static int make_layout(struct sampler *s, const struct rlv_batch *batch, const struct slot *slot)
{
	struct layout *layout = layout_open(batch, slot);

	if (!layout)
		return -1;
	if (s->layout)
		layout_put(layout);
	else
		s->layout = layout;
	return 0;
}

/* The Python object of a batch that the library gave. No close has begun. */
static PyObject *wrap(struct sampler *s, const struct rlv_batch *batch)
{
	struct slot *slot = slot_of(s, batch);
	PyObject *object = NULL;

	if (!slot)
		return NULL;
	slot_get(slot); /* a close may come in make_layout */
	if (s->layout || make_layout(s, batch, slot) == 0)
		object = batch_make(s->layout, slot);
	else
		atomic_store_explicit(&slot->returned, true, memory_order_release);
	slot_put(slot);
	return object;
}

int sampler_try(struct sampler *s, const struct draw *draw, const struct rlv_batch **batch_out)
{
	int ret = 0;

	sampler_reclaim(s);
	if (draw->beta != s->library_beta) {
		ret = rlv_sampler_set_beta(s->sampler, draw->beta);
		s->library_beta = ret ? s->library_beta : draw->beta;
	}
	return ret ? ret : rlv_sampler_sample(s->sampler, draw->n, draw->timeout_ns, batch_out);
}

static PyObject *sample(struct sampler *s, struct draw draw, PyObject *timeout)
{
	const struct rlv_batch *batch;
	struct wait wait;
	int again;
	int ret;

	if (wait_start(&wait, timeout))
		return NULL;
	do {
		draw.timeout_ns = wait.left_ns;
		if (handle_enter(&s->h))
			return NULL;
		Py_BEGIN_ALLOW_THREADS ret = sampler_try(s, &draw, &batch);
		Py_END_ALLOW_THREADS handle_leave(&s->h);
		if (ret == 0)
			return wrap(s, batch);
		again = wait_again(&wait, ret);
	} while (again > 0);
	return again < 0 ? NULL : error_raise(ret);
}

/* The library's word for no weights is a negative exponent. */
static double library_beta(double beta)
{
	return beta == 0 ? -1 : beta;
}

static int read_count(PyObject *value, uint32_t *count_out)
{
	PyObject *index = PyNumber_Index(value);
	long long count = index ? PyLong_AsLongLong(index) : -1;

	Py_XDECREF(index);
	if (!PyErr_Occurred() && count >= 0 && count <= UINT32_MAX) {
		*count_out = (uint32_t)count;
		return 0;
	}
	PyErr_Clear();
	error_format(-EINVAL, "n %R: want a number of items", value);
	return -1;
}

static PyObject *sampler_sample(PyObject *object, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "n", "beta", "timeout", NULL };
	struct sampler *s = (struct sampler *)object;
	PyObject *n = Py_None, *beta_object = Py_None, *timeout = Py_None;
	struct draw draw = { .n = s->batch_size, .beta = s->beta };

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOO", names, &n, &beta_object, &timeout))
		return NULL;
	if (n != Py_None && read_count(n, &draw.n))
		return NULL;
	if (beta_object != Py_None) {
		draw.beta = PyFloat_AsDouble(beta_object);
		if (draw.beta == -1 && PyErr_Occurred())
			return NULL;
		if (!(draw.beta >= 0))
			return error_format(-EINVAL, "beta %R: want 0 to 8", beta_object);
		draw.beta = library_beta(draw.beta);
	}
	return sample(s, draw, timeout);
}

static PyObject *sampler_iter(PyObject *object)
{
	Py_INCREF(object);
	return object;
}

static PyObject *sampler_next(PyObject *object)
{
	struct sampler *s = (struct sampler *)object;
	const struct rlv_batch *batch;
	struct wait wait;

	if (s->depth == 0)
		return sample(s, (struct draw){ s->batch_size, s->beta, 0 }, s->timeout);
	if (handle_enter(&s->h)) /* for its checks */
		return NULL;
	handle_leave(&s->h);
	if (!s->prefetch)
		s->prefetch = prefetch_open(s);
	if (!s->prefetch || wait_start(&wait, s->timeout) ||
	    prefetch_take(s->prefetch, &wait, &batch))
		return NULL;
	return wrap(s, batch);
}

/* -------- the rest -------- */

static PyObject *sampler_flush(PyObject *object, PyObject *unused)
{
	struct sampler *s = (struct sampler *)object;
	int ret;

	(void)unused;
	if (handle_enter(&s->h))
		return NULL;
	Py_BEGIN_ALLOW_THREADS ret = rlv_sampler_flush(s->sampler);
	Py_END_ALLOW_THREADS handle_leave(&s->h);
	if (ret)
		return error_raise(ret);
	Py_RETURN_NONE;
}

static PyObject *sampler_stats(PyObject *object, PyObject *unused)
{
	struct sampler *s = (struct sampler *)object;
	struct rlv_stats stats = { .size = sizeof(stats) };
	int ret;

	(void)unused;
	if (handle_enter(&s->h))
		return NULL;
	ret = rlv_sampler_stats(s->sampler, &stats);
	handle_leave(&s->h);
	return ret ? error_raise(ret) : stats_dict(&stats);
}

static PyObject *sampler_is_open(PyObject *object, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct sampler *)object)->h.open);
}

static PyObject *sampler_get_batch_size(PyObject *object, void *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLong(((struct sampler *)object)->batch_size);
}

static PyObject *sampler_get_beta(PyObject *object, void *unused)
{
	double beta = ((struct sampler *)object)->beta;

	(void)unused;
	return PyFloat_FromDouble(beta < 0 ? 0 : beta);
}

static int sampler_set_beta(PyObject *object, PyObject *value, void *unused)
{
	struct sampler *s = (struct sampler *)object;
	double beta = value ? PyFloat_AsDouble(value) : NAN;
	int ret;

	(void)unused;
	if (beta == -1 && PyErr_Occurred())
		return -1;
	if (!(beta >= 0)) {
		error_format(-EINVAL, "beta: want 0 to 8");
		return -1;
	}
	if (handle_enter(&s->h))
		return -1;
	ret = rlv_sampler_set_beta(s->sampler, library_beta(beta));
	if (ret == 0)
		s->beta = s->library_beta = library_beta(beta);
	handle_leave(&s->h);
	if (ret)
		error_raise(ret);
	return ret ? -1 : 0;
}

static const char sample_doc[] =
	"sample($self, /, n=None, beta=None, timeout=None)\n"
	"--\n"
	"\n"
	"Draws a batch of n items (None = batch_size) now. beta: importance exponent of this call, 0 to\n"
	"8; None = the sampler's. timeout: seconds to wait; None = for ever. Raises Timeout, Empty\n"
	"(timeout 0), Busy (all batches are held), InvalidArgument, TableDropped, NodeDown, Forked,\n"
	"Closed.\n";

static const char update_doc[] =
	"update_priorities($self, /, keys, td_error=None, priorities=None, *, strict=False)\n"
	"--\n"
	"\n"
	"Sets the priorities of items: see Table.update_priorities. keys: (n,) uint64; td_error or\n"
	"priorities: (n,) float32. Returns (updated, stale, clamped).\n";

static const char flush_doc[] = "flush($self, /)\n"
				"--\n"
				"\n"
				"Adds deferred priority changes to the upper levels now.\n";

static const char close_doc[] =
	"close($self, /)\n"
	"--\n"
	"\n"
	"Closes; closed already is fine. Batches and their arrays stay readable.\n";

static const char stats_doc[] =
	"stats($self, /)\n"
	"--\n"
	"\n"
	"Counters since it was opened, as a dict: calls, items, updates, stale_updates, redraws,\n"
	"limiter_waits, limiter_wait_ns, ...\n";

static PyMethodDef methods[] = {
	{ "sample", (PyCFunction)(void (*)(void))sampler_sample, METH_VARARGS | METH_KEYWORDS,
	  sample_doc },
	{ "update_priorities", (PyCFunction)(void (*)(void))sampler_update,
	  METH_VARARGS | METH_KEYWORDS, update_doc },
	{ "flush", sampler_flush, METH_NOARGS, flush_doc },
	{ "close", sampler_close, METH_NOARGS, close_doc },
	{ "stats", sampler_stats, METH_NOARGS, stats_doc },
	{ 0 },
};

static PyGetSetDef members[] = {
	{ "is_open", sampler_is_open, NULL, NULL, NULL },
	{ "batch_size", sampler_get_batch_size, NULL, NULL, NULL },
	{ "beta", sampler_get_beta, sampler_set_beta, NULL, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, sampler_new },
	{ Py_tp_dealloc, sampler_dealloc },
	{ Py_tp_iter, sampler_iter },
	{ Py_tp_iternext, sampler_next },
	{ Py_tp_methods, methods },
	{ Py_tp_getset, members },
	{ 0, NULL },
};

static PyType_Spec spec = {
	.name = "relive._core.Sampler",
	.basicsize = sizeof(struct sampler),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};

int sampler_init(PyObject *module)
{
	sampler_type = type_add(module, &spec);
	return sampler_type ? update_init(module) : -1;
}

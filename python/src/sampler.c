#include "python/src/sampler.h"

#include "python/src/column.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#define SHORT_SLICE_NS 1000000

PyTypeObject *sampler_type;

/* -------- slots -------- */

bool sampler_has_returned(const struct sampler *s)
{
	for (uint32_t i = 0; i < s->n_slots; i++)
		if (atomic_load_explicit(&s->slots[i]->returned, memory_order_relaxed)) /* a look */
			return true;
	return false;
}

/*
 * Allocates a batch buffer for the library: by the allocator, while the sampler is opened, else in
 * the library's memory, without the interpreter lock. The handle is locked, or no other thread
 * knows it.
 */
static void *memory_alloc(void *context, size_t align, size_t bytes)
{
	struct sampler *s = context;
	struct slot **slots = realloc(s->slots, (s->n_slots + 1) * sizeof(struct slot *));
	PyGILState_STATE state;
	struct slot *slot;

	if (!slots)
		return NULL;
	s->slots = slots;
	if (s->allocator && s->allocator != Py_None) {
		state = PyGILState_Ensure();
		slot = slot_open_given(s->allocator, align, bytes);
		PyGILState_Release(state);
	} else {
		slot = slot_open(align, bytes);
	}
	if (!slot)
		return NULL;
	slots[s->n_slots++] = slot;
	return slot->memory;
}

/* The sampler lets its slots go after rlv_sampler_close. */
static void memory_free(void *Py_UNUSED(context), void *Py_UNUSED(memory), size_t Py_UNUSED(bytes))
{
}

static void put_slots(struct sampler *s)
{
	for (uint32_t i = 0; i < s->n_slots; i++)
		slot_put(s->slots[i]);
	free(s->slots);
	s->slots = NULL;
	s->n_slots = 0;
}

/* -------- life -------- */

/* The names of a tuple of str, borrowed from it; NULL = all: None. */
static int parse_columns(PyObject *given, const char **names, struct rlv_sampler_opts *opts)
{
	Py_ssize_t n;

	if (given == Py_None)
		return 0;
	if (!PyTuple_Check(given) || (n = PyTuple_Size(given)) > RLV_MAX_COLUMNS) {
		PyErr_Format(PyExc_TypeError, "sampler: columns: want a tuple of at most %d names",
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

/* After prefetch_stop no batch is taken; after !open none is sampled. */
static void sampler_before_close(struct handle *h)
{
	struct sampler *s = (struct sampler *)h;

	if (s->prefetch)
		prefetch_stop(s->prefetch);
}

static void sampler_after_close(struct handle *h)
{
	struct sampler *s = (struct sampler *)h;

	if (s->prefetch)
		prefetch_join(s->prefetch);
	put_slots(s);
}

static PyObject *sampler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "table",      "view",          "batch_size",  "n_step",
				 "gamma",      "beta",          "layout",      "weights",
				 "batches",    "defer_updates", "seed",        "rank",
				 "world_size", "independent",   "short_batch", "prefetch",
				 "timeout",    "allocator",     "columns",     NULL };
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	PyObject *parent, *timeout, *allocator, *columns;
	const char *column_names[RLV_MAX_COLUMNS];
	int independent, short_batch;
	unsigned long long seed;
	struct rlv_memory memory = { memory_alloc, memory_free, NULL };
	struct table *table;
	struct sampler *s;
	uint32_t depth;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!IIIddIIIIKIIppIOOO", names, table_type,
					 &parent, &opts.view, &opts.batch_size, &opts.n_step,
					 &opts.gamma, &opts.beta, &opts.layout, &opts.weights,
					 &opts.batches, &opts.defer_updates, &seed, &opts.rank,
					 &opts.world_size, &independent, &short_batch, &depth,
					 &timeout, &allocator, &columns) ||
	    parse_columns(columns, column_names, &opts))
		return NULL;
	if (depth > SAMPLER_MOST_AHEAD)
		return error_format(-EINVAL, "sampler: prefetch %u: want 0 to %d",
				    (unsigned int)depth, SAMPLER_MOST_AHEAD);
	s = object_alloc(type);
	if (!s)
		return NULL;
	table = (struct table *)parent;
	handle_init(&s->h, parent, HANDLE_SAMPLER);
	s->h.before_close = sampler_before_close;
	s->h.after_close = sampler_after_close;
	s->batch_size = opts.batch_size;
	s->depth = depth;
	s->beta = opts.beta;
	s->set = (struct rlv_sample_opts)RLV_SAMPLE_OPTS_INIT;
	Py_INCREF(timeout);
	s->timeout = timeout;
	opts.seed = seed;
	opts.independent = independent;
	opts.short_batch = short_batch;
	opts.memory = &memory;
	memory.ctx = s;
	if (handle_enter(&table->h))
		goto err_free;
	s->allocator = allocator;
	ret = rlv_sampler_open(table->h.table, &opts, &s->h.sampler);
	s->allocator = NULL; /* it may refer to what refers to the sampler */
	handle_leave(&table->h);
	s->h.open = ret == 0;
	if (ret == 0)
		return (PyObject *)s;
	if (!PyErr_Occurred()) /* an allocator's exception says more */
		error_raise(ret);
err_free:
	Py_DECREF(s);
	return NULL;
}

static void sampler_dealloc(PyObject *object)
{
	struct sampler *s = (struct sampler *)object;

	if (s->prefetch && handle_is_ours(&s->h)) { /* so that the lock is free */
		prefetch_stop(s->prefetch);
		prefetch_join(s->prefetch);
	}
	handle_drop(&s->h);
	free(s->prefetch);
	put_slots(s);
	layout_put(s->layout);
	Py_CLEAR(s->timeout);
	handle_free(&s->h);
}

/* -------- sample -------- */

/* Makes the Python object of the batch that the library left in a slot. No close has begun. */
static PyObject *sampler_wrap(struct sampler *s, struct slot *slot)
{
	struct layout *layout = s->layout;
	PyObject *object = NULL;

	slot->refs++; /* other threads run in layout_open: one may close the sampler */
	if (!layout || !layout_fits(layout, slot)) {
		layout = layout_open(slot);
		if (layout) {
			layout_put(s->layout);
			s->layout = layout;
		}
	}
	if (layout) {
		layout->refs++; /* of this call: another thread may replace s->layout */
		object = batch_make(layout, slot);
		layout_put(layout);
	} else {
		atomic_store_explicit(&slot->returned, true, memory_order_release);
	}
	slot_put(slot);
	return object;
}

int sampler_try(struct sampler *s, const struct draw *draw, struct slot **slot_out)
{
	struct rlv_sample_opts opts = RLV_SAMPLE_OPTS_INIT;
	const struct rlv_batch *batch;
	struct slot *const *at;
	const uint8_t *data;
	int ret = 0;

	if (draw->beta != s->set.beta || draw->gamma != s->set.gamma ||
	    draw->n_step != s->set.n_step) {
		opts.n_step = draw->n_step;
		opts.gamma = draw->gamma;
		opts.beta = draw->beta;
		ret = rlv_sampler_set_opts(s->h.sampler, &opts);
		if (ret == 0)
			s->set = opts;
	}
	/* give back the buffers whose arrays are gone */
	for (uint32_t i = 0; i < s->n_slots; i++) {
		struct slot *slot = s->slots[i];

		/* relaxed: a poll, so that the usual case changes nothing */
		if (!atomic_load_explicit(&slot->returned, memory_order_relaxed))
			continue;
		/* acquire, with the release of lease_end */
		if (atomic_exchange_explicit(&slot->returned, false, memory_order_acquire))
			rlv_batch_release(s->h.sampler, slot->batch);
	}
	if (ret == 0)
		ret = rlv_sampler_sample(s->h.sampler, draw->n, draw->timeout_ns, &batch);
	if (ret)
		return ret;
	data = (const uint8_t *)batch->key;
	/* every buffer came from memory_alloc */
	for (at = s->slots; data < (*at)->memory || data >= (*at)->memory + (*at)->bytes; at++)
		;
	(*at)->batch = batch;
	(*at)->n = batch->n;
	(*at)->table_size = batch->table_size;
	*slot_out = *at;
	return 0;
}

static PyObject *sample_draw(struct sampler *s, struct draw draw, PyObject *timeout)
{
	struct slot *slot;
	struct wait wait;
	int again;
	int ret;

	if (wait_start(&wait, timeout))
		return NULL;
	do {
		draw.timeout_ns = wait.left_ns;
		if (s->h.waiters && wait.left_ns > SHORT_SLICE_NS) /* others want the handle */
			draw.timeout_ns = SHORT_SLICE_NS;
		if (handle_enter(&s->h))
			return NULL;
		ret = sampler_try(s, &draw, &slot);
		if (wait_is_over_time(ret) && wait.left_ns)
			wait.stalled = rlv_sampler_watch(s->h.sampler, draw.n, &wait.watch);
		handle_leave(&s->h);
		if (ret == 0)
			return sampler_wrap(s, slot);
		again = wait_again(&wait, ret);
		handle_yield(&s->h);
	} while (again > 0);
	return again < 0 ? NULL : error_raise(ret);
}

/* The library's exponent: its 0 means the exponent at open, and a negative one no weights. */
static double library_beta(double beta)
{
	return beta == 0 ? -1 : beta;
}

/* None leaves *count_out as it is. */
static int read_count(const char *name, PyObject *value, uint32_t *count_out)
{
	if (value == Py_None || (uint32_of(value, count_out) && *count_out > 0))
		return 0;
	return error_invalid("sample: %s %R: want an integer, 1 or more", name, value);
}

/* None leaves *out as it is; 0 to most. */
static int read_real(const char *name, PyObject *value, int most, double *out)
{
	double real = value == Py_None ? 0 : PyFloat_AsDouble(value);

	if (value == Py_None)
		return 0;
	if (real == -1 && PyErr_Occurred())
		return -1;
	if (real >= 0 && real <= most) {
		*out = real;
		return 0;
	}
	return error_invalid("sampler: %s %R: want 0 to %d", name, value, most);
}

static PyObject *sampler_sample(PyObject *object, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "n", "beta", "timeout", "n_step", "gamma", NULL };
	struct sampler *s = (struct sampler *)object;
	PyObject *n = Py_None, *beta = Py_None, *timeout = Py_None;
	PyObject *n_step = Py_None, *gamma = Py_None;
	struct draw draw = { .n = s->batch_size, .beta = s->beta };

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOO$OO", names, &n, &beta, &timeout,
					 &n_step, &gamma))
		return NULL;
	if (read_count("n", n, &draw.n) || read_count("n_step", n_step, &draw.n_step) ||
	    read_real("beta", beta, 8, &draw.beta) || read_real("gamma", gamma, 1, &draw.gamma))
		return NULL;
	if (beta != Py_None)
		draw.beta = library_beta(draw.beta);
	if (gamma != Py_None)
		draw.gamma = draw.gamma == 0 ? DBL_TRUE_MIN : draw.gamma; /* 0 = as opened */
	return sample_draw(s, draw, timeout);
}

static PyObject *sampler_next(PyObject *object)
{
	struct sampler *s = (struct sampler *)object;
	struct slot *slot;
	struct wait wait;
	int ret = 1;

	if (handle_lock(&s->h)) /* for its checks */
		return NULL;
	handle_unlock(&s->h);
	if (s->depth && !s->prefetch) {
		s->prefetch = prefetch_open(s);
		if (!s->prefetch)
			return NULL;
	}
	if (s->depth)
		ret = wait_start(&wait, s->timeout) ? -1 : prefetch_take(s->prefetch, &wait, &slot);
	if (ret > 0)
		return sample_draw(s, (struct draw){ .n = s->batch_size, .beta = s->beta },
				   s->timeout);
	return ret ? NULL : sampler_wrap(s, slot);
}

/* -------- the rest -------- */

static PyObject *sampler_flush(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct sampler *s = (struct sampler *)object;
	int ret;

	if (handle_enter(&s->h))
		return NULL;
	ret = rlv_sampler_flush(s->h.sampler);
	handle_leave(&s->h);
	return error_or_none(ret);
}

static PyObject *sampler_get_beta(PyObject *object, void *Py_UNUSED(unused))
{
	double beta = ((struct sampler *)object)->beta;

	return PyFloat_FromDouble(beta < 0 ? 0 : beta);
}

static int sampler_set_beta(PyObject *object, PyObject *value, void *Py_UNUSED(unused))
{
	struct sampler *s = (struct sampler *)object;
	double beta = NAN;

	if (!value || value == Py_None)
		return error_invalid("sampler: beta cannot be deleted or None: want 0 to 8");
	if (read_real("beta", value, 8, &beta) || handle_lock(&s->h))
		return -1;
	s->beta = library_beta(beta);
	handle_unlock(&s->h);
	return 0;
}

static PyMethodDef methods[] = {
	{ "sample", METHOD(sampler_sample), METH_VARARGS | METH_KEYWORDS, NULL },
	{ "update_priorities", METHOD(sampler_update), METH_VARARGS | METH_KEYWORDS, NULL },
	{ "flush", sampler_flush, METH_NOARGS, NULL },
	{ "close", handle_close, METH_NOARGS, NULL },
	{ "stats", handle_stats, METH_NOARGS, NULL },
	{ 0 },
};

static PyMemberDef members[] = {
	{ "is_open", T_BOOL, offsetof(struct sampler, h.open), READONLY, NULL },
	{ "batch_size", T_UINT, offsetof(struct sampler, batch_size), READONLY, NULL },
	{ 0 },
};

static PyGetSetDef attributes[] = {
	{ "beta", sampler_get_beta, sampler_set_beta, NULL, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, sampler_new },        { Py_tp_dealloc, sampler_dealloc },
	{ Py_tp_iter, PyObject_SelfIter }, { Py_tp_iternext, sampler_next },
	{ Py_tp_methods, methods },        { Py_tp_members, members },
	{ Py_tp_getset, attributes },      { 0, NULL },
};

PyType_Spec sampler_spec = {
	.name = "relive._core.Sampler",
	.basicsize = sizeof(struct sampler),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};

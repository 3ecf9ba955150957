#include "python/src/sampler/sampler.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#define SHORT_SLICE_NS 1000000
#define AHEAD_PAYS_NS 20000
#define AHEAD_TRIAL 16
#define AHEAD_REST 256
#define BETA_NONE (-1.0) /* no weights: an exponent of 0 */

PyTypeObject *sampler_type;

/* -------- slots -------- */

/* rlv_memory.free of a sampler: does nothing, as the memory belongs to the slots, which the sampler
   drops after rlv_sampler_close. */
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

/* Hook before the handle is closed, under its lock: tells the prefetch thread to end. From then on
   no prefetched batch is taken. */
static void sampler_before_close(struct handle *h)
{
	struct sampler *s = (struct sampler *)h;

	if (s->prefetch)
		prefetch_stop(s->prefetch);
}

/* Waits for the end of the prefetch thread, which takes the handle's lock, before the sampler's
   slots are freed. Does nothing in a forked child, which has no such thread. */
static void sampler_end_thread(struct handle *h)
{
	struct sampler *s = (struct sampler *)h;

	if (s->prefetch && handle_is_ours(h))
		prefetch_join(s->prefetch);
}

static void sampler_after_close(struct handle *h)
{
	sampler_end_thread(h);
	put_slots((struct sampler *)h);
}

static void sampler_free(struct handle *h)
{
	struct sampler *s = (struct sampler *)h;

	free(s->prefetch);
	put_slots(s);
	layout_put(s->layout);
	if (s->landing)
		Py_DECREF(&s->landing->base);
}

static const struct handle_hooks sampler_hooks = {
	.before_close = sampler_before_close,
	.after_close = sampler_after_close,
	.begin_free = sampler_end_thread,
	.free = sampler_free,
};

static PyObject *sampler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "table",      "view",          "batch_size",  "n_step",
				 "gamma",      "beta",          "layout",      "weights",
				 "batches",    "defer_updates", "seed",        "rank",
				 "world_size", "independent",   "short_batch", "prefetch",
				 "timeout",    "allocator",     "columns",     "landing",
				 NULL };
	struct rlv_sampler_opts opts = RLV_SAMPLER_OPTS_INIT;
	PyObject *parent, *timeout, *allocator, *columns, *landing;
	const char *column_names[RLV_MAX_COLUMNS];
	int independent, short_batch;
	struct rlv_memory memory = { slot_alloc, memory_free, NULL };
	struct handle *table;
	struct sampler *s;
	uint32_t depth;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!IIIddIIIIkIIppIOOOO", names, table_type,
					 &parent, &opts.view, &opts.batch_size, &opts.n_step,
					 &opts.gamma, &opts.beta, &opts.layout, &opts.weights,
					 &opts.batches, &opts.defer_updates, &opts.seed, &opts.rank,
					 &opts.world_size, &independent, &short_batch, &depth,
					 &timeout, &allocator, &columns, &landing))
		return NULL;
	if (columns != Py_None) {
		if (!PyTuple_Check(columns) || PyTuple_Size(columns) > RLV_MAX_COLUMNS)
			return PyErr_Format(PyExc_TypeError,
					    "sampler: columns: want a tuple of at most %d names",
					    RLV_MAX_COLUMNS);
		opts.columns = column_names; /* borrowed from the tuple */
		opts.n_columns = (uint32_t)PyTuple_Size(columns);
	}
	for (uint32_t i = 0; i < opts.n_columns; i++) {
		column_names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(columns, i), NULL);
		if (!column_names[i])
			return NULL;
	}
	if (depth > SAMPLER_MOST_AHEAD)
		return error_format(-EINVAL, "sampler: prefetch %u: want 0 to %d",
				    (unsigned int)depth, SAMPLER_MOST_AHEAD);
	s = handle_new(type, parent, timeout, HANDLE_SAMPLER, &sampler_hooks);
	if (!s)
		return NULL;
	s->batch_size = opts.batch_size;
	s->depth = depth;
	s->opts.size = s->set.size = sizeof(s->opts);
	s->opts.beta = opts.beta;
	opts.independent = independent;
	opts.short_batch = short_batch;
	opts.memory = &memory;
	memory.ctx = s;
	/* The library's batches ahead have buffers beside opts.batches, and a device has few. */
	if (opts.batches == RLV_BATCHES_ANY && landing == Py_None)
		opts.prefetch = depth; /* does nothing in place, where the thread does it */
	if (landing != Py_None) {
		Py_INCREF(landing);
		s->landing = (struct landing *)landing; /* relive.sampler has looked */
		opts.dest = s->landing->landing;
	}
	table = (struct handle *)parent;
	if (handle_enter(table))
		return handle_opened(&s->h, -ECANCELED);
	s->allocator = allocator == Py_None ? NULL : allocator;
	ret = rlv_sampler_open(table->table, &opts, &s->h.sampler);
	s->allocator = NULL; /* it may refer to what refers to the sampler */
	handle_leave(table);
	return handle_opened(&s->h, ret); /* an allocator's exception says more than ret */
}

/* -------- sample -------- */

/* The mean of late, in which one that took a thousand times as long, as it lost its core, counts little. */
static int64_t smoothed(int64_t mean, int64_t ns)
{
	int64_t most = mean / 4 + 1000, change = (ns - mean) / 4;

	return mean + (change < most ? change : most);
}

void sampler_give_back(struct sampler *s)
{
	for (uint32_t i = 0; i < s->n_slots; i++) {
		struct slot *slot = s->slots[i];

		/* relaxed: a poll, so that the usual case changes nothing */
		if (!atomic_load_explicit(&slot->returned, memory_order_relaxed))
			continue;
		/* acquire, with the release of lease_end */
		if (atomic_exchange_explicit(&slot->returned, false, memory_order_acquire))
			rlv_batch_release(s->h.sampler, slot->batch);
	}
}

struct slot *sampler_slot(struct sampler *s, const struct rlv_batch *batch)
{
	const uint8_t *data = (const uint8_t *)batch->key;
	struct slot *const *at = s->slots;

	/* every buffer came from slot_alloc */
	while (data < (*at)->memory || data >= (*at)->memory + (*at)->bytes)
		at++;
	(*at)->batch = batch;
	(*at)->n = batch->n;
	(*at)->table_size = batch->table_size;
	(*at)->path = rlv_batch_path(batch);
	return *at;
}

int sampler_try(struct sampler *s, uint32_t n, const struct draw_how *how, int64_t timeout_ns,
		struct slot **slot_out)
{
	const struct rlv_sample_opts *opts = &how->opts;
	const struct rlv_batch *batch;
	int64_t began_ns;
	int ret = s->depth ? rlv_sampler_set_ahead(s->h.sampler, how->ahead) : 0;

	if (ret == 0 && (opts->beta != s->set.beta || opts->gamma != s->set.gamma ||
			 opts->n_step != s->set.n_step)) {
		ret = rlv_sampler_set_opts(s->h.sampler, opts);
		if (ret == 0)
			s->set = *opts;
	}
	sampler_give_back(s);
	began_ns = s->depth ? wait_now_ns() : 0;
	if (ret == 0)
		ret = rlv_sampler_sample(s->h.sampler, n, timeout_ns, &batch);
	if (ret)
		return ret;
	if (s->depth) /* by who holds the lock; sampler_next reads it without */
		atomic_store_explicit(&s->draw_ns, smoothed(s->draw_ns, wait_now_ns() - began_ns),
				      memory_order_relaxed);
	if (how->ahead == RLV_AHEAD_REFILL) /* relaxed: as draw_ns */
		atomic_store_explicit(&s->by_library, rlv_sampler_ahead(s->h.sampler) > 0,
				      memory_order_relaxed);
	*slot_out = sampler_slot(s, batch);
	return 0;
}

/* Draws n items, or takes a batch that came ahead meanwhile, if `ahead` is not NULL. */
static PyObject *sample_draw(struct sampler *s, uint32_t n, struct draw_how how, PyObject *timeout,
			     struct prefetch *ahead)
{
	int64_t slice_ns;
	struct slot *slot = NULL;
	struct wait wait;
	int again;
	int ret;

	if (wait_start(&wait, timeout))
		return NULL;
	do {
		slice_ns = wait.left_ns;
		if (s->h.waiters && slice_ns > SHORT_SLICE_NS) /* others want the handle */
			slice_ns = SHORT_SLICE_NS;
		if (handle_enter(&s->h))
			return NULL;
		slot = ahead ? prefetch_take(ahead) : NULL;
		ret = slot ? 0 : sampler_try(s, n, &how, slice_ns, &slot);
		if (wait_is_over_time(ret) && wait.left_ns)
			wait.stalled = rlv_sampler_watch(s->h.sampler, n, &wait.watch);
		handle_leave(&s->h);
		if (ret == 0)
			return batch_make(slot, &s->layout);
		again = wait_again(&wait, ret);
		if (s->h.waiters)
			handle_pause();
	} while (again > 0);
	return again < 0 ? NULL : error_raise(ret);
}

/* Reads an integer of 1 to 2^32 - 1 into *count_out; None leaves *count_out as it is. 0, or -1 with
   an exception that names the argument. */
static int read_count(const char *name, PyObject *value, uint32_t *count_out)
{
	if (value == Py_None || (uint32_of(value, count_out) && *count_out > 0))
		return 0;
	return error_invalid("sample: %s %R: want an integer, 1 or more", name, value);
}

/* Reads a number of 0 to `most` into *out; None leaves *out as it is. 0 is stored as `zero`, as the
   library takes 0 for its default. 0, or -1 with an exception. */
static int read_real(const char *name, PyObject *value, int most, double zero, double *out)
{
	double real = value == Py_None ? 0 : PyFloat_AsDouble(value);

	if (value == Py_None)
		return 0;
	if (real == -1 && PyErr_Occurred())
		return -1;
	if (real >= 0 && real <= most) {
		*out = real == 0 ? zero : real;
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
	struct draw_how how = { .opts = s->opts, .ahead = RLV_AHEAD_LEAVE };
	uint32_t count = s->batch_size;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOO$OO", names, &n, &beta, &timeout,
					 &n_step, &gamma))
		return NULL;
	if (read_count("n", n, &count) || read_count("n_step", n_step, &how.opts.n_step) ||
	    read_real("beta", beta, 8, BETA_NONE, &how.opts.beta) ||
	    read_real("gamma", gamma, 1, DBL_TRUE_MIN, &how.opts.gamma))
		return NULL;
	return sample_draw(s, count, how, timeout, NULL);
}

/* -------- iteration -------- */

/* Draws the next batch in the calling thread. */
static PyObject *next_draw(struct sampler *s)
{
	const struct draw_how how = { .opts = s->opts,
				      .ahead = s->pace.way == PACE_LIBRARY ? RLV_AHEAD_REFILL
									   : RLV_AHEAD_DRAIN };
	PyObject *batch;

	if (s->prefetch)
		prefetch_leave_draws(s->prefetch, true);
	batch = sample_draw(s, s->batch_size, how, s->h.timeout, s->prefetch);
	if (s->prefetch)
		prefetch_leave_draws(s->prefetch, false);
	return batch;
}

static bool ahead_can_pay(const struct sampler *s)
{
	return s->gap_ns > AHEAD_PAYS_NS && s->draw_ns > AHEAD_PAYS_NS;
}

/*
 * A thread hides the shorter of a draw and of what the caller does between two batches. To wake it and to
 * share the handle costs some microseconds, so it draws only where that is more; and where AHEAD_TRIAL
 * batches took longer than draws would have, as it gets no core, only every AHEAD_REST batches again.
 */
static bool ahead_pays(const struct sampler *s)
{
	return s->by_library ? s->pace.way == PACE_THREAD : !s->rest && ahead_can_pay(s);
}

/* The caller has got a batch, ns after it asked, and cycle_ns after the one before. */
static void ahead_judge(struct sampler *s, bool pays, int64_t ns, int64_t cycle_ns)
{
	if (s->by_library) {
		pace_next(&s->pace, cycle_ns, s->depth, ahead_can_pay(s));
		return;
	}
	s->rest -= s->rest > 0;
	s->trial_ns += pays ? ns : 0;
	if (!pays || ++s->trial < AHEAD_TRIAL)
		return;
	if (s->trial_ns > AHEAD_TRIAL * s->draw_ns)
		s->rest = AHEAD_REST;
	s->trial_ns = s->trial = 0;
}

static PyObject *sampler_next(PyObject *object)
{
	struct sampler *s = (struct sampler *)object;
	int64_t now_ns = s->depth ? wait_now_ns() : 0, before_ns;
	struct slot *slot = NULL;
	PyObject *batch;
	bool pays;

	if (handle_lock(&s->h)) /* for its checks */
		return NULL;
	pthread_mutex_unlock(&s->h.lock);
	if (!s->depth)
		return next_draw(s);
	if (s->left_ns)
		s->gap_ns = smoothed(s->gap_ns, now_ns - s->left_ns);
	pays = ahead_pays(s);
	if (pays && !s->prefetch)
		s->prefetch = prefetch_open(s);
	if (pays && !s->prefetch)
		return NULL;
	if (s->prefetch) {
		prefetch_say(s->prefetch, pays);
		slot = prefetch_take(s->prefetch);
	}
	batch = slot ? batch_make(slot, &s->layout) : next_draw(s);
	before_ns = s->left_ns;
	s->left_ns = wait_now_ns();
	ahead_judge(s, pays, s->left_ns - now_ns, s->left_ns - before_ns);
	return batch;
}

/* -------- the rest -------- */

static PyObject *sampler_get_beta(PyObject *object, void *Py_UNUSED(unused))
{
	double beta = ((struct sampler *)object)->opts.beta;

	return PyFloat_FromDouble(beta < 0 ? 0 : beta);
}

static int sampler_set_beta(PyObject *object, PyObject *value, void *Py_UNUSED(unused))
{
	struct sampler *s = (struct sampler *)object;
	double beta = NAN;

	if (!value || value == Py_None)
		return error_invalid("sampler: beta cannot be deleted or None: want 0 to 8");
	if (read_real("beta", value, 8, BETA_NONE, &beta) || handle_lock(&s->h))
		return -1;
	s->opts.beta = beta;
	pthread_mutex_unlock(&s->h.lock);
	return 0;
}

/* update_priorities with TD errors that the device has: see relive.landing. */
static PyObject *sampler_update_device(PyObject *object, PyObject *args)
{
	static const struct column key = { .name = "keys", .dtype = RLV_U64, .bytes = 8 };
	struct sampler *s = (struct sampler *)object;
	struct demand demand = { .batched = true, .keys = true };
	unsigned long long address, stream;
	struct source source = { 0 };
	PyObject *keys;
	int ret;

	if (!PyArg_ParseTuple(args, "OKKI", &keys, &address, &stream, &demand.n) ||
	    column_bind(&key, keys, &demand, &source))
		return NULL;
	if (handle_enter(&s->h)) {
		source_release(&source);
		return NULL;
	}
	ret = rlv_sampler_update_device(s->h.sampler, source.data, address, demand.n,
					(void *)(uintptr_t)stream);
	handle_leave(&s->h);
	source_release(&source);
	return error_or_none(ret);
}

static PyMethodDef methods[] = {
	{ "update_device", sampler_update_device, METH_VARARGS, NULL },
	{ "sample", METHOD(sampler_sample), METH_VARARGS | METH_KEYWORDS, NULL },
	{ "_scan_start", sampler_scan_start, METH_VARARGS, NULL },
	{ "_scan_next", sampler_scan_next, METH_O, NULL },
	{ "_gather", sampler_gather, METH_VARARGS, NULL },
	{ "update_priorities", METHOD(sampler_update), METH_VARARGS | METH_KEYWORDS, NULL },
	{ "flush", handle_flush, METH_NOARGS, NULL },
	{ "close", handle_close, METH_NOARGS, NULL },
	{ "stats", handle_stats, METH_NOARGS, NULL },
	{ 0 },
};

static PyMemberDef members[] = {
	{ "is_open", T_BOOL, offsetof(struct sampler, h.open), READONLY, NULL },
	{ "batch_size", T_UINT, offsetof(struct sampler, batch_size), READONLY, NULL },
	{ 0 },
};

/* Batches that the library has ahead; for tests. */
static PyObject *sampler_get_ahead(PyObject *object, void *Py_UNUSED(unused))
{
	struct sampler *s = (struct sampler *)object;
	uint32_t ahead;

	if (handle_lock(&s->h))
		return NULL;
	ahead = rlv_sampler_ahead(s->h.sampler);
	pthread_mutex_unlock(&s->h.lock);
	return PyLong_FromUnsignedLong(ahead);
}

static PyGetSetDef attributes[] = {
	{ "_ahead", sampler_get_ahead, NULL, NULL, NULL },
	{ "beta", sampler_get_beta, sampler_set_beta, NULL, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, sampler_new },        { Py_tp_dealloc, handle_dealloc },
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

#include "python/src/writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_NS 50000000 /* the library's part of a wait */

PyTypeObject *writer_type;

/* -------- life -------- */

static int add_key(PyObject *keys, const char *prefix, const char *name, int key)
{
	PyObject *text = PyUnicode_FromFormat("%s%s", prefix, name);
	PyObject *number = PyLong_FromLong(key);
	int ret = text && number ? PyDict_SetItem(keys, text, number) : -1;

	Py_XDECREF(text);
	Py_XDECREF(number);
	return ret;
}

static int make_keys(struct writer *w)
{
	static const char *const others[] = { "terminated", "truncated",      "final",
					      "td_error",   "policy_version", "env" };
	int ret = 0;

	w->keys = PyDict_New();
	if (!w->keys)
		return -1;
	for (uint32_t c = 0; ret == 0 && c < w->n_columns; c++) {
		ret = add_key(w->keys, "", w->columns[c].name, (int)c);
		if (ret == 0 && w->obs_columns & 1u << c)
			ret = add_key(w->keys, "final_", w->columns[c].name,
				      (int)(KEY_FINAL_OF + c));
	}
	for (int k = KEY_TERMINATED; ret == 0 && k < KEYS; k++)
		ret = add_key(w->keys, "", others[k - KEY_TERMINATED], k);
	return ret;
}

static void *cut(uint8_t **at, size_t bytes)
{
	void *part = *at;

	*at += (bytes + 15) / 16 * 16;
	return part;
}

/* Measures without memory, cuts with it. */
static size_t cut_memory(struct writer *w, uint8_t *memory)
{
	size_t n = w->n_envs, largest = 0;
	uint8_t *at = memory;

	for (uint32_t c = 0; c < w->n_columns; c++) {
		w->stage[c] = cut(&at, n * w->columns[c].bytes);
		largest = w->columns[c].bytes > largest ? w->columns[c].bytes : largest;
	}
	w->zeros = cut(&at, largest);
	for (int e = 0; e < 3; e++)
		w->ends[e] = cut(&at, n);
	w->td_error = cut(&at, n * sizeof(*w->td_error));
	w->flags = cut(&at, n * sizeof(*w->flags));
	w->ended = cut(&at, n * sizeof(*w->ended));
	return (size_t)(at - memory);
}

static int prepare(struct writer *w, const struct table *table)
{
	const struct rlv_table_info *info = table->info;

	w->n_columns = info->n_columns;
	for (uint32_t c = 0; c < info->n_columns; c++) {
		column_of(&info->columns[c], &w->columns[c]);
		w->obs_columns |= info->columns[c].role == RLV_OBS ? 1u << c : 0;
	}
	w->memory = calloc(1, cut_memory(w, (uint8_t *)16));
	if (!w->memory) {
		PyErr_NoMemory();
		return -1;
	}
	cut_memory(w, w->memory);
	return make_keys(w);
}

/* The library waits for a slice at a time, and not for more than the user wants. */
static int open_writer(struct writer *w, struct table *table)
{
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	struct wait wait;
	int ret;

	if (wait_start(&wait, w->timeout))
		return -1;
	opts.streams = w->n_envs;
	opts.timeout_ns = wait.left_ns ? wait.left_ns : 1;
	if (handle_enter(&table->h))
		return -1;
	Py_BEGIN_ALLOW_THREADS ret = rlv_writer_open(table->table, &opts, &w->writer);
	Py_END_ALLOW_THREADS handle_leave(&table->h);
	if (ret)
		error_raise(ret);
	w->h.open = ret == 0;
	return ret ? -1 : 0;
}

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "table", "num_envs", "batched", "autoreset", "timeout", NULL };
	PyObject *table, *timeout;
	unsigned int n_envs, autoreset;
	struct writer *w;
	int batched;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!IpIO", names, table_type, &table, &n_envs,
					 &batched, &autoreset, &timeout))
		return NULL;
	w = (struct writer *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
	if (!w)
		return NULL;
	handle_init(&w->h, table);
	w->n_envs = n_envs ? n_envs : 1;
	w->batched = batched;
	w->autoreset = autoreset;
	Py_INCREF(timeout);
	w->timeout = timeout;
	if (prepare(w, (struct table *)table) || open_writer(w, (struct table *)table)) {
		Py_DECREF(w);
		return NULL;
	}
	return (PyObject *)w;
}

/* -------- calls -------- */

/* One call of the library, in slices; the other arguments of put_* are in it. */
struct put {
	struct rlv_steps steps;
	const void *columns[RLV_MAX_COLUMNS];
	int64_t stream; /* -1 = one row of each */
	bool end;       /* of the stream's episode; no rows */
};

/* One try; takes the rows that went in out of the put. */
static int try_put(struct writer *w, struct put *put)
{
	uint32_t done = 0;
	int ret;

	if (put->end)
		return rlv_writer_end_episode(w->writer, (uint32_t)put->stream, NULL);
	if (put->stream < 0)
		return rlv_writer_append_vector(w->writer, &put->steps);
	ret = rlv_writer_append(w->writer, (uint32_t)put->stream, &put->steps, &done);
	if (ret == 0 || done == 0)
		return ret;
	for (uint32_t c = 0; c < w->n_columns; c++)
		put->columns[c] =
			(const uint8_t *)put->columns[c] + (size_t)done * w->columns[c].bytes;
	put->steps.n -= done;
	put->steps.flags += done;
	put->steps.td_error += put->steps.td_error ? done : 0;
	return ret;
}

/* 0, or -1 with an exception. */
static int put_rows(struct writer *w, struct put *put)
{
	struct wait wait;
	int again;
	int ret;

	put->steps.columns = put->columns;
	if (wait_start(&wait, w->timeout))
		return -1;
	do {
		if (handle_enter(&w->h))
			return -1;
		Py_BEGIN_ALLOW_THREADS ret = try_put(w, put);
		Py_END_ALLOW_THREADS handle_leave(&w->h);
		again = ret ? wait_again(&wait, ret) : 0;
	} while (again > 0);
	if (ret && again == 0)
		error_raise(ret);
	return ret ? -1 : 0;
}

static int end_stream(struct writer *w, uint32_t stream)
{
	struct put put = { .steps = RLV_STEPS_INIT, .stream = stream, .end = true };

	return put_rows(w, &put);
}

/* The observations of finals[], `index` steps in, as a row of its own. */
static int put_final(struct writer *w, uint32_t stream, const void *const *finals, uint32_t index)
{
	static const uint16_t flags = RLV_FINAL;
	struct put put = { .steps = RLV_STEPS_INIT, .stream = stream };

	put.steps.n = 1;
	put.steps.flags = &flags;
	for (uint32_t c = 0; c < w->n_columns; c++)
		put.columns[c] =
			finals[c] ? (const uint8_t *)finals[c] + (size_t)index * w->columns[c].bytes
				  : w->zeros;
	return put_rows(w, &put);
}

/* -------- append -------- */

/* Flags of call->n rows: of one step of each environment, or of consecutive steps of one. */
static void make_flags(const struct writer *w, struct call *call, bool consecutive)
{
	bool ended = w->ended[call->env];

	for (uint32_t i = 0; i < call->n; i++) {
		uint16_t flags = 0;

		if (!consecutive)
			ended = w->ended[i];
		if (call->ends[0] && call->ends[0][i])
			flags |= RLV_TERMINATED;
		if (call->ends[1] && call->ends[1][i])
			flags |= RLV_TRUNCATED;
		if ((call->ends[2] && call->ends[2][i]) ||
		    (ended && w->autoreset == AUTORESET_NEXT_STEP))
			flags = RLV_FINAL;
		call->flags[i] = flags;
		ended = flags & (RLV_TERMINATED | RLV_TRUNCATED);
	}
}

static bool row_ended(const struct call *call, uint32_t i)
{
	return call->flags[i] & (RLV_TERMINATED | RLV_TRUNCATED);
}

/* The final rows of what ended, and the state for the next call. */
static int after_step(struct writer *w, const struct call *call)
{
	uint32_t index = 0;
	int ret = 0;

	for (uint32_t i = 0; i < call->n; i++)
		w->ended[i] = row_ended(call, i);
	for (uint32_t i = 0; ret == 0 && w->obs_columns && i < call->n; i++) {
		uint32_t first = (uint32_t)__builtin_ctz(w->obs_columns);

		if (!w->ended[i] || !call->finals[first])
			continue;
		ret = put_final(w, i, call->finals, index++);
	}
	return ret;
}

static void put_of_call(const struct call *call, struct put *put)
{
	put->steps = (struct rlv_steps)RLV_STEPS_INIT;
	put->steps.n = call->n;
	put->steps.flags = call->flags;
	put->steps.td_error = call->td_error;
	put->steps.policy_version = call->policy_version;
	memcpy(put->columns, call->columns, sizeof(put->columns));
	put->end = false;
}

static int append_step(struct writer *w, struct call *call)
{
	struct put put;

	if (call->values[KEY_ENV]) {
		error_format(-EINVAL, "append: env is of extend and end_episode");
		return -1;
	}
	call->n = w->n_envs;
	call->flags = w->flags;
	call->td_error = w->td_error;
	if (call_bind(w, call, w->batched))
		return -1;
	make_flags(w, call, false);
	if (call_bind_finals(w, call))
		return -1;
	put_of_call(call, &put);
	put.stream = w->n_envs == 1 ? 0 : -1;
	return put_rows(w, &put) || after_step(w, call) ? -1 : 0;
}

/* -------- extend -------- */

static int read_env(const struct writer *w, struct call *call)
{
	PyObject *value = call->values[KEY_ENV];
	PyObject *index = value ? PyNumber_Index(value) : NULL;
	unsigned long env = index ? PyLong_AsUnsignedLong(index) : 0;

	Py_XDECREF(index);
	if (PyErr_Occurred() || env >= w->n_envs) {
		PyErr_Clear();
		error_format(-EINVAL, "env %R: the writer has %u", value, (unsigned int)w->n_envs);
		return -1;
	}
	call->env = (uint32_t)env;
	return 0;
}

/* Rows of the call: as many as the first column has. */
static int read_length(const struct writer *w, struct call *call)
{
	Py_ssize_t n = call->values[0] ? PyObject_Size(call->values[0]) : 0;

	if (n < 0 || n > INT32_MAX)
		PyErr_Clear();
	if (n < 0 || n > INT32_MAX || !call->values[0]) {
		error_format(-EINVAL, "extend: column %s is missing, or is no array",
			     w->columns[0].name);
		return -1;
	}
	call->n = (uint32_t)n;
	return 0;
}

static int extend_rows(struct writer *w, struct call *call)
{
	struct put put;

	if (read_env(w, call) || read_length(w, call))
		return -1;
	if (call->n == 0)
		return 0;
	call->scratch = calloc(call->n, sizeof(*call->flags) + sizeof(*call->td_error));
	if (!call->scratch) {
		PyErr_NoMemory();
		return -1;
	}
	call->td_error = call->scratch;
	call->flags = (uint16_t *)(void *)(call->td_error + call->n);
	if (call_bind(w, call, true))
		return -1;
	make_flags(w, call, true);
	put_of_call(call, &put);
	put.stream = call->env;
	if (put_rows(w, &put))
		return -1;
	w->ended[call->env] = row_ended(call, call->n - 1);
	return 0;
}

/* -------- methods -------- */

/* Reads the keywords and runs one of the above; no two threads, and no signal handler, at once. */
static PyObject *run(struct writer *w, PyObject *const *values, Py_ssize_t n_positional,
		     PyObject *names, int (*body)(struct writer *w, struct call *call))
{
	struct call call;
	int ret = -1;

	if (n_positional)
		return PyErr_Format(PyExc_TypeError, "columns are given by keyword");
	if (w->busy)
		return error_format(-EBUSY, "another thread is in a call of this writer");
	memset(&call, 0, offsetof(struct call, sources));
	w->busy = true;
	if (call_read(w, &call, values, names) == 0)
		ret = body(w, &call);
	call_release(&call);
	w->busy = false;
	if (ret)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *writer_append(PyObject *self, PyObject *const *values, Py_ssize_t n,
			       PyObject *names)
{
	return run((struct writer *)self, values, n, names, append_step);
}

static PyObject *writer_extend(PyObject *self, PyObject *const *values, Py_ssize_t n,
			       PyObject *names)
{
	return run((struct writer *)self, values, n, names, extend_rows);
}

static int end_episode(struct writer *w, struct call *call)
{
	const struct demand one = { .n = 1 };
	bool given = false;

	if (read_env(w, call))
		return -1;
	for (uint32_t c = 0; c < w->n_columns; c++)
		given |= call->values[c] != NULL;
	for (uint32_t c = 0; given && c < w->n_columns; c++) {
		struct source *source = &call->sources[call->n_sources];

		if (!(w->obs_columns & 1u << c) || !call->values[c])
			continue;
		source->view.obj = NULL;
		if (column_bind(&w->columns[c], call->values[c], &one, source))
			return -1;
		call->n_sources++;
		call->finals[c] = source->data;
	}
	if (given && put_final(w, call->env, call->finals, 0))
		return -1;
	w->ended[call->env] = false;
	return end_stream(w, call->env);
}

static PyObject *writer_end_episode(PyObject *self, PyObject *const *values, Py_ssize_t n,
				    PyObject *names)
{
	return run((struct writer *)self, values, n, names, end_episode);
}

/* Completes what waits for later steps; an exception does not keep the writer from closing. */
static int complete_all(struct writer *w)
{
	for (uint32_t i = 0; i < w->n_envs; i++)
		if (end_stream(w, i))
			return -1;
	return 0;
}

static int close_locked(struct writer *w)
{
	int ret;

	Py_BEGIN_ALLOW_THREADS ret = rlv_writer_close(&w->writer);
	Py_END_ALLOW_THREADS w->h.open = false;
	handle_leave(&w->h);
	return ret;
}

static PyObject *writer_close(PyObject *object, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "wait", NULL };
	struct writer *w = (struct writer *)object;
	int wait = 1;
	bool failed;
	int entered;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p", names, &wait))
		return NULL;
	failed = wait && w->h.open && handle_is_ours(&w->h) && complete_all(w);
	if (failed && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
		return NULL;
	entered = handle_enter_close(&w->h);
	if (entered < 0)
		return NULL;
	ret = entered ? close_locked(w) : 0;
	if (failed)
		return NULL;
	if (ret && (wait || ret != -ETIMEDOUT))
		return error_raise(ret);
	Py_RETURN_NONE;
}

static void writer_dealloc(PyObject *object)
{
	struct writer *w = (struct writer *)object;

	if (w->writer && handle_enter_close(&w->h) == 1)
		(void)close_locked(w); /* whoever wants to know closes */
	Py_CLEAR(w->keys);
	Py_CLEAR(w->timeout);
	Py_CLEAR(w->last_names);
	free(w->memory);
	handle_fini(&w->h);
	object_free(w);
}

static PyObject *writer_stats(PyObject *object, PyObject *unused)
{
	struct writer *w = (struct writer *)object;
	struct rlv_stats s = { .size = sizeof(s) };
	int ret;

	(void)unused;
	if (handle_enter(&w->h))
		return NULL;
	ret = rlv_writer_stats(w->writer, &s);
	handle_leave(&w->h);
	return ret ? error_raise(ret) : stats_dict(&s);
}

static PyObject *writer_is_open(PyObject *object, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct writer *)object)->h.open);
}

static PyObject *writer_num_envs(PyObject *object, void *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLong(((struct writer *)object)->n_envs);
}

static const char append_doc[] =
	"append($self, /, **values)\n"
	"--\n"
	"\n"
	"One step of the environment, or one of each environment of a vector.\n"
	"\n"
	"Values by the names of the columns, of their shapes (with num_envs: after a dimension of\n"
	"num_envs): arrays, numbers, lists, tensors on the host. Further:\n"
	"  terminated, truncated   bool, or (num_envs,) bool\n"
	"  final                   bool or (num_envs,): the row is only the observation after an\n"
	"                          episode's last action\n"
	"  final_<column>          of each observation column, as the column, used where an episode\n"
	"                          ends in this step; entries of others may be None\n"
	"  td_error                initial TD errors; |td_error| counts; float, or (num_envs,)\n"
	"  policy_version          of the policy that acted, 0 to 2^32 - 1\n"
	"Raises InvalidArgument (names the column; nothing went in), Timeout (a vector's step did not go\n"
	"in), Fenced, TableDropped, NodeDown, Forked, Closed, Busy (another thread is in a call).\n";

static const char extend_doc[] =
	"extend($self, /, *, env=0, **values)\n"
	"--\n"
	"\n"
	"n consecutive steps of environment `env`: as append, but every value begins with a dimension\n"
	"of n. On Timeout some of the steps may be in: see stats()[\"steps\"].\n";

static const char end_episode_doc[] =
	"end_episode($self, /, *, env=0, **observation)\n"
	"--\n"
	"\n"
	"Ends the episode of environment `env`: items that wait for later steps are completed. With the\n"
	"observation columns, those are the observation after the last action.\n";

static const char close_doc[] =
	"close($self, /, wait=True)\n"
	"--\n"
	"\n"
	"Completes the pending items of all environments and closes; closed already is fine. Without\n"
	"wait, items that the rate limiter does not admit now are dropped. Raises Timeout: closed all\n"
	"the same.\n";

static const char stats_doc[] =
	"stats($self, /)\n"
	"--\n"
	"\n"
	"Counters since it was opened, as a dict: calls, steps, items, blocks_claimed, limiter_waits,\n"
	"limiter_wait_ns, ...\n";

#define FUNCTION(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
	{ "append", FUNCTION(writer_append), METH_FASTCALL | METH_KEYWORDS, append_doc },
	{ "extend", FUNCTION(writer_extend), METH_FASTCALL | METH_KEYWORDS, extend_doc },
	{ "end_episode", FUNCTION(writer_end_episode), METH_FASTCALL | METH_KEYWORDS,
	  end_episode_doc },
	{ "close", FUNCTION(writer_close), METH_VARARGS | METH_KEYWORDS, close_doc },
	{ "stats", writer_stats, METH_NOARGS, stats_doc },
	{ 0 },
};

static PyGetSetDef members[] = {
	{ "is_open", writer_is_open, NULL, NULL, NULL },
	{ "num_envs", writer_num_envs, NULL, NULL, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, writer_new },
	{ Py_tp_dealloc, writer_dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_getset, members },
	{ 0, NULL },
};

static PyType_Spec spec = {
	.name = "relive._core.Writer",
	.basicsize = sizeof(struct writer),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};

int writer_init(PyObject *module)
{
	writer_type = type_add(module, &spec);
	return writer_type ? 0 : -1;
}

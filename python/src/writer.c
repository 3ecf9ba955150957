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
	static const char *const others[] = { "terminated",     "truncated", "final", "td_error",
					      "policy_version", "infos",     "env" };
	int ret = 0;

	w->keys = PyDict_New();
	if (!w->keys)
		return -1;
	for (uint32_t c = 0; ret == 0 && c < w->n_columns; c++) {
		ret = add_key(w->keys, "", w->columns[c].name, (int)c);
		if (ret == 0 && w->columns[c].is_obs)
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
	for (uint32_t c = 0; w->assumed && c < w->n_columns; c++)
		if (w->columns[c].is_obs)
			w->firsts[c] = cut(&at, n * w->columns[c].bytes);
	w->has_first = cut(&at, n * sizeof(*w->has_first));
	w->ended_at_first = cut(&at, n * sizeof(*w->ended_at_first));
	return (size_t)(at - memory);
}

static int prepare(struct writer *w, const struct table *table)
{
	const struct rlv_table_info *info = table->info;

	w->n_columns = info->n_columns;
	for (uint32_t c = 0; c < info->n_columns; c++) {
		column_of(&info->columns[c], &w->columns[c]);
		if (w->columns[c].is_obs && w->n_obs++ == 0)
			w->first_obs = c;
	}
	w->waits = w->n_obs != 0;
	for (uint32_t v = 0; v < info->n_views; v++)
		w->waits |= info->views[v].view.n_step > 1 || info->views[v].view.period > 1;
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
	static char *names[] = { "table",   "num_envs", "batched", "autoreset",
				 "assumed", "checked",  "timeout", NULL };
	PyObject *table, *timeout;
	unsigned int n_envs, autoreset;
	struct writer *w;
	int batched, assumed, checked;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!IpIppO", names, table_type, &table,
					 &n_envs, &batched, &autoreset, &assumed, &checked,
					 &timeout))
		return NULL;
	w = object_alloc(type);
	if (!w)
		return NULL;
	handle_init(&w->h, table);
	w->n_envs = w->final_env = n_envs ? n_envs : 1;
	w->batched = batched;
	w->autoreset = autoreset;
	w->unchecked = !checked;
	w->assumed = assumed && autoreset == AUTORESET_NEXT_STEP;
	w->firsts_left = w->assumed ? w->n_envs : 0;
	Py_INCREF(timeout);
	w->timeout = timeout;
	if (prepare(w, (struct table *)table) || open_writer(w, (struct table *)table)) {
		Py_DECREF(w);
		return NULL;
	}
	return (PyObject *)w;
}

/* -------- methods -------- */

/*
 * Reads the values, from at most one dict and then the keywords, which take precedence, and runs a
 * verb of append.c with them. -EBUSY for a second thread, or a signal's handler, in such a call.
 */
static PyObject *run(struct writer *w, PyObject *const *values, Py_ssize_t n_positional,
		     PyObject *names, int (*body)(struct writer *w, struct call *call))
{
	struct call call;
	int ret = -1;

	if (n_positional > 1 || (n_positional && !PyDict_Check(values[0])))
		return PyErr_Format(PyExc_TypeError, "give columns as keywords, or as one dict");
	if (w->busy)
		return error_format(
			-EBUSY,
			"another thread is in a call of this writer: open a writer for each thread");
	call_clear(w, &call);
	w->busy = true;
	if ((n_positional == 0 || call_read_dict(w, &call, values[0]) == 0) &&
	    call_read(w, &call, values + n_positional, names) == 0)
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
	return run((struct writer *)self, values, n, names, append_rows);
}

static PyObject *writer_end_episode(PyObject *self, PyObject *const *values, Py_ssize_t n,
				    PyObject *names)
{
	return run((struct writer *)self, values, n, names, append_end);
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
	failed = wait && w->h.open && handle_is_ours(&w->h) && append_complete(w);
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

static const char append_doc[] =
	"append($self, steps={}, /, **values)\n"
	"--\n"
	"\n"
	"Appends one step of the environment, or one of each environment of a vector.\n"
	"\n"
	"Values are given by the names of the columns, as keywords or in a dict: arrays, numbers, lists\n"
	"or tensors on the host, of the column's shape (with num_envs: after a dimension of num_envs).\n"
	"Further keywords:\n"
	"  terminated, truncated   bool, or (num_envs,) bool\n"
	"  final                   bool, or (num_envs,) bool: the row is only the observation after an\n"
	"                          episode's last action\n"
	"  final_<column>          for each observation column, of its shape: the observation after the\n"
	"                          last action, read where an episode ends; other entries may be None\n"
	"  infos                   the dict that a vector's step() returned: its final_obs is used, or\n"
	"                          shows that the autoreset mode is wrong\n"
	"  td_error                float, or (num_envs,): initial TD errors of either sign\n"
	"  policy_version          0 to 2^32 - 1: of the policy that acted\n"
	"Raises InvalidArgument (names the column), Timeout, Fenced, TableDropped, NodeDown, Forked,\n"
	"Closed, Busy (another thread is in a call); then no environment's step was appended. Final\n"
	"observations that cannot be appended at once are appended before the rows of the next call.\n";

static const char extend_doc[] =
	"extend($self, steps={}, /, *, env=0, **values)\n"
	"--\n"
	"\n"
	"Appends n consecutive steps of environment `env`. Values are as append's, with a first\n"
	"dimension of n. final_<column> and infos are not accepted: append the observation after the\n"
	"last action as a row with `final`, or by end_episode. After Timeout some steps may be in:\n"
	"stats()[\"steps\"] counts them.\n";

static const char end_episode_doc[] =
	"end_episode($self, observation={}, /, *, env=0, **values)\n"
	"--\n"
	"\n"
	"Ends the episode of environment `env`, so that its pending items are completed. If the\n"
	"observation columns are given, all of them, they are the observation after the last action.\n";

static const char close_doc[] =
	"close($self, /, wait=True)\n"
	"--\n"
	"\n"
	"Completes the pending items of all environments and closes; a second call does nothing. With\n"
	"wait=False, items that the rate limiter does not admit now are dropped. Raises Timeout; the\n"
	"writer is closed then, too.\n";

static const char stats_doc[] =
	"stats($self, /)\n"
	"--\n"
	"\n"
	"Returns counters since it was opened, as a dict: calls, steps, items, blocks_claimed,\n"
	"limiter_waits, limiter_wait_ns, ...\n";

static PyMethodDef methods[] = {
	{ "append", METHOD(writer_append), METH_FASTCALL | METH_KEYWORDS, append_doc },
	{ "extend", METHOD(writer_extend), METH_FASTCALL | METH_KEYWORDS, extend_doc },
	{ "end_episode", METHOD(writer_end_episode), METH_FASTCALL | METH_KEYWORDS,
	  end_episode_doc },
	{ "close", METHOD(writer_close), METH_VARARGS | METH_KEYWORDS, close_doc },
	{ "stats", writer_stats, METH_NOARGS, stats_doc },
	{ 0 },
};

static PyMemberDef members[] = {
	{ "is_open", T_BOOL, offsetof(struct writer, h.open), READONLY, NULL },
	{ "num_envs", T_UINT, offsetof(struct writer, n_envs), READONLY, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, writer_new },
	{ Py_tp_dealloc, writer_dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_members, members },
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

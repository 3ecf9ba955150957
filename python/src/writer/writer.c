#include "python/src/writer/writer.h"

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

static void *writer_cut(uint8_t **at, size_t bytes)
{
	void *part = *at;

	*at += (bytes + 15) / 16 * 16;
	return part;
}

/* Sets the writer's arrays to consecutive parts of `memory`, and returns the bytes that they take.
   A first call with any address only measures; the second cuts the memory allocated. */
static size_t cut_memory(struct writer *w, uint8_t *memory)
{
	size_t n = w->n_envs, largest = 0;
	uint8_t *at = memory;

	for (uint32_t c = 0; c < w->n_columns; c++) {
		w->stage[c] = writer_cut(&at, n * w->columns[c].bytes);
		largest = w->columns[c].bytes > largest ? w->columns[c].bytes : largest;
	}
	w->zeros = writer_cut(&at, largest);
	for (int e = 0; e < 3; e++)
		w->ends[e] = writer_cut(&at, n);
	w->td_error = writer_cut(&at, n * sizeof(*w->td_error));
	w->flags = writer_cut(&at, n * sizeof(*w->flags));
	w->ended = writer_cut(&at, n * sizeof(*w->ended));
	for (uint32_t c = 0; w->assumed && c < w->n_columns; c++)
		if (w->columns[c].is_obs)
			w->firsts[c] = writer_cut(&at, n * w->columns[c].bytes);
	w->has_first = writer_cut(&at, n * sizeof(*w->has_first));
	w->ended_at_first = writer_cut(&at, n * sizeof(*w->ended_at_first));
	return (size_t)(at - memory);
}

/* Takes the columns from the table's info, allocates w->memory and cuts it into arrays, and fills
   w->keys, the numbers of the keywords. 0, or -1 with an exception. */
static int writer_prepare(struct writer *w, const struct rlv_table_info *info)
{
	static const char *const others[] = { "terminated",     "truncated", "final", "td_error",
					      "policy_version", "infos",     "env" };
	int ret = 0;

	w->n_columns = info->n_columns;
	for (uint32_t c = 0; c < info->n_columns; c++) {
		column_of(&info->columns[c], &w->columns[c]);
		w->n_obs += w->columns[c].is_obs;
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

static void writer_free(struct handle *h)
{
	struct writer *w = (struct writer *)h;

	Py_CLEAR(w->keys);
	Py_CLEAR(w->last_names);
	free(w->memory);
}

static const struct handle_hooks writer_hooks = { .free = writer_free };

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "table",   "num_envs", "batched", "autoreset",
				 "assumed", "checked",  "timeout", NULL };
	struct rlv_writer_opts opts = RLV_WRITER_OPTS_INIT;
	int batched, assumed, checked;
	PyObject *parent, *timeout;
	unsigned int n_envs, autoreset;
	struct table *table;
	struct writer *w;
	struct wait wait;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!IpIppO", names, table_type, &parent,
					 &n_envs, &batched, &autoreset, &assumed, &checked,
					 &timeout))
		return NULL;
	w = handle_new(type, parent, timeout, HANDLE_WRITER, &writer_hooks);
	if (!w)
		return NULL;
	table = (struct table *)parent;
	w->n_envs = w->final_env = n_envs ? n_envs : 1;
	w->batched = batched;
	w->autoreset = autoreset;
	w->unchecked = !checked;
	w->assumed = assumed && autoreset == AUTORESET_NEXT_STEP;
	w->firsts_left = w->assumed ? w->n_envs : 0;
	if (writer_prepare(w, &table->info) || wait_start(&wait, timeout) ||
	    handle_enter(&table->h))
		return handle_opened(&w->h, -ECANCELED);
	opts.streams = w->n_envs;
	/* the library waits for a slice at a time, and not for more than the user wants */
	opts.timeout_ns = wait.left_ns ? wait.left_ns : 1;
	ret = rlv_writer_open(table->h.table, &opts, &w->h.writer);
	handle_leave(&table->h);
	return handle_opened(&w->h, ret);
}

/* -------- methods -------- */

static PyObject *writer_close(PyObject *object, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "wait", NULL };
	struct writer *w = (struct writer *)object;
	int wait = 1;
	bool failed;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p", names, &wait))
		return NULL;
	failed = wait && w->h.open && handle_is_ours(&w->h) && append_complete(w);
	if (failed && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
		return NULL;
	if (handle_end(&w->h, &ret) || failed)
		return NULL;
	if (ret && (wait || ret != -ETIMEDOUT))
		return error_raise(ret);
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
	{ "append", METHOD(append_step), METH_FASTCALL | METH_KEYWORDS, NULL },
	{ "extend", METHOD(append_rows), METH_FASTCALL | METH_KEYWORDS, NULL },
	{ "end_episode", METHOD(append_end), METH_FASTCALL | METH_KEYWORDS, NULL },
	{ "close", METHOD(writer_close), METH_VARARGS | METH_KEYWORDS, NULL },
	{ "stats", handle_stats, METH_NOARGS, NULL },
	{ 0 },
};

static PyMemberDef members[] = {
	{ "is_open", T_BOOL, offsetof(struct writer, h.open), READONLY, NULL },
	{ "num_envs", T_UINT, offsetof(struct writer, n_envs), READONLY, NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_new, writer_new },
	{ Py_tp_dealloc, handle_dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_members, members },
	{ 0, NULL },
};

PyType_Spec writer_spec = {
	.name = "relive._core.Writer",
	.basicsize = sizeof(struct writer),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};

#include "python/src/batch.h"

#include <relive/scan.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *batch_type;

/* -------- layout -------- */

static struct array_layout *layout_add(struct layout *layout, const struct slot *slot,
				       const char *name, uint32_t dtype, const void *data)
{
	struct array_layout *to = &layout->arrays[layout->n_arrays++];

	snprintf(to->name, sizeof(to->name), "%s", name);
	to->type = dtype_of(dtype);
	to->offset = (size_t)((const uint8_t *)data - slot->memory);
	to->ndim = 1;
	to->strides[0] = to->type->bytes;
	return to;
}

/*
 * Makes the layout of the batch in a slot; the caller gets one reference. NULL with an exception.
 * Python runs here, and another thread may close the sampler, which frees the library's batch: it
 * is not read after that.
 */
static struct layout *layout_open(const struct slot *slot)
{
	const struct rlv_batch *batch = slot->batch;
	/* Members of struct rlv_batch; the last two may not be there. */
	const struct {
		const char *name;
		const void *data;
		uint32_t dtype;
	} extras[] = {
		{ "key", batch->key, RLV_U64 },
		{ "weight", batch->weight, RLV_F32 },
		{ "probability", batch->probability, RLV_F64 },
		{ "priority", batch->priority, RLV_F32 },
		{ "policy_version", batch->policy_version, RLV_U32 },
		{ "times_sampled", rlv_batch_times_sampled(batch), RLV_U32 },
	};
	const size_t n_extras = sizeof(extras) / sizeof(extras[0]);
	struct layout *layout = calloc(1, sizeof(*layout) + (batch->n_arrays + n_extras) *
								    sizeof(layout->arrays[0]));
	PyObject *names;

	if (!layout) {
		PyErr_NoMemory();
		return NULL;
	}
	layout->refs = 1;
	for (uint32_t a = 0; a < batch->n_arrays; a++) {
		const struct rlv_array *from = &batch->arrays[a];
		struct array_layout *to =
			layout_add(layout, slot, from->name, from->dtype, from->data);

		to->ndim = (int)from->ndim;
		memcpy(to->shape, from->shape, sizeof(to->shape));
		memcpy(to->strides, from->strides, sizeof(to->strides));
	}
	for (size_t e = 0; e < n_extras; e++) {
		struct array_layout *to;

		if (!extras[e].data)
			continue;
		to = layout_add(layout, slot, extras[e].name, extras[e].dtype, extras[e].data);
		to->read_only = e == 0; /* update_priorities goes by the keys as drawn */
		to->weight = e == 1;
	}
	/* from here on Python runs, and a close may free the batch */
	names = PyList_New(0);
	for (uint32_t a = 0; names && a < layout->n_arrays; a++) {
		struct array_layout *to = &layout->arrays[a];

		to->dtype = python_call("relive._bfloat16", "numpy_dtype", "(s)", to->type->name);
		list_add(&names, to->dtype ? PyUnicode_FromString(to->name) : NULL);
	}
	layout->names = tuple_of_list(names);
	if (layout->names)
		layout->index = python_call("relive._nested", "index", "(O)", layout->names);
	if (layout->index)
		return layout;
	layout_put(layout);
	return NULL;
}

void layout_put(struct layout *layout)
{
	if (!layout || --layout->refs)
		return;
	for (uint32_t a = 0; a < layout->n_arrays; a++)
		Py_XDECREF(layout->arrays[a].dtype);
	Py_XDECREF(layout->names);
	Py_XDECREF(layout->index);
	free(layout);
}

/* -------- lease: keeps the slot from being filled again -------- */

/* Destructor of the capsule that a batch and its arrays hold: marks the slot as returned, and drops
   the capsule's references to the slot and its layout. */
static void lease_end(PyObject *lease)
{
	struct slot *slot = PyCapsule_GetPointer(lease, NULL);
	struct layout *layout = slot->layout;

	/* release, with the acquire of the sampler: all reads of the arrays before it is filled */
	atomic_store_explicit(&slot->returned, true, memory_order_release);
	slot_put(slot);
	layout_put(layout);
}

/* -------- batch -------- */

struct batch {
	PyVarObject base;
	PyObject *lease; /* NULL = released */
	struct slot *slot;
	long long table_size;
	uint32_t n, path;
	PyObject *made[]; /* arrays asked for, of those in the layout */
};

/* Waits until the device has the batch. 0, or -1 with an exception. */
static int wait_landed(const struct slot *slot)
{
	PyThreadState *thread = PyEval_SaveThread();
	int ret = rlv_landing_wait(slot->landing->landing, slot->memory);

	PyEval_RestoreThread(thread);
	if (ret)
		error_raise(ret);
	return ret ? -1 : 0;
}

PyObject *batch_make(struct slot *slot, struct layout **last)
{
	PyObject *lease = PyCapsule_New(slot, NULL, lease_end);
	struct layout *replaced;
	const struct rlv_array *arrays = slot->batch->arrays;
	struct batch *batch = NULL;
	uint32_t a = 0;

	if (!lease) {
		atomic_store_explicit(&slot->returned, true, memory_order_release);
		return NULL;
	}
	slot->refs++; /* other threads run in layout_open: one may close the sampler */
	while (*last && a < slot->batch->n_arrays &&
	       (uint8_t *)arrays[a].data == slot->memory + (*last)->arrays[a].offset)
		a++;
	if (*last && a == slot->batch->n_arrays) { /* not after a change of n_step */
		slot->layout = *last;
		slot->layout->refs++;
	} else {
		slot->layout = layout_open(slot);
	}
	if (slot->layout)
		batch = object_alloc(batch_type, slot->layout->n_arrays);
	if (!batch) {
		Py_DECREF(lease);
		return NULL;
	}
	batch->lease = lease;
	batch->slot = slot;
	batch->n = slot->n;
	batch->table_size = slot->table_size;
	batch->path = slot->path;
	replaced = *last;
	*last = slot->layout;
	(*last)->refs++;
	layout_put(replaced);
	if (slot->landing && wait_landed(slot))
		Py_CLEAR(batch);
	return (PyObject *)batch;
}

static void batch_forget(struct batch *batch)
{
	for (uint32_t a = 0; batch->lease && a < batch->slot->layout->n_arrays; a++)
		Py_CLEAR(batch->made[a]);
	Py_CLEAR(batch->lease);
}

static void batch_dealloc(PyObject *object)
{
	batch_forget((struct batch *)object);
	object_free(object);
}

/* An array of the device, if the batch is there; its keys are the host's. */
static PyObject *make_array(const struct batch *batch, Py_ssize_t number)
{
	const struct array_layout *layout = &batch->slot->layout->arrays[number];
	PyObject *array = array_make(layout, batch->n, batch->slot->memory, batch->lease);

	return layout->read_only ? array : landing_array(batch->slot, layout->weight, array);
}

/* Returns the array with the number `entry`, made at its first use, or, for a dict of numbers, a
   dict of arrays. A new reference, or NULL with an exception. */
static PyObject *get_entry(struct batch *batch, PyObject *entry)
{
	PyObject *result, *name, *inner, **made;
	Py_ssize_t at = 0, number;

	if (!PyDict_Check(entry)) {
		number = PyLong_AsSsize_t(entry);
		made = &batch->made[number];
		if (!*made)
			*made = make_array(batch, number);
		Py_XINCREF(*made);
		return *made;
	}
	result = PyDict_New();
	while (result && PyDict_Next(entry, &at, &name, &inner)) {
		PyObject *value = get_entry(batch, inner);

		if (!value || PyDict_SetItem(result, name, value))
			Py_CLEAR(result);
		Py_XDECREF(value);
	}
	return result;
}

static const char released[] = "this batch was released: copy() it before, or keep its arrays";

/* Looks up a name in the batch's index: a number or a dict, borrowed. NULL without an exception: no
   array has that name, or the batch was released. */
static PyObject *find_entry(struct batch *batch, PyObject *name)
{
	if (batch->lease)
		return PyDict_GetItemWithError(batch->slot->layout->index, name);
	return NULL;
}

/* Raises: the batch has no array of that name. NULL. */
static PyObject *raise_missing(PyObject *kind, PyObject *object, PyObject *name)
{
	PyObject *text = python_call("relive.batch", "missing", "(OO)", object, name);

	if (text)
		PyErr_SetObject(kind, text);
	Py_XDECREF(text);
	return NULL;
}

static PyObject *batch_getattr(PyObject *object, PyObject *name)
{
	struct batch *batch = (struct batch *)object;
	PyObject *entry = find_entry(batch, name), *found;

	if (entry)
		return get_entry(batch, entry);
	found = PyErr_Occurred() ? NULL : PyObject_GenericGetAttr(object, name);
	if (found || !PyErr_ExceptionMatches(PyExc_AttributeError) ||
	    PyUnicode_ReadChar(name, 0) ==
		    '_') /* which is how libraries ask what an object can do */
		return found;
	PyErr_Clear();
	return batch->lease ? raise_missing(PyExc_AttributeError, object, name)
			    : error_format(-EBADF, released);
}

static PyObject *batch_subscript(PyObject *object, PyObject *name)
{
	struct batch *batch = (struct batch *)object;
	PyObject *entry;

	if (!batch->lease)
		return error_format(-EBADF, released);
	entry = find_entry(batch, name);
	if (entry)
		return get_entry(batch, entry);
	return PyErr_Occurred() ? NULL : raise_missing(PyExc_KeyError, object, name);
}

static Py_ssize_t batch_length(PyObject *object)
{
	return ((struct batch *)object)->n;
}

static PyObject *batch_release(PyObject *object, PyObject *Py_UNUSED(unused))
{
	batch_forget((struct batch *)object);
	Py_RETURN_NONE;
}

static PyObject *batch_enter(PyObject *object, PyObject *Py_UNUSED(unused))
{
	Py_INCREF(object);
	return object;
}

static PyObject *batch_copy(PyObject *object, PyObject *Py_UNUSED(unused))
{
	return python_call("relive.batch", "copy_of", "(O)", object);
}

static PyObject *batch_names(PyObject *object, void *Py_UNUSED(unused))
{
	struct batch *batch = (struct batch *)object;
	PyObject *names;

	if (!batch->lease)
		return error_format(-EBADF, released);
	names = batch->slot->layout->names;
	Py_INCREF(names);
	return names;
}

static PyObject *batch_path(PyObject *object, void *Py_UNUSED(unused))
{
	uint32_t path = ((struct batch *)object)->path;

	if (path)
		return PyUnicode_FromString(rlv_landing_path_name(path));
	Py_RETURN_NONE;
}

static const char batch_doc[] =
	"The result of a sample: numpy arrays by name, as attributes and as items, made on first access\n"
	"without a copy. See relive.batch for their shapes and dtypes.\n";

static PyMethodDef methods[] = {
	{ "release", batch_release, METH_NOARGS, NULL },
	{ "copy", batch_copy, METH_NOARGS, NULL },
	{ "__enter__", batch_enter, METH_NOARGS, NULL },
	{ "__exit__", batch_release, METH_VARARGS, NULL },
	{ 0 },
};

static PyMemberDef members[] = {
	{ "n", T_UINT, offsetof(struct batch, n), READONLY, "Number of items." },
	{ "table_size", T_LONGLONG, offsetof(struct batch, table_size), READONLY,
	  "Live items of the view at the draw." },
	{ 0 },
};

static PyGetSetDef attributes[] = {
	{ "names", batch_names, NULL, "Names of the arrays, a tuple.", NULL },
	{ "path", batch_path, NULL, "How the batch came to a device; None: to none.", NULL },
	{ 0 },
};

static PyType_Slot slots[] = {
	{ Py_tp_doc, (void *)(uintptr_t)batch_doc },
	{ Py_tp_dealloc, batch_dealloc },
	{ Py_tp_getattro, batch_getattr },
	{ Py_mp_subscript, batch_subscript },
	{ Py_mp_length, batch_length },
	{ Py_tp_methods, methods },
	{ Py_tp_members, members },
	{ Py_tp_getset, attributes },
	{ 0, NULL },
};

PyType_Spec batch_spec = {
	.name = "relive._core.Batch",
	.basicsize = offsetof(struct batch, made),
	.itemsize = sizeof(PyObject *),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

/*
 * Kv: a handle of a heap. Keys and values are bytes-like; kv.py has names and documentation.
 */
#include "python/src/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *kv_type;

/* Kv(store, name) opens, Kv(store, name, parts, keys, bytes, extent_bytes, max_clients, mode, copies, writers,
   stripe_bytes) creates. */
static PyObject *kv_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
	struct rlv_kv_opts opts = RLV_KV_OPTS_INIT;
	PyObject *store;
	struct handle *self;
	const char *name;
	int ret;

	if (!PyArg_ParseTuple(args, "O!s|IKKKIIIIK", store_type, &store, &name, &opts.parts,
			      &opts.keys, &opts.bytes, &opts.extent_bytes, &opts.max_clients,
			      &opts.mode, &opts.copies, &opts.writers, &opts.stripe_bytes))
		return NULL;
	self = handle_new(type, store, NULL, HANDLE_KV, NULL);
	if (!self)
		return NULL;
	if (handle_enter((struct handle *)store)) {
		Py_DECREF(self);
		return NULL;
	}
	ret = PyTuple_Size(args) > 2
		      ? rlv_kv_create(((struct handle *)store)->store, name, &opts, &self->kv)
		      : rlv_kv_open(((struct handle *)store)->store, name, &self->kv);
	handle_leave((struct handle *)store);
	return handle_opened(self, ret);
}

static struct rlv_bytes bytes_of(const Py_buffer *buffer)
{
	return (struct rlv_bytes){ buffer->buf, (size_t)buffer->len };
}

/* put(key, value, expected): expected -1 = whatever is there. Returns the version. */
static PyObject *kv_put(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	Py_buffer key, value;
	uint64_t version = 0;
	long long expected;
	int ret = -1;

	if (!PyArg_ParseTuple(args, "y*y*L", &key, &value, &expected))
		return NULL;
	if (handle_enter(self) == 0) {
		ret = expected < 0
			      ? rlv_kv_put(self->kv, bytes_of(&key), bytes_of(&value), &version)
			      : rlv_kv_put_if(self->kv, bytes_of(&key), bytes_of(&value),
					      (uint64_t)expected, &version);
		handle_leave(self);
		if (ret)
			error_raise(ret);
	}
	PyBuffer_Release(&key);
	PyBuffer_Release(&value);
	return ret ? NULL : PyLong_FromUnsignedLongLong(version);
}

/* What a get returned: (value, version), None for -ENODATA. Leaves the handle, in which the value lies: no
   object is made while it is locked. */
static PyObject *kv_got(struct handle *self, int ret, const struct rlv_kv_value *value,
			Py_buffer *key)
{
	PyObject *result = NULL;
	void *copy = NULL;

	if (ret == 0) {
		copy = malloc(value->len + 1);
		ret = copy ? 0 : -ENOMEM;
	}
	if (ret == 0 && value->len)
		memcpy(copy, value->ptr, value->len);
	handle_leave(self);
	PyBuffer_Release(key);
	if (ret == 0)
		result = Py_BuildValue("y#K", copy, (Py_ssize_t)value->len,
				       (unsigned long long)value->version);
	else if (ret == -ENODATA)
		result = Py_NewRef(Py_None);
	else
		error_raise(ret);
	free(copy);
	return result;
}

/* get(key, than): (value, version); None if the newest version is not above `than`. */
static PyObject *kv_get(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	unsigned long long than;
	Py_buffer key;
	int ret;

	if (!PyArg_ParseTuple(args, "y*K", &key, &than))
		return NULL;
	if (handle_enter(self)) {
		PyBuffer_Release(&key);
		return NULL;
	}
	ret = than ? rlv_kv_get_newer(self->kv, bytes_of(&key), than, &value)
		   : rlv_kv_get(self->kv, bytes_of(&key), &value);
	return kv_got(self, ret, &value, &key);
}

/* get_range(key, offset, length): (bytes, version). */
static PyObject *kv_get_range(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	unsigned long long offset, length;
	Py_buffer key;
	int ret;

	if (!PyArg_ParseTuple(args, "y*KK", &key, &offset, &length))
		return NULL;
	if (handle_enter(self)) {
		PyBuffer_Release(&key);
		return NULL;
	}
	ret = rlv_kv_get_range(self->kv, bytes_of(&key), offset, length, &value);
	return kv_got(self, ret, &value, &key);
}

/* has(key): whether it has a value, which is not copied. */
static PyObject *kv_has(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	Py_buffer key;
	char one;
	int ret;

	if (!PyArg_ParseTuple(args, "y*", &key))
		return NULL;
	if (handle_enter(self)) {
		PyBuffer_Release(&key);
		return NULL;
	}
	value.ptr = &one;
	value.room = sizeof(one);
	ret = rlv_kv_get(self->kv, bytes_of(&key), &value);
	handle_leave(self);
	PyBuffer_Release(&key);
	if (ret && ret != -ERANGE && ret != -ENOENT)
		return error_raise(ret);
	return PyBool_FromLong(ret != -ENOENT);
}

/* -------- many keys -------- */

/* Room for a value of get_many; a longer one is read alone. */
#define MANY_ROOM 4096u

struct many {
	Py_ssize_t n;
	Py_buffer *keys;
	struct rlv_kv_item *items;
	char *memory;
};

static void many_free(struct many *many)
{
	for (Py_ssize_t i = 0; i < many->n; i++) {
		if (many->items[i].room == 0 || many->items[i].ptr != many->memory + i * MANY_ROOM)
			free(many->items[i].ptr);
		PyBuffer_Release(&many->keys[i]);
	}
	free(many->keys);
	free(many->items);
	free(many->memory);
}

/* Takes the buffers of a list as keys, with so much memory for the value of each. -1 with an exception;
   then *many holds what many_free frees. */
static int many_take(struct many *many, PyObject *list, size_t room)
{
	Py_ssize_t n = PyList_Size(list);

	*many = (struct many){ .keys = calloc((size_t)n + 1, sizeof(*many->keys)),
			       .items = calloc((size_t)n + 1, sizeof(*many->items)),
			       .memory = malloc((size_t)n * room + 1) };
	if (!many->keys || !many->items || !many->memory) {
		PyErr_NoMemory();
		return -1;
	}
	for (; many->n < n; many->n++) {
		PyObject *key = PyList_GetItem(list, many->n);
		struct rlv_kv_item *item = &many->items[many->n];

		if (!key || PyObject_GetBuffer(key, &many->keys[many->n], PyBUF_SIMPLE))
			return -1;
		*item = (struct rlv_kv_item)RLV_KV_ITEM_INIT;
		item->key = bytes_of(&many->keys[many->n]);
		item->ptr = room ? many->memory + (size_t)many->n * room : NULL;
		item->room = room;
	}
	return 0;
}

/* Reads a value that had no room. It may have been replaced or deleted meanwhile. */
static int item_read_alone(struct rlv_kv *kv, struct rlv_kv_item *item)
{
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	int ret = rlv_kv_get(kv, item->key, &value);

	if (ret)
		return ret;
	item->ptr = malloc(value.len + 1);
	if (!item->ptr)
		return -ENOMEM;
	memcpy(item->ptr, value.ptr, value.len);
	item->len = value.len;
	item->version = value.version;
	return 0;
}

static int many_read(struct rlv_kv *kv, struct many *many)
{
	int ret = rlv_kv_get_many(kv, many->items, (size_t)many->n);

	for (Py_ssize_t i = 0; ret == 0 && i < many->n; i++) {
		struct rlv_kv_item *item = &many->items[i];

		if (item->status == -ERANGE)
			item->status = item_read_alone(kv, item);
		ret = item->status == -ENOENT ? 0 : item->status;
	}
	return ret;
}

/* get_many(keys): a list of (value, version), or None for a key without a value. */
static PyObject *kv_get_many(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	PyObject *list, *result = NULL;
	struct many many;
	int ret;

	if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list))
		return NULL;
	if (many_take(&many, list, MANY_ROOM) || handle_enter(self))
		goto out;
	ret = many_read(self->kv, &many);
	handle_leave(self);
	result = ret ? error_raise(ret) : PyList_New(many.n);
	for (Py_ssize_t i = 0; result && i < many.n; i++) {
		const struct rlv_kv_item *item = &many.items[i];
		PyObject *one = item->status
					? Py_NewRef(Py_None)
					: Py_BuildValue("y#K", item->ptr, (Py_ssize_t)item->len,
							(unsigned long long)item->version);

		if (!one || PyList_SetItem(result, i, one))
			Py_CLEAR(result);
	}
out:
	many_free(&many);
	return result;
}

/* put_many(keys, values): a list of versions. The first error of a key is raised when all were tried. */
static PyObject *kv_put_many(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	PyObject *keys, *list, *result = NULL;
	struct many many, values;
	int ret;

	if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &keys, &PyList_Type, &list))
		return NULL;
	if (many_take(&many, keys, 0)) {
		many_free(&many);
		return NULL;
	}
	if (many_take(&values, list, 0) || values.n != many.n || handle_enter(self)) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ValueError, "put_many: as many values as keys");
		goto out;
	}
	for (Py_ssize_t i = 0; i < many.n; i++) {
		many.items[i].ptr = values.keys[i].buf;
		many.items[i].len = (uint64_t)values.keys[i].len;
	}
	ret = rlv_kv_put_many(self->kv, many.items, (size_t)many.n);
	for (Py_ssize_t i = 0; ret == 0 && i < many.n; i++)
		ret = many.items[i].status;
	handle_leave(self);
	for (Py_ssize_t i = 0; i < many.n; i++)
		many.items[i].ptr = NULL; /* not ours to free */
	result = ret ? error_raise(ret) : PyList_New(many.n);
	for (Py_ssize_t i = 0; result && i < many.n; i++) {
		PyObject *version = PyLong_FromUnsignedLongLong(many.items[i].version);

		if (!version || PyList_SetItem(result, i, version))
			Py_CLEAR(result);
	}
out:
	many_free(&values);
	many_free(&many);
	return result;
}

/* delete(key): the version of the deletion. */
static PyObject *kv_delete(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	uint64_t version = 0;
	Py_buffer key;
	int ret = -1;

	if (!PyArg_ParseTuple(args, "y*", &key))
		return NULL;
	if (handle_enter(self) == 0) {
		ret = rlv_kv_delete(self->kv, bytes_of(&key), &version);
		handle_leave(self);
		if (ret)
			error_raise(ret);
	}
	PyBuffer_Release(&key);
	return ret ? NULL : PyLong_FromUnsignedLongLong(version);
}

/* watch(key, than, ns): the newest version, or 0 when the time is over. */
static PyObject *kv_watch(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	unsigned long long than;
	long long timeout_ns;
	uint64_t version = 0;
	Py_buffer key;
	int ret = -1;

	if (!PyArg_ParseTuple(args, "y*KL", &key, &than, &timeout_ns))
		return NULL;
	if (handle_enter(self) == 0) {
		ret = rlv_kv_watch(self->kv, bytes_of(&key), than, timeout_ns, &version);
		handle_leave(self);
		ret = ret == -ETIMEDOUT ? 0 : ret;
		if (ret)
			error_raise(ret);
	}
	PyBuffer_Release(&key);
	return ret ? NULL : PyLong_FromUnsignedLongLong(version);
}

/* next(part, bucket): (key, part, bucket) to go on with, or None at the end. */
static PyObject *kv_next(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	struct rlv_kv_walk walk = RLV_KV_WALK_INIT;
	char key[RLV_KV_KEY_BYTES];
	int ret;

	if (!PyArg_ParseTuple(args, "II", &walk.part, &walk.bucket) || handle_enter(self))
		return NULL;
	ret = rlv_kv_next(self->kv, &walk);
	if (ret == 0)
		memcpy(key, walk.key, walk.key_len);
	handle_leave(self);
	if (ret == -ENODATA)
		return Py_NewRef(Py_None);
	return ret ? error_raise(ret)
		   : Py_BuildValue("y#II", key, (Py_ssize_t)walk.key_len, walk.part, walk.bucket);
}

static PyObject *kv_info(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *self = (struct handle *)object;
	struct rlv_kv_info info = RLV_KV_INFO_INIT;
	int ret;

	if (handle_enter(self))
		return NULL;
	ret = rlv_kv_info(self->kv, &info);
	handle_leave(self);
	if (ret)
		return error_raise(ret);
	return Py_BuildValue("{s:s,s:I,s:I,s:I,s:I,s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}",
			     "name", info.name, "mode", info.mode, "parts", info.parts, "parts_up",
			     info.parts_up, "copies", info.copies, "copies_wanted",
			     info.copies_wanted, "keys", info.keys, "keys_room", info.keys_room,
			     "extent_bytes", info.extent_bytes, "extents_free", info.extents_free,
			     "extents_owned", info.extents_owned, "extents_left", info.extents_left,
			     "conflicts", info.conflicts, "round_trips", info.round_trips,
			     "server_calls", info.server_calls, "stripe_bytes", info.stripe_bytes);
}

static PyObject *kv_verify(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *self = (struct handle *)object;
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;
	int ret;

	if (handle_enter(self))
		return NULL;
	ret = rlv_kv_verify(self->kv, &report);
	handle_leave(self);
	if (ret)
		return error_raise(ret);
	return Py_BuildValue("{s:K,s:K,s:K,s:K,s:s}", "problems", report.problems, "keys",
			     report.keys, "deleted", report.deleted, "live_bytes",
			     report.live_bytes, "first_problem", report.first_problem);
}

static PyObject *kv_release(PyObject *object, PyObject *Py_UNUSED(unused))
{
	struct handle *self = (struct handle *)object;
	int ret;

	if (handle_enter(self))
		return NULL;
	ret = rlv_kv_release(self->kv);
	handle_leave(self);
	return ret ? error_raise(ret) : Py_NewRef(Py_None);
}

/* repair(bytes): how many buckets are left. */
static PyObject *kv_repair(PyObject *object, PyObject *args)
{
	struct handle *self = (struct handle *)object;
	unsigned long long bytes;
	uint64_t left = 0;
	int ret;

	if (!PyArg_ParseTuple(args, "K", &bytes) || handle_enter(self))
		return NULL;
	ret = rlv_kv_repair(self->kv, bytes, &left);
	handle_leave(self);
	return ret ? error_raise(ret) : PyLong_FromUnsignedLongLong(left);
}

static PyMethodDef methods[] = {
	{ "close", handle_close, METH_NOARGS, NULL },
	{ "release", kv_release, METH_NOARGS, NULL },
	{ "repair", kv_repair, METH_VARARGS, NULL },
	{ "put", kv_put, METH_VARARGS, NULL },
	{ "get", kv_get, METH_VARARGS, NULL },
	{ "get_range", kv_get_range, METH_VARARGS, NULL },
	{ "get_many", kv_get_many, METH_VARARGS, NULL },
	{ "put_many", kv_put_many, METH_VARARGS, NULL },
	{ "has", kv_has, METH_VARARGS, NULL },
	{ "delete", kv_delete, METH_VARARGS, NULL },
	{ "watch", kv_watch, METH_VARARGS, NULL },
	{ "next", kv_next, METH_VARARGS, NULL },
	{ "info", kv_info, METH_NOARGS, NULL },
	{ "verify", kv_verify, METH_NOARGS, NULL },
	{ 0 },
};

HANDLE_SPEC(kv_spec, "Kv", kv_new);

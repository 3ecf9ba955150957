/*
 * Reading items without drawing them: a scan of a sampler, and items by their keys. Python's part is
 * relive._scan.
 */
#include "python/src/column.h"
#include "python/src/sampler/sampler.h"

#include <relive/scan.h>

#include <errno.h>

/* A call that waits for shards that are down. */
struct reading {
	struct sampler *s;
	enum { SCAN_START, SCAN_NEXT, GATHER } call;
	bool partial;
	const uint64_t *keys;
	uint32_t n;
	struct slot *slot; /* out */
};

static int reading_try(struct reading *reading, int64_t timeout_ns)
{
	struct rlv_sampler *sampler = reading->s->h.sampler;
	const struct rlv_batch *batch;
	int ret;

	sampler_give_back(reading->s);
	if (reading->call == SCAN_START)
		return rlv_sampler_scan_start(sampler, reading->partial, timeout_ns);
	ret = reading->call == GATHER
		      ? rlv_sampler_gather(sampler, reading->keys, reading->n, timeout_ns, &batch)
		      : rlv_sampler_scan(sampler, reading->n, timeout_ns, &batch);
	if (ret == 0)
		reading->slot = sampler_slot(reading->s, batch);
	return ret;
}

/* Returns the batch, or None where there is none. */
static PyObject *reading_run(struct reading *reading, PyObject *timeout)
{
	struct sampler *s = reading->s;
	struct wait wait;
	int again, ret;

	if (wait_start(&wait, timeout))
		return NULL;
	do {
		if (handle_enter(&s->h))
			return NULL;
		ret = reading_try(reading, wait.left_ns);
		handle_leave(&s->h);
		if (ret == 0 && reading->slot)
			return batch_make(reading->slot, &s->layout);
		if (ret == 0 || ret == -ENODATA) /* started, or at its end */
			Py_RETURN_NONE;
		again = wait_again(&wait, ret == -EHOSTDOWN ? -EAGAIN : ret);
	} while (again > 0);
	return again < 0 ? NULL : error_raise(ret);
}

PyObject *sampler_scan_start(PyObject *object, PyObject *args)
{
	struct reading reading = { .s = (struct sampler *)object, .call = SCAN_START };
	PyObject *timeout;
	int partial;

	if (!PyArg_ParseTuple(args, "pO", &partial, &timeout))
		return NULL;
	reading.partial = partial;
	return reading_run(&reading, timeout);
}

PyObject *sampler_scan_next(PyObject *object, PyObject *timeout)
{
	struct sampler *s = (struct sampler *)object;
	struct reading reading = { .s = s, .call = SCAN_NEXT, .n = s->batch_size };

	return reading_run(&reading, timeout);
}

PyObject *sampler_gather(PyObject *object, PyObject *args)
{
	static const struct column key = { .name = "keys", .dtype = RLV_U64, .bytes = 8 };
	struct reading reading = { .s = (struct sampler *)object, .call = GATHER };
	struct demand demand = { .batched = true, .keys = true };
	struct source source = { 0 };
	PyObject *keys, *timeout, *batch = NULL;

	if (!PyArg_ParseTuple(args, "OO", &keys, &timeout))
		return NULL;
	if (PyObject_Size(keys) < 0)
		return NULL;
	demand.n = reading.n = (uint32_t)Py_MIN(PyObject_Size(keys), INT32_MAX);
	if (column_bind(&key, keys, &demand, &source) == 0) {
		reading.keys = source.data;
		batch = reading_run(&reading, timeout);
	}
	source_release(&source);
	return batch;
}

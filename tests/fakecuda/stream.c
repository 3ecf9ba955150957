/*
 * stream.c - threads that empty queues as the clock allows.
 */
#include "tests/fakecuda/stream.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLL_NS 50000 /* while something outside this process is waited for */

struct cu_stream {
	pthread_t thread;
	struct op_list queue, record;
	bool recording;
	uint64_t ends_at; /* of the last op */
	bool ending;
	struct cu_stream *next;
};

static struct {
	struct cu_stream *streams, *fallback;
	uint64_t held_now, op_ns; /* op_ns 0: the clock is the system's */
	bool watch;
} all;

/* Nobody may wait for it after fork(): streams are threads of the parent. */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct op *op_list_add(struct op_list *list, const struct op *op)
{
	struct op *copy = malloc(sizeof(*copy));

	if (!copy)
		return NULL;
	*copy = *op;
	copy->next = NULL;
	if (list->first)
		list->last->next = copy;
	else
		list->first = copy;
	list->last = copy;
	return copy;
}

static void op_list_pop(struct op_list *list)
{
	struct op *op = list->first;

	list->first = op->next;
	free(op);
}

void op_list_free(struct op_list *list)
{
	while (list->first)
		op_list_pop(list);
}

static uint64_t system_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t now_ns(void)
{
	return all.op_ns ? all.held_now : system_ns();
}

static void wait_change(bool poll)
{
	uint64_t until = system_ns() + POLL_NS;
	struct timespec at = { (time_t)(until / 1000000000u), (long)(until % 1000000000u) };

	if (poll)
		(void)pthread_cond_timedwait(&changed, &fake_mutex, &at);
	else
		(void)pthread_cond_wait(&changed, &fake_mutex);
}

static bool overlap(cu_u64 a, size_t a_bytes, cu_u64 b, size_t b_bytes)
{
	return a && b && a < b + b_bytes && b < a + a_bytes;
}

/* What its rows say may still be on its way: where it begins to read and to write is known. */
static bool gather_begins(const struct op *op, cu_u64 at, size_t bytes)
{
	const struct gather_work *work = &op->work;

	return op->kind == OP_GATHER && (overlap((cu_u64)(uintptr_t)work->from, 1, at, bytes) ||
					 overlap((cu_u64)(uintptr_t)work->rows, 1, at, bytes) ||
					 overlap((cu_u64)(uintptr_t)work->to, 1, at, bytes));
}

bool fake_busy(cu_u64 at, size_t bytes, const struct cu_stream *but)
{
	for (const struct cu_stream *stream = all.streams; stream; stream = stream->next) {
		for (const struct op *op = stream->queue.first; op && stream != but;
		     op = op->next) {
			if (overlap(op->to, op->bytes, at, bytes) ||
			    overlap(op->from, op->bytes, at, bytes) || gather_begins(op, at, bytes))
				return true;
		}
	}
	return false;
}

static bool blocked(const struct op *op)
{
	if (op->kind == OP_WAIT_EVENT)
		return atomic_load(&op->event->done) < op->value;
	if (op->kind == OP_WAIT_VALUE)
		return atomic_load((_Atomic uint64_t *)(uintptr_t)op->to) < op->value;
	return false;
}

static bool runnable(const struct cu_stream *stream)
{
	return stream->queue.first && stream->queue.first->ends_at <= now_ns() &&
	       !blocked(stream->queue.first);
}

static bool gather_allowed(const struct gather_work *work)
{
	if (!fake_device_range((cu_u64)(uintptr_t)work->rows, work->n * sizeof(*work->rows)))
		return false;
	for (gather_u64 i = 0; i < work->n; i++) {
		if (!fake_device_range((cu_u64)(uintptr_t)work->to + work->rows[i].to,
				       work->bytes) ||
		    !fake_device_range((cu_u64)(uintptr_t)work->from + work->rows[i].from,
				       work->bytes))
			return false;
	}
	return true;
}

static bool op_allowed(const struct op *op)
{
	switch (op->kind) {
	case OP_COPY:
		return fake_any_range(op->to, op->bytes) && fake_any_range(op->from, op->bytes);
	case OP_FILL:
	case OP_WRITE:
		return fake_device_range(op->to, op->bytes);
	case OP_GATHER:
		return gather_allowed(&op->work);
	case OP_WEIGHTS:
		return fake_device_range(op->to, op->bytes) &&
		       fake_device_range((cu_u64)(uintptr_t)op->weights.probability,
					 op->weights.n * sizeof(double));
	default:
		return true;
	}
}

static void op_run(const struct op *op)
{
	void *to = (void *)(uintptr_t)op->to;

	if (!op_allowed(op)) {
		fake_lose(CU_ILLEGAL_ADDRESS);
		return;
	}
	if (op->kind == OP_COPY)
		memcpy(to, (const void *)(uintptr_t)op->from, op->bytes);
	else if (op->kind == OP_FILL)
		memset(to, (int)op->value, op->bytes);
	else if (op->kind == OP_WRITE)
		atomic_store((_Atomic uint64_t *)to, op->value);
	else if (op->kind == OP_RECORD)
		atomic_store(&op->event->done, op->value);
	else if (op->kind == OP_GATHER)
		gather_lanes(op->work, 0, 1);
	else if (op->kind == OP_WEIGHTS)
		weights_lanes(op->weights, 0, 1);
}

static void *stream_main(void *ctx)
{
	struct cu_stream *stream = ctx;

	fake_lock();
	while (stream->queue.first || !stream->ending) {
		struct op *op = stream->queue.first;

		if (!runnable(stream)) {
			wait_change(op && (!all.op_ns || blocked(op)));
			continue;
		}
		op_run(op);
		op_list_pop(&stream->queue);
		(void)pthread_cond_broadcast(&changed);
	}
	fake_unlock();
	return NULL;
}

static struct cu_stream *stream_new(void)
{
	struct cu_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	if (pthread_create(&stream->thread, NULL, stream_main, stream)) {
		free(stream);
		return NULL;
	}
	stream->next = all.streams;
	all.streams = stream;
	return stream;
}

/* The stream that NULL stands for is made when it is used. NULL: no memory, or none of ours. */
static struct cu_stream *stream_named(struct cu_stream *wanted)
{
	bool is_default = (uintptr_t)wanted <= CU_STREAM_PER_THREAD;

	if (is_default && !all.fallback)
		all.fallback = stream_new();
	if (is_default)
		return all.fallback;
	for (struct cu_stream *stream = all.streams; stream; stream = stream->next) {
		if (stream == wanted)
			return stream;
	}
	return NULL;
}

static unsigned stream_queue(struct cu_stream *stream, const struct op *op)
{
	uint64_t begins = now_ns();
	struct op *copy;

	if (stream->queue.first && stream->ends_at > begins)
		begins = stream->ends_at;
	copy = op_list_add(&stream->queue, op);
	if (!copy)
		return CU_OUT_OF_MEMORY;
	copy->ends_at = begins + all.op_ns + op->ns;
	if (all.watch &&
	    (fake_busy(op->to, op->bytes, stream) || fake_busy(op->from, op->bytes, stream)))
		fake_violation("work over memory that another stream's work still uses");
	stream->ends_at = copy->ends_at;
	(void)pthread_cond_broadcast(&changed);
	return CU_OK;
}

unsigned stream_submit(struct cu_stream *wanted, const struct op *op)
{
	unsigned result = CU_INVALID_HANDLE;
	struct cu_stream *stream;

	fake_lock();
	stream = stream_named(wanted);
	if (stream && !stream->recording)
		result = stream_queue(stream, op);
	else if (stream && op->event) /* this driver records none */
		result = CU_NOT_SUPPORTED;
	else if (stream)
		result = op_list_add(&stream->record, op) ? CU_OK : CU_OUT_OF_MEMORY;
	fake_unlock();
	return result;
}

unsigned stream_record(struct cu_stream *wanted)
{
	struct cu_stream *stream;
	unsigned result = CU_INVALID_HANDLE;

	fake_lock();
	stream = wanted ? stream_named(wanted) : NULL; /* the default one records never */
	if (stream && !stream->recording) {
		stream->recording = true;
		result = CU_OK;
	}
	fake_unlock();
	return result;
}

unsigned stream_recorded(struct cu_stream *wanted, struct op_list *ops_out)
{
	struct cu_stream *stream;
	unsigned result = CU_INVALID_HANDLE;

	fake_lock();
	stream = wanted ? stream_named(wanted) : NULL;
	if (stream && stream->recording) {
		*ops_out = stream->record;
		stream->record = (struct op_list){ 0 };
		stream->recording = false;
		result = CU_OK;
	}
	fake_unlock();
	return result;
}

static bool any_runnable(void)
{
	for (const struct cu_stream *stream = all.streams; stream; stream = stream->next) {
		if (runnable(stream))
			return true;
	}
	return false;
}

void fake_advance(uint64_t ns)
{
	all.held_now += ns;
	(void)pthread_cond_broadcast(&changed);
	while (any_runnable())
		wait_change(false);
}

void fake_hold(uint64_t op_ns)
{
	all.held_now = system_ns();
	all.op_ns = op_ns;
	(void)pthread_cond_broadcast(&changed);
}

void fake_watch_reuse(bool on)
{
	all.watch = on;
}

/* With the lock held: until the stream is empty. A clock that stands goes on to the next end. */
static void stream_drain(struct cu_stream *stream)
{
	while (stream->queue.first) {
		uint64_t next = UINT64_MAX;

		for (const struct cu_stream *one = all.streams; one; one = one->next) {
			if (one->queue.first && !blocked(one->queue.first) &&
			    one->queue.first->ends_at < next)
				next = one->queue.first->ends_at;
		}
		if (all.op_ns && next != UINT64_MAX && next > all.held_now)
			fake_advance(next - all.held_now);
		else
			wait_change(true);
	}
}

unsigned cuStreamCreateWithPriority(struct cu_stream **stream_out, unsigned flags, int priority)
{
	struct cu_stream *stream;

	FAKE_ENTER(stream_create);
	if (flags & ~CU_STREAM_NON_BLOCKING_FLAG || priority > 0)
		return CU_INVALID_VALUE;
	fake_lock();
	stream = stream_new();
	fake_unlock();
	if (!stream)
		return CU_OUT_OF_MEMORY;
	*stream_out = stream;
	return CU_OK;
}

unsigned cuStreamDestroy(struct cu_stream *wanted)
{
	struct cu_stream *stream = NULL;

	FAKE_ENTER(stream_destroy);
	fake_lock();
	for (struct cu_stream **at = &all.streams; *at && wanted; at = &(*at)->next) {
		if (*at == wanted) {
			stream = wanted;
			if (stream->recording)
				fake_violation("a stream is destroyed while it records");
			op_list_free(&stream->record);
			stream_drain(stream);
			stream->ending = true;
			*at = stream->next;
			(void)pthread_cond_broadcast(&changed);
			break;
		}
	}
	fake_unlock();
	if (!stream)
		return CU_INVALID_HANDLE;
	(void)pthread_join(stream->thread, NULL);
	free(stream);
	return CU_OK;
}

unsigned cuStreamSynchronize(struct cu_stream *wanted)
{
	struct cu_stream *stream;
	unsigned result = CU_INVALID_HANDLE;

	FAKE_ENTER(stream_wait);
	fake_lock();
	stream = stream_named(wanted);
	if (stream) {
		stream_drain(stream);
		result = fake_lost();
	}
	fake_unlock();
	return result;
}

unsigned cuStreamQuery(struct cu_stream *wanted)
{
	struct cu_stream *stream;
	bool empty;

	FAKE_ENTER(stream_query);
	fake_lock();
	stream = stream_named(wanted);
	empty = stream && !stream->queue.first;
	fake_unlock();
	return !stream ? CU_INVALID_HANDLE : empty ? CU_OK : CU_NOT_READY;
}

unsigned cuCtxSynchronize(void)
{
	unsigned result;

	FAKE_ENTER(context_wait);
	fake_lock();
	for (struct cu_stream *stream = all.streams; stream; stream = stream->next)
		stream_drain(stream);
	result = fake_lost();
	fake_unlock();
	return result;
}

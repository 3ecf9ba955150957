/*
 * backend_host_streams.c - streams of the host backend, on a clock that the caller moves.
 */
#include "device/host/backend_host_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "base/os/clock.h"

enum host_op_kind { HOST_WORK, HOST_COPY, HOST_FILL, HOST_MARK };

struct host_op {
	struct host_op *next;
	enum host_op_kind kind;
	uint64_t end_ns;
	void (*fn)(void *ctx);
	void *ctx;
	struct backend_copy copy; /* a fill has its value in src, a mark its number in dst */
};

int host_stream_open(struct backend *backend, void *native, uint32_t *stream_out)
{
	struct backend_host *host = host_of(backend);
	uint32_t i = 0;
	int ret = host_enter(host);

	if (ret == 0 && native)
		ret = error_set(-EINVAL, "the host device has no streams of its own");
	if (ret)
		return host_leave(host, ret);
	while (i < BACKEND_STREAMS && host->streams[i].open)
		i++;
	if (i == BACKEND_STREAMS)
		return host_leave(host, error_set(-ENOSPC, "%d streams are open", BACKEND_STREAMS));
	/* Numbers of marks go on: a place may be opened again. */
	host->streams[i].open = true;
	host->streams[i].end_ns = host->now_ns;
	host->streams[i].tail = &host->streams[i].first;
	*stream_out = i;
	return host_leave(host, 0);
}

static int host_stream(struct backend_host *host, uint32_t stream)
{
	if (stream >= BACKEND_STREAMS || !host->streams[stream].open)
		return error_set(-EINVAL, "stream %" PRIu32 " is not open", stream);
	return 0;
}

int host_stream_close(struct backend *backend, uint32_t stream)
{
	struct backend_host *host = host_of(backend);
	int ret = host_enter(host);

	if (ret == 0)
		ret = host_stream(host, stream);
	if (ret == 0 && host->streams[stream].first)
		ret = error_set(-EBUSY, "stream %" PRIu32 " has work", stream);
	if (ret == 0)
		host->streams[stream].open = false;
	return host_leave(host, ret);
}

/* Queues a copy of op, which takes ns. */
static int host_queue(struct backend_host *host, uint32_t stream, const struct host_op *op,
		      uint64_t ns) LOCK_REQUIRES(host_role)
{
	struct host_stream *s = &host->streams[stream];
	struct host_op *made;
	int ret = host_stream(host, stream);

	if (ret)
		return ret;
	made = mem_alloc(sizeof(*made));
	if (!made)
		return error_set(-ENOMEM, "stream %" PRIu32 ": no memory", stream);
	*made = *op;
	made->next = NULL;
	s->end_ns = max_u64(s->end_ns, host->now_ns) + ns;
	made->end_ns = s->end_ns;
	*s->tail = made;
	s->tail = &made->next;
	return 0;
}

static uint64_t host_copy_ns(const struct backend_host *host, uint64_t bytes)
{
	return host->opts.bytes_per_us ? bytes * CLOCK_NS_PER_US / host->opts.bytes_per_us : 0;
}

int backend_host_work(struct backend *backend, uint32_t stream, uint64_t ns, void (*fn)(void *ctx),
		      void *ctx)
{
	struct backend_host *host = host_of(backend);
	int ret = host_enter(host);

	if (ret == 0)
		ret = host_queue(host, stream, &(struct host_op){ .fn = fn, .ctx = ctx }, ns);
	return host_leave(host, ret);
}

int host_stream_mark(struct backend *backend, uint32_t stream, uint64_t seq)
{
	struct backend_host *host = host_of(backend);
	const struct host_op op = { .kind = HOST_MARK, .copy.dst = seq };
	int ret = host_enter(host);

	if (ret == 0)
		ret = host_stream(host, stream);
	if (ret == 0 && seq <= host->streams[stream].queued)
		ret = error_set(-EINVAL, "mark %" PRIu64 " of stream %" PRIu32 " does not rise",
				seq, stream);
	if (ret == 0)
		ret = host_queue(host, stream, &op, 0);
	if (ret == 0)
		host->streams[stream].queued = seq;
	return host_leave(host, ret);
}

int host_stream_progress(struct backend *backend, uint32_t stream, uint64_t *seq_out)
{
	struct backend_host *host = host_of(backend);

	if (stream >= BACKEND_STREAMS)
		return error_set(-EINVAL, "no stream %" PRIu32, stream);
	/* Q2 pairs with Q1: work before the mark is seen by whoever sees the mark */
	*seq_out = atomic_load_explicit(&host->progress->reached[stream], memory_order_acquire);
	return 0;
}

int host_progress_export(struct backend *backend, int *fd_out)
{
	struct backend_host *host = host_of(backend);
	int ret = host_enter(host);

	if (ret == 0)
		ret = host_copy_fd(host->progress_fd, "progress", fd_out);
	return host_leave(host, ret);
}

int host_copy_batch(struct backend *backend, uint32_t stream, const struct backend_copy *copies,
		    size_t n)
{
	struct backend_host *host = host_of(backend);
	int ret = host_enter(host);

	for (size_t i = 0; ret == 0 && i < n; i++) {
		const struct host_op op = { .kind = HOST_COPY, .copy = copies[i] };

		ret = host_queue(host, stream, &op, host_copy_ns(host, copies[i].bytes));
	}
	return host_leave(host, ret);
}

int host_fill(struct backend *backend, uint32_t stream, uint64_t va, uint64_t bytes, uint8_t value)
{
	struct backend_host *host = host_of(backend);
	const struct host_op op = { .kind = HOST_FILL, .copy = { va, value, bytes } };
	int ret = host_enter(host);

	if (ret == 0)
		ret = host_queue(host, stream, &op, host_copy_ns(host, bytes));
	return host_leave(host, ret);
}

uint64_t host_now_ns(struct backend *backend)
{
	struct backend_host *host = host_of(backend);
	uint64_t now;

	lock_acquire(&host->lock, &host_role);
	now = host->now_ns;
	lock_release(&host->lock, &host_role);
	return now;
}

/* Takes the operation that ends first, not after end_ns; its stream goes to *stream_out. */
static struct host_op *host_pop(struct backend_host *host, uint64_t end_ns, uint32_t *stream_out)
	LOCK_REQUIRES(host_role)
{
	struct host_stream *found = NULL;
	struct host_op *op;

	for (uint32_t i = 0; i < BACKEND_STREAMS; i++) {
		struct host_stream *s = &host->streams[i];

		if (s->first && s->first->end_ns <= end_ns &&
		    (!found || s->first->end_ns < found->first->end_ns)) {
			found = s;
			*stream_out = i;
		}
	}
	if (!found)
		return NULL;
	op = found->first;
	found->first = op->next;
	if (!found->first)
		found->tail = &found->first;
	host->now_ns = max_u64(host->now_ns, op->end_ns);
	return op;
}

static void host_run(struct backend_host *host, uint32_t stream, const struct host_op *op)
{
	void *dst = (void *)(uintptr_t)op->copy.dst;

	switch (op->kind) {
	case HOST_WORK:
		if (op->fn)
			op->fn(op->ctx);
		break;
	case HOST_COPY:
		memcpy(dst, (const void *)(uintptr_t)op->copy.src, op->copy.bytes);
		break;
	case HOST_FILL:
		memset(dst, (int)op->copy.src, op->copy.bytes);
		break;
	case HOST_MARK:
		/* Q1 pairs with Q2: the stream's work before it is done */
		atomic_store_explicit(&host->progress->reached[stream], op->copy.dst,
				      memory_order_release);
		break;
	}
}

static void host_run_until(struct backend_host *host, uint64_t end_ns)
{
	uint32_t stream = 0;

	for (;;) {
		struct host_op *op;

		lock_acquire(&host->lock, &host_role);
		op = host_pop(host, end_ns, &stream);
		if (!op && end_ns != UINT64_MAX)
			host->now_ns = max_u64(host->now_ns, end_ns);
		lock_release(&host->lock, &host_role);
		if (!op)
			return;
		host_run(host, stream, op);
		mem_free(op);
	}
}

void backend_host_advance(struct backend *backend, uint64_t ns)
{
	host_run_until(host_of(backend), host_now_ns(backend) + ns);
}

void host_finish(struct backend_host *host)
{
	host_run_until(host, UINT64_MAX);
}

int host_progress_open(struct backend_host *host)
{
	int ret = host_memfd("relive-progress", sizeof(*host->progress), &host->progress_fd);
	void *ptr;

	if (ret)
		return ret;
	ptr = mmap(NULL, sizeof(*host->progress), PROT_READ | PROT_WRITE, MAP_SHARED,
		   host->progress_fd, 0);
	if (ptr != MAP_FAILED) {
		host->progress = ptr;
		return 0;
	}
	close(host->progress_fd);
	return error_set(-ENOMEM, "host device: cannot map the page of progress: %m");
}

/*
 * flow.c - copies to and from the device, and when it is done with a buffer.
 */
#include "client/landing/state.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <unistd.h>

#include "client/store/backoff.h"

#include "base/log.h"
#include "base/os/clock.h"
#include "device/cuda/backend_cuda.h"

#define PARTS 64  /* of one call of the backend */
#define SPINS 200 /* before a wait sleeps: most copies take as long */

int landing_queue_mark(struct rlv_landing *landing, uint32_t index)
{
	struct landing_stream *stream = &landing->streams[index];
	int ret = landing->backend->ops->stream_mark(landing->backend, stream->number,
						     stream->marked + 1);

	if (ret == 0)
		stream->marked++;
	return ret;
}

int landing_mark_own(struct rlv_landing *landing, struct landing_buffer *buffer)
{
	int ret = landing_queue_mark(landing, 0);

	if (ret == 0) {
		buffer->marks[0] = landing->streams[0].marked;
		buffer->used &= ~1u;
	}
	return ret;
}

int landing_reached(struct rlv_landing *landing, const struct landing_mark *mark)
{
	uint64_t seq = 0;
	int ret = landing->backend->ops->stream_progress(landing->backend, mark->stream, &seq);

	return ret || seq >= mark->seq ? ret : -EAGAIN;
}

int landing_await(struct rlv_landing *landing, const struct landing_mark *mark)
{
	uint64_t deadline = deadline_after(clock_monotonic(), landing->timeout_ns);
	struct backoff backoff = { .first_ns = 10 * CLOCK_NS_PER_US, .doublings = 6 };
	int ret;

	for (uint32_t i = 0; (ret = landing_reached(landing, mark)) == -EAGAIN; i++) {
		if (i < SPINS)
			sched_yield();
		else if (!deadline_expired(clock_monotonic(), deadline))
			backoff_sleep(&backoff, clock_monotonic(), deadline);
		else
			return error_set(-ETIMEDOUT,
					 "landing: the device did not reach mark %" PRIu64
					 " in %" PRId64 " s: raise opts.timeout_ns if its work is "
					 "longer",
					 mark->seq, landing->timeout_ns / CLOCK_NS_PER_S);
	}
	return ret;
}

/* -------- to the device -------- */

static int queue_parts(struct rlv_landing *landing, struct landing_buffer *buffer,
		       const struct landing_part *parts, uint32_t n) LOCK_REQUIRES(landing_role)
{
	struct backend_copy copies[PARTS];
	uint32_t own = landing->streams[0].number;
	int ret = 0;

	buffer->used |= 1; /* also if only some are queued */
	for (uint32_t at = 0; ret == 0 && at < n;) {
		uint32_t some = 0;

		for (; some < PARTS && at < n; some++, at++) {
			uint64_t off = (uint64_t)((const uint8_t *)parts[at].ptr - buffer->host);

			if (off > buffer->bytes || parts[at].bytes > buffer->bytes - off)
				return error_set(-EINVAL, "landing: a part ends behind its buffer");
			copies[some] = (struct backend_copy){ buffer->at + off,
							      (uint64_t)(uintptr_t)parts[at].ptr,
							      parts[at].bytes };
			landing->info.copied_bytes += parts[at].bytes;
		}
		ret = landing->backend->ops->copy_batch(landing->backend, own, copies, some);
	}
	return ret;
}

/* Waits for a copy of the landing's own stream. */
static int await_landed(struct rlv_landing *landing, uint64_t seq)
{
	struct landing_mark mark = { .seq = seq };
	uint64_t began = clock_now_ns(clock_monotonic());
	int ret;

	lock_acquire(&landing->lock, &landing_role);
	mark.stream = landing->streams[0].number;
	lock_release(&landing->lock, &landing_role);
	ret = landing_await(landing, &mark);
	lock_acquire(&landing->lock, &landing_role);
	landing->info.waited_ns += clock_now_ns(clock_monotonic()) - began;
	lock_release(&landing->lock, &landing_role);
	return ret;
}

int landing_land(struct rlv_landing *landing, const struct landing_part *parts, uint32_t n,
		 const struct landing_weights *weights)
{
	struct landing_buffer *buffer;
	uint64_t seq = 0;
	int ret = landing_enter(landing);

	if (ret)
		return ret;
	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, parts[0].ptr);
	ret = buffer ? 0 : -EINVAL;
	if (ret == 0 && landing->backend)
		ret = queue_parts(landing, buffer, parts, n);
	if (ret == 0 && landing->backend && weights)
		ret = landing_queue_weights(landing, buffer, weights);
	if (ret == 0 && landing->backend)
		ret = landing_mark_own(landing, buffer);
	if (ret == 0)
		seq = buffer->marks[0];
	landing->info.batches += ret == 0;
	lock_release(&landing->lock, &landing_role);
	return ret || !seq || landing->unwaited ? ret : await_landed(landing, seq);
}

int rlv_landing_wait(struct rlv_landing *landing, const void *ptr)
{
	const struct landing_buffer *buffer;
	uint64_t seq = 0;
	int ret = landing_enter(landing);

	if (ret)
		return ret;
	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, ptr);
	if (buffer)
		seq = buffer->marks[0];
	lock_release(&landing->lock, &landing_role);
	if (!buffer)
		return -EINVAL;
	return seq ? await_landed(landing, seq) : 0;
}

/* -------- from the device -------- */

int rlv_landing_fetch(struct rlv_landing *landing, const void *ptr, size_t bytes)
{
	struct backend_copy copy = { (uint64_t)(uintptr_t)ptr, 0, bytes };
	struct landing_buffer *buffer;
	uint64_t off, seq = 0;
	int ret = landing_enter(landing);

	if (ret)
		return ret;
	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, ptr);
	off = buffer ? (uint64_t)((const uint8_t *)ptr - buffer->host) : 0;
	if (!buffer || bytes > buffer->bytes - off)
		ret = error_set(-EINVAL, "landing: %zu bytes at %p are in none of its buffers",
				bytes, ptr);
	if (ret == 0 && landing->backend) {
		copy.src = buffer->at + off;
		buffer->used |= 1;
		ret = landing->backend->ops->copy_batch(landing->backend,
							landing->streams[0].number, &copy, 1);
		if (ret == 0)
			ret = landing_mark_own(landing, buffer);
		seq = buffer->marks[0];
	}
	lock_release(&landing->lock, &landing_role);
	return ret || !seq ? ret : await_landed(landing, seq);
}

int landing_stream(struct rlv_landing *landing, void *native, uint32_t *index_out)
{
	void *named = native ? native : CUDA_DEFAULT_STREAM;
	uint32_t n = landing->n_streams;
	int ret;

	for (uint32_t i = 1; i < n; i++) {
		if (landing->streams[i].native == named) {
			*index_out = i;
			return 0;
		}
	}
	if (n == LANDING_STREAMS)
		return error_set(-ENOSPC, "landing: %d streams use its buffers already",
				 LANDING_STREAMS - 1);
	ret = landing->backend->ops->stream_open(landing->backend, named,
						 &landing->streams[n].number);
	if (ret)
		return ret;
	landing->streams[n].native = named;
	landing->n_streams++;
	*index_out = n;
	return 0;
}

int landing_fetch(struct rlv_landing *landing, const struct landing_fetch *fetch,
		  struct landing_mark *mark_out)
{
	const struct backend_copy copy = { (uint64_t)(uintptr_t)fetch->buffer, fetch->address,
					   fetch->bytes };
	struct landing_buffer *buffer;
	uint32_t index = 0;
	int ret = landing_enter(landing);

	if (ret)
		return ret;
	if (!landing->backend)
		return error_set(-ENOTSUP, "landing: its device has no streams");
	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, fetch->buffer);
	ret = buffer ? landing_stream(landing, fetch->native, &index) : -EINVAL;
	if (ret == 0)
		buffer->used |= 1u << index;
	if (ret == 0)
		ret = landing->backend->ops->copy_batch(landing->backend,
							landing->streams[index].number, &copy, 1);
	if (ret == 0)
		ret = landing_queue_mark(landing, index);
	*mark_out = (struct landing_mark){ landing->streams[index].number,
					   landing->streams[index].marked };
	lock_release(&landing->lock, &landing_role);
	return ret;
}

/* -------- whose buffers are used -------- */

int rlv_landing_use(struct rlv_landing *landing, const void *ptr, void *native)
{
	struct landing_buffer *buffer;
	uint32_t index = 0;
	int ret = landing_enter(landing);

	if (ret)
		return ret;
	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, ptr);
	ret = buffer ? 0 : -EINVAL;
	if (ret == 0 && landing->backend)
		ret = landing_stream(landing, native, &index);
	if (ret == 0 && index)
		buffer->used |= 1u << index;
	lock_release(&landing->lock, &landing_role);
	return ret;
}

int landing_mark_uses(struct rlv_landing *landing, struct landing_buffer *buffer)
{
	int ret = 0;

	while (buffer->used && ret == 0) {
		uint32_t index = (uint32_t)__builtin_ctz(buffer->used);

		ret = landing_queue_mark(landing, index);
		if (ret == -ENODEV) { /* all work has ended */
			buffer->used = 0;
			return 0;
		}
		if (ret == 0) {
			buffer->marks[index] = landing->streams[index].marked;
			buffer->used &= buffer->used - 1;
		}
	}
	return ret;
}

int landing_await_uses(struct rlv_landing *landing, struct landing_buffer *buffer)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < landing->n_streams; i++) {
		const struct landing_mark mark = { landing->streams[i].number, buffer->marks[i] };

		if (mark.seq)
			ret = landing_await(landing, &mark);
	}
	return ret;
}

void landing_done(struct rlv_landing *landing, const void *memory)
{
	struct landing_buffer *buffer;

	if (getpid() != landing->pid)
		return;
	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, memory);
	if (buffer && landing_mark_uses(landing, buffer))
		log_warn("landing: %s: it is tried again", error_last());
	lock_release(&landing->lock, &landing_role);
}

bool landing_idle(struct rlv_landing *landing, const void *memory)
{
	struct landing_buffer *buffer;
	bool idle;

	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, memory);
	idle = buffer && landing_mark_uses(landing, buffer) == 0;
	for (uint32_t i = 0; idle && i < landing->n_streams; i++) {
		const struct landing_mark mark = { landing->streams[i].number, buffer->marks[i] };

		idle = !mark.seq || landing_reached(landing, &mark) != -EAGAIN;
	}
	lock_release(&landing->lock, &landing_role);
	return idle;
}

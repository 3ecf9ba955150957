/*
 * events.c - marks of the cuda backend where the device or its driver cannot write them.
 *
 * A stream has a ring of events, each behind a mark: this process asks them, and writes their marks on the page of
 * progress. Readers of the page must not depend on that: this process may be busy or stopped. So each stream of a page
 * that is shared has one event more, behind its last mark, whose handle is on the page. It is asked by
 * cuda_event_ask in the other process: once it is done, all marks are reached that the other knew before it asked.
 */
#include <errno.h>
#include <string.h>

#include "device/cuda/backend_cuda_state.h"

/* Forgets the marks whose events are done. */
int cuda_events_progress(struct backend_cuda *cuda, uint32_t number)
{
	struct cuda_stream *stream = &cuda->streams[number];

	while (stream->n) {
		unsigned result = cuda->calls->event_query(stream->events[stream->first]);

		if (result == CU_NOT_READY)
			return 0;
		if (result != CU_OK)
			return cuda_check(cuda, "cuEventQuery", result);
		/* Q3 pairs with Q4: the stream's work before it is done */
		atomic_store_explicit(&cuda->progress->reached[number], stream->seqs[stream->first],
				      memory_order_release);
		stream->first = (stream->first + 1) % CUDA_MARKS;
		stream->n--;
	}
	return 0;
}

/* Records an event, which is made when it is needed. */
static int event_record(struct backend_cuda *cuda, struct cu_event **event, unsigned flags,
			struct cu_stream *stream)
{
	int err = 0;

	if (!*event)
		err = cuda_check(cuda, "cuEventCreate", cuda->calls->event_create(event, flags));
	return err ? err
		   : cuda_check(cuda, "cuEventRecord", cuda->calls->event_record(*event, stream));
}

/* The event that other processes ask; the page has its handle from the first mark on. */
static int event_share(struct backend_cuda *cuda, uint32_t number)
{
	struct cuda_stream *stream = &cuda->streams[number];
	struct backend_event *event = &cuda->progress->events[number];
	struct cu_ipc_event handle = { { 0 } };
	int err = event_record(cuda, &stream->shared,
			       CU_EVENT_NO_TIMING_FLAG | CU_EVENT_INTERPROCESS_FLAG,
			       stream->native);

	if (err || event->made)
		return err;
	err = cuda_check(cuda, "cuIpcGetEventHandle",
			 cuda->calls->event_export(&handle, stream->shared));
	if (err)
		return err;
	memcpy(event->handle, handle.bytes, sizeof(event->handle));
	event->made = 1; /* readers know of the mark by a message that is sent after it */
	return 0;
}

/* A mark for which the ring has no room is that of the last event, recorded again: it comes later. */
int cuda_events_mark(struct backend_cuda *cuda, uint32_t number, uint64_t seq)
{
	struct cuda_stream *stream = &cuda->streams[number];
	uint32_t n = stream->n < CUDA_MARKS ? stream->n + 1 : CUDA_MARKS;
	uint32_t at = (stream->first + n - 1) % CUDA_MARKS;
	int err = cuda->shares ? event_share(cuda, number) : 0;

	if (!err)
		err = event_record(cuda, &stream->events[at], CU_EVENT_NO_TIMING_FLAG,
				   stream->native);
	if (err)
		return err;
	stream->seqs[at] = seq;
	stream->n = n;
	return 0;
}

void cuda_events_forget(struct backend_cuda *cuda, uint32_t number)
{
	struct cuda_stream *stream = &cuda->streams[number];

	for (uint32_t i = 0; i < CUDA_MARKS; i++) {
		if (stream->events[i])
			(void)cuda->calls->event_destroy(stream->events[i]);
		stream->events[i] = NULL;
	}
	stream->n = 0;
}

/* Shared ones last until here: another process may still ask that of a stream which is closed. */
void cuda_events_close(struct backend_cuda *cuda)
{
	for (uint32_t i = 0; i < BACKEND_STREAMS; i++) {
		cuda->progress->events[i].made = 0;
		if (cuda->streams[i].shared)
			(void)cuda->calls->event_destroy(cuda->streams[i].shared);
	}
}

/* What another process wrote may make any call fail, which says nothing about the device. */
int cuda_event_ask(struct backend *backend, const uint8_t handle[BACKEND_EVENT_BYTES])
{
	struct backend_cuda *cuda = cuda_of(backend);
	const struct cuda_calls *calls = cuda->calls;
	struct cu_event *event = NULL;
	struct cu_ipc_event shared;
	struct cu_context *before;
	int err;

	/* A handle with one flipped bit crashed a driver (docs/gpu.md): where no job needs an event, none is opened. */
	if (!cuda->events)
		return error_set(-ENOTSUP,
				 "event: this device writes marks, so that jobs need none");
	if (!calls->event_import)
		return error_set(-ENOTSUP, "event: the driver has no cuIpcOpenEventHandle");
	memcpy(shared.bytes, handle, sizeof(shared.bytes));
	err = cuda_enter(cuda, &before);
	if (err)
		return err;
	err = cuda_result(calls, "cuIpcOpenEventHandle", calls->event_import(&event, shared));
	if (!err) {
		err = cuda_result(calls, "cuEventQuery", calls->event_query(event));
		(void)calls->event_destroy(event);
	}
	return cuda_leave(cuda, before, err);
}

/*
 * backend_cuda_state.h - what the files of the cuda backend share. Private to them.
 */
#ifndef RLV_DEVICE_CUDA_BACKEND_CUDA_STATE_H
#define RLV_DEVICE_CUDA_BACKEND_CUDA_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "device/backend.h"
#include "device/cuda/calls.h"
#include "device/cuda/gather.h"
#include "device/ranges.h"

#define CUDA_MARKS 32 /* events of a stream that may be outstanding; more share the last one */

struct cuda_extent {
	cu_u64 handle;
	uint64_t bytes; /* 0: the place is free */
	uint32_t mapped;
};

struct cuda_stream {
	struct cu_stream *native; /* NULL: not open */
	bool own;
	uint64_t queued;         /* the last mark */
	struct cu_event *shared; /* behind the last mark, for other processes; stays with the place */
	/* Marks as events: a ring of marks that are not yet reached. */
	struct cu_event *events[CUDA_MARKS];
	uint64_t seqs[CUDA_MARKS];
	uint32_t first, n;
};

struct backend_cuda {
	struct backend base;
	const struct cuda_calls *calls;
	struct backend_info info;
	pid_t pid;
	int device;
	struct cu_context *context;
	bool events, rdma;
	bool shares;               /* events, which the page's readers can ask, too */
	struct cuda_gather gather; /* .module NULL: not loaded yet */
	atomic_bool lost;
	struct cuda_extent *extents;
	size_t n_extents;
	struct ranges reserved, mapped;
	struct cu_graph_exec **graphs; /* NULL: the place is free */
	size_t n_graphs;
	struct cuda_stream streams[BACKEND_STREAMS];
	struct backend_progress *progress;
	int progress_fd;
	cu_u64 progress_at; /* as the device sees it */
};

static inline struct backend_cuda *cuda_of(struct backend *backend)
{
	return (struct backend_cuda *)backend;
}

/*
 * Makes the context this thread's; *before_out is for cuda_leave. -ECHILD after a fork, -ENODEV when the
 * device is lost.
 */
RLV_MUST_CHECK int cuda_enter(struct backend_cuda *cuda, struct cu_context **before_out);
/* Puts back the thread's context; returns the error. */
RLV_MUST_CHECK int cuda_leave(struct backend_cuda *cuda, struct cu_context *before, int err);
/* cuda_result(), which also remembers that the device is lost. */
RLV_MUST_CHECK int cuda_check(struct backend_cuda *cuda, const char *call, unsigned result);

/* events.c: marks where the device cannot write them. */
RLV_MUST_CHECK int cuda_events_mark(struct backend_cuda *cuda, uint32_t stream, uint64_t seq);
RLV_MUST_CHECK int cuda_events_progress(struct backend_cuda *cuda, uint32_t stream);
void cuda_events_forget(struct backend_cuda *cuda, uint32_t stream); /* none is outstanding */
void cuda_events_close(struct backend_cuda *cuda);
int cuda_event_ask(struct backend *backend, const uint8_t handle[BACKEND_EVENT_BYTES]);

/* streams.c: the operations on streams, and how they begin and end. */
RLV_MUST_CHECK int cuda_streams_open(struct backend_cuda *cuda, int page_fd);
void cuda_streams_close(struct backend_cuda *cuda); /* waits for their work */
/* The open stream of that number, with the context entered; NULL: *err_out says why. */
struct cuda_stream *cuda_stream_enter(struct backend_cuda *cuda, uint32_t stream,
				      struct cu_context **before_out, int *err_out);
int cuda_stream_open(struct backend *backend, void *native, uint32_t *stream_out);
int cuda_stream_close(struct backend *backend, uint32_t stream);
int cuda_stream_mark(struct backend *backend, uint32_t stream, uint64_t seq);
int cuda_stream_progress(struct backend *backend, uint32_t stream, uint64_t *seq_out);
int cuda_progress_export(struct backend *backend, int *fd_out);
int cuda_copy_batch(struct backend *backend, uint32_t stream, const struct backend_copy *copies,
		    size_t n);
int cuda_host_register(struct backend *backend, void *memory, uint64_t bytes);
int cuda_host_unregister(struct backend *backend, void *memory);
int cuda_host_share(struct backend *backend, void *memory, uint64_t bytes, uint64_t *va_out);
int cuda_gather_rows(struct backend *backend, uint32_t stream, const struct backend_gather *work);
int cuda_weigh(struct backend *backend, uint32_t stream, const struct backend_weights *work);
int cuda_fill(struct backend *backend, uint32_t stream, uint64_t va, uint64_t bytes, uint8_t value);

/* graph.c: recorded work. */
void cuda_graphs_close(struct backend_cuda *cuda);
int cuda_graph_begin(struct backend *backend, uint32_t stream);
int cuda_graph_end(struct backend *backend, uint32_t stream, uint64_t *graph_out);
int cuda_graph_launch(struct backend *backend, uint32_t stream, uint64_t graph);
int cuda_graph_drop(struct backend *backend, uint64_t graph);

#endif

#include "device/backend_fault.h"

#include <errno.h>
#include <inttypes.h>

static struct backend_fault *fault_of(struct backend *backend)
{
	return (struct backend_fault *)backend;
}

static int fault_counts(struct backend_fault *fault, const char *call)
{
	uint64_t n = ++fault->calls;

	if (fault->fail_at == 0 || n < fault->fail_at ||
	    (n > fault->fail_at && fault->code != -ENODEV))
		return 0;
	return error_set(fault->code, "%s: call %" PRIu64 " fails on request", call, n);
}

/* A call that may fail: args are those of its function, given on behind the inner backend. */
#define FAULT(call, params, args) \
	static int fault_##call params \
	{ \
		struct backend_fault *fault = fault_of(backend); \
		struct backend *inner = fault->inner; \
		int ret = fault_counts(fault, #call); \
\
		return ret ? ret : inner->ops->call args; \
	}

FAULT(reserve, (struct backend * backend, uint64_t bytes, uint64_t *va_out), (inner, bytes, va_out))
FAULT(extent_create, (struct backend * backend, uint64_t bytes, uint64_t *handle_out),
      (inner, bytes, handle_out))
FAULT(extent_export, (struct backend * backend, uint64_t handle, int *fd_out),
      (inner, handle, fd_out))
FAULT(extent_import, (struct backend * backend, int fd, uint64_t bytes, uint64_t *handle_out),
      (inner, fd, bytes, handle_out))
FAULT(map, (struct backend * backend, uint64_t va, uint64_t bytes, uint64_t handle),
      (inner, va, bytes, handle))
FAULT(extent_expose, (struct backend * backend, uint64_t handle), (inner, handle))
FAULT(set_access,
      (struct backend * backend, uint64_t va, uint64_t bytes, enum backend_access access),
      (inner, va, bytes, access))
FAULT(unmap, (struct backend * backend, uint64_t va, uint64_t bytes), (inner, va, bytes))
FAULT(stream_open, (struct backend * backend, void *native, uint32_t *stream_out),
      (inner, native, stream_out))
FAULT(stream_close, (struct backend * backend, uint32_t stream), (inner, stream))
FAULT(stream_mark, (struct backend * backend, uint32_t stream, uint64_t seq), (inner, stream, seq))
FAULT(stream_progress, (struct backend * backend, uint32_t stream, uint64_t *seq_out),
      (inner, stream, seq_out))
FAULT(progress_export, (struct backend * backend, int *fd_out), (inner, fd_out))
FAULT(event_ask, (struct backend * backend, const uint8_t handle[BACKEND_EVENT_BYTES]),
      (inner, handle))
FAULT(copy_batch,
      (struct backend * backend, uint32_t stream, const struct backend_copy *copies, size_t n),
      (inner, stream, copies, n))
FAULT(fill, (struct backend * backend, uint32_t stream, uint64_t va, uint64_t bytes, uint8_t value),
      (inner, stream, va, bytes, value))
FAULT(host_register, (struct backend * backend, void *memory, uint64_t bytes),
      (inner, memory, bytes))
FAULT(host_share, (struct backend * backend, void *memory, uint64_t bytes, uint64_t *va_out),
      (inner, memory, bytes, va_out))
FAULT(gather, (struct backend * backend, uint32_t stream, const struct backend_gather *work),
      (inner, stream, work))
FAULT(weigh, (struct backend * backend, uint32_t stream, const struct backend_weights *work),
      (inner, stream, work))
FAULT(graph_begin, (struct backend * backend, uint32_t stream), (inner, stream))
FAULT(graph_end, (struct backend * backend, uint32_t stream, uint64_t *graph_out),
      (inner, stream, graph_out))
FAULT(graph_launch, (struct backend * backend, uint32_t stream, uint64_t graph),
      (inner, stream, graph))
FAULT(dmabuf_export,
      (struct backend * backend, uint64_t va, uint64_t bytes, int *fd_out, uint64_t *off_out),
      (inner, va, bytes, fd_out, off_out))

static void fault_info(struct backend *backend, struct backend_info *info_out)
{
	struct backend *inner = fault_of(backend)->inner;

	inner->ops->info(inner, info_out);
}

static int fault_unreserve(struct backend *backend, uint64_t va, uint64_t bytes)
{
	struct backend *inner = fault_of(backend)->inner;

	return inner->ops->unreserve(inner, va, bytes);
}

static int fault_extent_release(struct backend *backend, uint64_t handle)
{
	struct backend *inner = fault_of(backend)->inner;

	return inner->ops->extent_release(inner, handle);
}

static int fault_host_unregister(struct backend *backend, void *memory)
{
	struct backend *inner = fault_of(backend)->inner;

	return inner->ops->host_unregister(inner, memory);
}

static int fault_graph_drop(struct backend *backend, uint64_t graph)
{
	struct backend *inner = fault_of(backend)->inner;

	return inner->ops->graph_drop(inner, graph);
}

static uint64_t fault_now_ns(struct backend *backend)
{
	struct backend *inner = fault_of(backend)->inner;

	return inner->ops->now_ns(inner);
}

static void fault_close(struct backend *backend)
{
	(void)backend;
}

static const struct backend_ops fault_ops = {
	.info = fault_info,
	.reserve = fault_reserve,
	.unreserve = fault_unreserve,
	.extent_create = fault_extent_create,
	.extent_export = fault_extent_export,
	.extent_import = fault_extent_import,
	.extent_expose = fault_extent_expose,
	.extent_release = fault_extent_release,
	.map = fault_map,
	.set_access = fault_set_access,
	.unmap = fault_unmap,
	.stream_open = fault_stream_open,
	.stream_close = fault_stream_close,
	.stream_mark = fault_stream_mark,
	.stream_progress = fault_stream_progress,
	.progress_export = fault_progress_export,
	.event_ask = fault_event_ask,
	.copy_batch = fault_copy_batch,
	.fill = fault_fill,
	.host_register = fault_host_register,
	.host_unregister = fault_host_unregister,
	.host_share = fault_host_share,
	.gather = fault_gather,
	.weigh = fault_weigh,
	.graph_begin = fault_graph_begin,
	.graph_end = fault_graph_end,
	.graph_launch = fault_graph_launch,
	.graph_drop = fault_graph_drop,
	.dmabuf_export = fault_dmabuf_export,
	.now_ns = fault_now_ns,
	.close = fault_close,
};

void backend_fault_init(struct backend_fault *fault, struct backend *inner, uint64_t fail_at,
			int code)
{
	*fault = (struct backend_fault){ { &fault_ops }, inner, 0, fail_at, code };
}

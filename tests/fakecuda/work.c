/*
 * work.c - copies, marks, events and kernels of the fake driver: each becomes an op of a stream.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fakecuda/stream.h"

unsigned cuMemcpyAsync(cu_u64 to, cu_u64 from, size_t bytes, struct cu_stream *stream)
{
	struct op op = { .kind = OP_COPY, .to = to, .from = from, .bytes = bytes };

	FAKE_ENTER(copy);
	return stream_submit(stream, &op);
}

unsigned cuMemcpyBatchAsync(cu_u64 *to, cu_u64 *from, size_t *bytes, size_t n,
			    struct cu_copy_attributes *attributes, size_t *first,
			    size_t n_attributes, struct cu_stream *stream)
{
	unsigned result = CU_OK;

	FAKE_ENTER(copy_batch);
	if (!stream || !n || n_attributes != 1 || first[0] ||
	    attributes->order != CU_COPY_ORDER_STREAM)
		return CU_INVALID_VALUE;
	for (size_t i = 0; i < n && result == CU_OK; i++) {
		struct op op = { .kind = OP_COPY, .to = to[i], .from = from[i], .bytes = bytes[i] };

		result = stream_submit(stream, &op);
	}
	return result;
}

unsigned cuMemsetD8Async(cu_u64 at, uint8_t value, size_t bytes, struct cu_stream *stream)
{
	struct op op = { .kind = OP_FILL, .to = at, .bytes = bytes, .value = value };

	FAKE_ENTER(fill);
	return stream_submit(stream, &op);
}

unsigned cuStreamWriteValue64(struct cu_stream *stream, cu_u64 at, uint64_t value, unsigned flags)
{
	struct op op = { .kind = OP_WRITE, .to = at, .bytes = 8, .value = value };

	FAKE_ENTER(stream_write);
	return at % 8 || flags ? CU_INVALID_VALUE : stream_submit(stream, &op);
}

unsigned cuStreamWaitValue64(struct cu_stream *stream, cu_u64 at, uint64_t value, unsigned flags)
{
	struct op op = { .kind = OP_WAIT_VALUE, .to = at, .bytes = 8, .value = value };

	FAKE_ENTER(stream_wait_value);
	return at % 8 || flags != CU_WAIT_GEQ ? CU_INVALID_VALUE : stream_submit(stream, &op);
}

struct cu_event {
	struct event_state *state;
	int fd; /* -1: of this process alone */
	bool imported;
};

unsigned cuEventCreate(struct cu_event **event_out, unsigned flags)
{
	struct cu_event *event;
	void *state;

	FAKE_ENTER(event_create);
	if (flags & CU_EVENT_INTERPROCESS_FLAG && !(flags & CU_EVENT_NO_TIMING_FLAG))
		return CU_INVALID_VALUE;
	event = malloc(sizeof(*event));
	if (!event)
		return CU_OUT_OF_MEMORY;
	event->fd = flags & CU_EVENT_INTERPROCESS_FLAG ? memfd_create("fakecuda event", MFD_CLOEXEC)
						       : -1;
	if (event->fd >= 0 && ftruncate(event->fd, sizeof(struct event_state))) {
		(void)close(event->fd);
		event->fd = -1;
	}
	state = mmap(NULL, sizeof(struct event_state), PROT_READ | PROT_WRITE,
		     event->fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, event->fd, 0);
	if (state == MAP_FAILED) {
		free(event);
		return CU_OUT_OF_MEMORY;
	}
	event->state = state;
	event->imported = false;
	*event_out = event;
	return CU_OK;
}

unsigned cuEventDestroy(struct cu_event *event)
{
	FAKE_ENTER(event_destroy);
	while (atomic_load(&event->state->done) < atomic_load(&event->state->recorded) &&
	       !event->imported)
		(void)usleep(50); /* its op still names the state */
	(void)munmap(event->state, sizeof(*event->state));
	if (event->fd >= 0)
		(void)close(event->fd);
	free(event);
	return CU_OK;
}

unsigned cuEventRecord(struct cu_event *event, struct cu_stream *stream)
{
	struct op op = { .kind = OP_RECORD, .event = event->state };

	FAKE_ENTER(event_record);
	op.value = atomic_fetch_add(&event->state->recorded, 1) + 1;
	return stream_submit(stream, &op);
}

unsigned cuEventQuery(struct cu_event *event)
{
	FAKE_ENTER(event_query);
	return atomic_load(&event->state->done) < atomic_load(&event->state->recorded)
		       ? CU_NOT_READY
		       : CU_OK;
}

unsigned cuEventSynchronize(struct cu_event *event)
{
	FAKE_ENTER(event_wait);
	while (atomic_load(&event->state->done) < atomic_load(&event->state->recorded))
		(void)usleep(50);
	return CU_OK;
}

unsigned cuStreamWaitEvent(struct cu_stream *stream, struct cu_event *event, unsigned flags)
{
	struct op op = { .kind = OP_WAIT_EVENT, .event = event->state };

	FAKE_ENTER(stream_wait_event);
	op.value = atomic_load(&event->state->recorded);
	return flags ? CU_INVALID_VALUE : stream_submit(stream, &op);
}

/* The handle is the path of the event's memfd, which lives as long as the process that made it. */
unsigned cuIpcGetEventHandle(struct cu_ipc_event *handle, struct cu_event *event)
{
	FAKE_ENTER(event_export);
	if (event->fd < 0)
		return CU_INVALID_HANDLE;
	(void)snprintf((char *)handle->bytes, sizeof(handle->bytes), "/proc/%d/fd/%d",
		       (int)getpid(), event->fd);
	return CU_OK;
}

unsigned cuIpcOpenEventHandle(struct cu_event **event_out, struct cu_ipc_event handle)
{
	struct cu_event *event;
	void *state = MAP_FAILED;
	int fd;

	FAKE_ENTER(event_import);
	handle.bytes[sizeof(handle.bytes) - 1] = 0;
	fd = open((const char *)handle.bytes, O_RDWR | O_CLOEXEC);
	event = malloc(sizeof(*event));
	if (fd >= 0 && event)
		state = mmap(NULL, sizeof(struct event_state), PROT_READ | PROT_WRITE, MAP_SHARED,
			     fd, 0);
	if (state == MAP_FAILED) {
		free(event);
		if (fd >= 0)
			(void)close(fd);
		return CU_INVALID_HANDLE;
	}
	*event = (struct cu_event){ .state = state, .fd = fd, .imported = true };
	*event_out = event;
	return CU_OK;
}

/* Kernels that a module may have, by the name that its PTX gives. */
static struct cu_function {
	const char *name;
	enum op_kind kind;
} kernels[] = {
	{ "relive_gather", OP_GATHER },
	{ "relive_weights", OP_WEIGHTS },
	{ "probe_spin", OP_SPIN },
};

unsigned cuModuleLoadData(struct cu_module **module_out, const void *image)
{
	FAKE_ENTER(module_load);
	if (strncmp(image, ".version", 8) != 0)
		return CU_INVALID_VALUE;
	*module_out = (struct cu_module *)(uintptr_t)image; /* its text stays its owner's */
	return CU_OK;
}

unsigned cuModuleUnload(struct cu_module *module)
{
	FAKE_ENTER(module_unload);
	return module ? CU_OK : CU_INVALID_HANDLE;
}

unsigned cuModuleGetFunction(struct cu_function **function, struct cu_module *module,
			     const char *name)
{
	char entry[128];

	FAKE_ENTER(module_function);
	(void)snprintf(entry, sizeof(entry), ".entry %s(", name);
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		if (!strcmp(kernels[i].name, name) && strstr((const char *)module, entry)) {
			*function = &kernels[i];
			return CU_OK;
		}
	}
	return CU_NOT_FOUND;
}

unsigned cuLaunchKernel(struct cu_function *function, unsigned grid_x, unsigned grid_y,
			unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
			unsigned shared_bytes, struct cu_stream *stream, void **arguments,
			void **extra)
{
	struct op op = { .kind = function->kind };

	FAKE_ENTER(launch);
	if (!grid_x || grid_y != 1 || grid_z != 1 || !block_x || block_x > 1024 || block_y != 1 ||
	    block_z != 1 || shared_bytes || extra)
		return CU_INVALID_VALUE;
	if (op.kind == OP_GATHER) {
		memcpy(&op.work, arguments[0], sizeof(op.work));
		if (((uint64_t)grid_x * block_x) >> op.work.shift << op.work.shift !=
		    (uint64_t)grid_x * block_x)
			return CU_INVALID_VALUE; /* lanes of a row that nobody would copy */
		op.work.shift = 0;
	} else if (op.kind == OP_WEIGHTS) {
		memcpy(&op.weights, arguments[0], sizeof(op.weights));
		op.to = (cu_u64)(uintptr_t)op.weights.to;
		op.bytes = op.weights.n * sizeof(*op.weights.to);
	} else {
		memcpy(&op.ns, arguments[0], sizeof(op.ns));
	}
	return stream_submit(stream, &op);
}

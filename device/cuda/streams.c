/*
 * streams.c - streams of the cuda backend: marks, copies and fills.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cuda/backend_cuda_state.h"
#include "base/mem/alloc.h"

static_assert(sizeof(struct backend_row) == sizeof(struct gather_row) &&
		      offsetof(struct backend_row, to) == offsetof(struct gather_row, to),
	      "the kernel reads the rows of a backend");

#define COPIES 256 /* of one call of the driver */

/* Sealed, so that who reads it elsewhere cannot meet a SIGBUS. */
static int page_make(int *fd_out)
{
	int fd = mem_fail_now() ? -1
				: memfd_create("relive-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return error_set(-ENOMEM, "cuda device: memfd_create failed: %m");
	if (mem_fail_now() || ftruncate(fd, (off_t)sizeof(struct backend_progress)) != 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
		int ret = error_set(-ENOMEM, "cuda device: cannot make the page of progress: %m");

		close(fd);
		return ret;
	}
	*fd_out = fd;
	return 0;
}

static int page_copy(int from, int *fd_out)
{
	int fd = mem_fail_now() ? -1 : fcntl(from, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return error_set(-ENOMEM, "progress: cannot copy the fd: %m");
	*fd_out = fd;
	return 0;
}

/* The page of progress, which the device writes if marks are no events. */
int cuda_streams_open(struct backend_cuda *cuda, int page_fd)
{
	int err = page_fd ? page_copy(page_fd, &cuda->progress_fd) : page_make(&cuda->progress_fd);
	void *page = MAP_FAILED;

	if (err)
		return err;
	if (!mem_fail_now())
		page = mmap(NULL, sizeof(*cuda->progress), PROT_READ | PROT_WRITE, MAP_SHARED,
			    cuda->progress_fd, 0);
	if (page == MAP_FAILED) {
		err = error_set(-ENOMEM, "cuda device: cannot map the page of progress: %m");
		goto err_close;
	}
	cuda->progress = page;
	if (cuda->events)
		return 0;
	err = cuda_check(cuda, "cuMemHostRegister",
			 cuda->calls->host_register(page, sizeof(*cuda->progress),
						    CU_HOST_PORTABLE | CU_HOST_DEVICEMAP));
	if (err)
		goto err_unmap;
	err = cuda_check(cuda, "cuMemHostGetDevicePointer",
			 cuda->calls->host_device_pointer(&cuda->progress_at, page, 0));
	if (!err)
		return 0;
	(void)cuda->calls->host_unregister(page);
err_unmap:
	munmap(page, sizeof(*cuda->progress));
err_close:
	close(cuda->progress_fd);
	return err;
}

/* Of a failure only the driver's stream is left. */
static int stream_end(struct backend_cuda *cuda, uint32_t number)
{
	struct cuda_stream *stream = &cuda->streams[number];
	int err = stream->own ? cuda_check(cuda, "cuStreamDestroy",
					   cuda->calls->stream_destroy(stream->native))
			      : 0;

	cuda_events_forget(cuda, number);
	stream->native = NULL;
	return err;
}

static bool stream_is_late(struct backend_cuda *cuda, uint32_t number)
{
	uint64_t seq = 0;

	return cuda_stream_progress(&cuda->base, number, &seq) != 0 ||
	       seq < cuda->streams[number].queued;
}

void cuda_streams_close(struct backend_cuda *cuda)
{
	for (uint32_t i = 0; i < BACKEND_STREAMS; i++) {
		struct cuda_stream *stream = &cuda->streams[i];

		if (!stream->native)
			continue;
		/* One that is borrowed, and whose marks are reached, may be gone. */
		if (stream->own || stream_is_late(cuda, i))
			(void)cuda->calls->stream_wait(stream->native);
		(void)stream_is_late(cuda, i); /* readers of the page see its end */
		(void)stream_end(cuda, i);
	}
	cuda_events_close(cuda);
	/* A page that the device still knows stays. */
	if (cuda->events || cuda->calls->host_unregister(cuda->progress) == CU_OK)
		munmap(cuda->progress, sizeof(*cuda->progress));
	close(cuda->progress_fd);
}

int cuda_stream_open(struct backend *backend, void *native, uint32_t *stream_out)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	struct cu_stream *opened = native;
	uint32_t at = 0;
	int err = cuda_enter(cuda, &before);

	if (err)
		return err;
	while (at < BACKEND_STREAMS && cuda->streams[at].native)
		at++;
	if (at == BACKEND_STREAMS)
		err = error_set(-ENOSPC, "%d streams are open", BACKEND_STREAMS);
	else if (!native)
		err = cuda_check(
			cuda, "cuStreamCreateWithPriority",
			cuda->calls->stream_create(&opened, CU_STREAM_NON_BLOCKING_FLAG, 0));
	if (err)
		return cuda_leave(cuda, before, err);
	/* Numbers of marks go on: a place may be opened again. */
	cuda->streams[at].native = opened;
	cuda->streams[at].own = !native;
	*stream_out = at;
	return cuda_leave(cuda, before, 0);
}

struct cuda_stream *cuda_stream_enter(struct backend_cuda *cuda, uint32_t stream,
				      struct cu_context **before_out, int *err_out)
{
	if (stream >= BACKEND_STREAMS || !cuda->streams[stream].native)
		*err_out = error_set(-EINVAL, "stream %" PRIu32 " is not open", stream);
	else
		*err_out = cuda_enter(cuda, before_out);
	return *err_out ? NULL : &cuda->streams[stream];
}

int cuda_stream_mark(struct backend *backend, uint32_t number, uint64_t seq)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	int err;
	struct cuda_stream *stream = cuda_stream_enter(cuda, number, &before, &err);

	if (!stream)
		return err;
	if (seq <= stream->queued)
		err = error_set(-EINVAL, "mark %" PRIu64 " of stream %" PRIu32 " does not rise",
				seq, number);
	else if (cuda->events)
		err = cuda_events_mark(cuda, number, seq);
	else
		err = cuda_check(cuda, "cuStreamWriteValue64",
				 cuda->calls->stream_write(
					 stream->native,
					 cuda->progress_at + number * sizeof(uint64_t), seq, 0));
	if (!err)
		stream->queued = seq;
	return cuda_leave(cuda, before, err);
}

int cuda_stream_progress(struct backend *backend, uint32_t number, uint64_t *seq_out)
{
	struct backend_cuda *cuda = cuda_of(backend);

	if (number >= BACKEND_STREAMS)
		return error_set(-EINVAL, "no stream %" PRIu32, number);
	if (cuda->streams[number].n) {
		struct cu_context *before;
		int err = cuda_enter(cuda, &before);

		if (!err)
			err = cuda_leave(cuda, before, cuda_events_progress(cuda, number));
		if (err)
			return err;
	}
	/* Q4 pairs with Q3, and with the device's write: work before the mark is seen by whoever sees the mark */
	*seq_out = atomic_load_explicit(&cuda->progress->reached[number], memory_order_acquire);
	return 0;
}

int cuda_stream_close(struct backend *backend, uint32_t number)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	uint64_t seq;
	int err = cuda_stream_progress(backend, number, &seq);
	struct cuda_stream *stream = err ? NULL : cuda_stream_enter(cuda, number, &before, &err);

	if (!stream)
		return err;
	if (seq < stream->queued)
		err = error_set(-EBUSY, "stream %" PRIu32 ": mark %" PRIu64 " is outstanding",
				number, stream->queued);
	else
		err = stream_end(cuda, number);
	return cuda_leave(cuda, before, err);
}

int cuda_progress_export(struct backend *backend, int *fd_out)
{
	struct backend_cuda *cuda = cuda_of(backend);

	if (cuda->events)
		return error_set(-ENOTSUP,
				 "progress: marks are events, which only this process can ask");
	return page_copy(cuda->progress_fd, fd_out);
}

/* Up to COPIES copies by one call. */
static int copy_some(struct backend_cuda *cuda, struct cu_stream *stream,
		     const struct backend_copy *copies, size_t n)
{
	struct cu_copy_attributes attributes = { .order = CU_COPY_ORDER_STREAM };
	cu_u64 to[COPIES], from[COPIES];
	size_t bytes[COPIES], first = 0;

	for (size_t i = 0; i < n; i++) {
		to[i] = copies[i].dst;
		from[i] = copies[i].src;
		bytes[i] = copies[i].bytes;
	}
	return cuda_check(
		cuda, "cuMemcpyBatchAsync",
		cuda->calls->copy_batch(to, from, bytes, n, &attributes, &first, 1, stream));
}

int cuda_copy_batch(struct backend *backend, uint32_t number, const struct backend_copy *copies,
		    size_t n)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	int err;
	struct cuda_stream *stream = cuda_stream_enter(cuda, number, &before, &err);
	size_t step = cuda->calls->copy_batch ? COPIES : 1;

	if (!stream)
		return err;
	for (size_t at = 0; !err && at < n; at += step) {
		size_t some = n - at < step ? n - at : step;

		if (some > 1)
			err = copy_some(cuda, stream->native, copies + at, some);
		else
			err = cuda_check(cuda, "cuMemcpyAsync",
					 cuda->calls->copy(copies[at].dst, copies[at].src,
							   copies[at].bytes, stream->native));
	}
	return cuda_leave(cuda, before, err);
}

int cuda_fill(struct backend *backend, uint32_t number, uint64_t va, uint64_t bytes, uint8_t value)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	int err;
	struct cuda_stream *stream = cuda_stream_enter(cuda, number, &before, &err);

	if (!stream)
		return err;
	return cuda_leave(cuda, before,
			  cuda_check(cuda, "cuMemsetD8Async",
				     cuda->calls->fill(va, value, bytes, stream->native)));
}

int cuda_host_register(struct backend *backend, void *memory, uint64_t bytes)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	int err = cuda_enter(cuda, &before);

	if (err)
		return err;
	return cuda_leave(cuda, before,
			  cuda_check(cuda, "cuMemHostRegister",
				     cuda->calls->host_register(memory, bytes, CU_HOST_PORTABLE)));
}

int cuda_host_unregister(struct backend *backend, void *memory)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	int err = cuda_enter(cuda, &before);

	if (err)
		return err;
	return cuda_leave(
		cuda, before,
		cuda_check(cuda, "cuMemHostUnregister", cuda->calls->host_unregister(memory)));
}

/* -------- gathers -------- */

/* For reading alone, if the device can: the process may have no other right to the pages. */
int cuda_host_share(struct backend *backend, void *memory, uint64_t bytes, uint64_t *va_out)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	int readonly = 0;
	cu_u64 va = 0;
	int err = cuda_enter(cuda, &before);

	if (err)
		return err;
	err = cuda_check(
		cuda, "cuDeviceGetAttribute",
		cuda->calls->device_attribute(&readonly, CU_ATTR_HOST_READONLY, cuda->device));
	if (!err)
		err = cuda_check(
			cuda, "cuMemHostRegister",
			cuda->calls->host_register(memory, bytes,
						   CU_HOST_PORTABLE | CU_HOST_DEVICEMAP |
							   (readonly ? CU_HOST_READONLY : 0)));
	if (err)
		return cuda_leave(cuda, before, err);
	err = cuda_check(cuda, "cuMemHostGetDevicePointer",
			 cuda->calls->host_device_pointer(&va, memory, 0));
	if (err)
		(void)cuda->calls->host_unregister(memory);
	else
		*va_out = va;
	return cuda_leave(cuda, before, err);
}

static int launch_leave(struct backend_cuda *cuda, struct cu_context *before, int err)
{
	if (err == -ENODEV)
		atomic_store_explicit(&cuda->lost, true,
				      memory_order_relaxed); /* as in cuda_check */
	return cuda_leave(cuda, before, err);
}

/* As cuda_stream_enter; the kernels are loaded at the first call. 0: launch_leave follows. */
static int launch_enter(struct backend_cuda *cuda, uint32_t number, struct cuda_stream **stream_out,
			struct cu_context **before_out)
{
	int err;

	*stream_out = cuda_stream_enter(cuda, number, before_out, &err);
	if (*stream_out && !cuda->gather.module)
		err = cuda_gather_open(cuda->calls, &cuda->gather);
	return *stream_out && err ? launch_leave(cuda, *before_out, err) : err;
}

int cuda_gather_rows(struct backend *backend, uint32_t number, const struct backend_gather *rows)
{
	struct gather_work work = { .to = (gather_u8 *)(uintptr_t)rows->to,
				    .from = (const gather_u8 *)(uintptr_t)rows->from,
				    .rows = (const struct gather_row *)(uintptr_t)rows->rows,
				    .n = rows->n,
				    .bytes = rows->bytes };
	struct backend_cuda *cuda = cuda_of(backend);
	struct cuda_stream *stream;
	struct cu_context *before;
	int err = launch_enter(cuda, number, &stream, &before);

	if (err)
		return err;
	gather_fit_places(&work, rows->places);
	return launch_leave(cuda, before, cuda_gather(&cuda->gather, stream->native, work));
}

int cuda_weigh(struct backend *backend, uint32_t number, const struct backend_weights *weights)
{
	struct weights_work work = { .to = (float *)(uintptr_t)weights->weights,
				     .probability = (const double *)(uintptr_t)weights->probability,
				     .n = weights->n,
				     .factor = weights->factor,
				     .power = weights->power };
	struct backend_cuda *cuda = cuda_of(backend);
	struct cuda_stream *stream;
	struct cu_context *before;
	int err = launch_enter(cuda, number, &stream, &before);

	if (err)
		return err;
	return launch_leave(cuda, before, cuda_weights(&cuda->gather, stream->native, work));
}

/*
 * backend_cuda.c - extents and addresses of a CUDA device, and the table of its operations.
 */
#include "device/cuda/backend_cuda.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/cuda/backend_cuda_state.h"
#include "base/bits.h"
#include "base/mem/alloc.h"
#include "base/os/clock.h"

int cuda_check(struct backend_cuda *cuda, const char *call, unsigned result)
{
	int err = cuda_result(cuda->calls, call, result);

	if (err == -ENODEV)
		atomic_store_explicit(&cuda->lost, true,
				      memory_order_relaxed); /* publishes nothing */
	return err;
}

int cuda_enter(struct backend_cuda *cuda, struct cu_context **before_out)
{
	int err;

	if (getpid() != cuda->pid)
		return error_set(
			-ECHILD,
			"the cuda device was opened before fork(): start workers by spawn");
	if (atomic_load_explicit(&cuda->lost, memory_order_relaxed)) /* as above */
		return error_set(-ENODEV, "the cuda device is lost: restart the process");
	err = cuda_check(cuda, "cuCtxGetCurrent", cuda->calls->context_get(before_out));
	if (!err && *before_out != cuda->context)
		err = cuda_check(cuda, "cuCtxSetCurrent", cuda->calls->context_set(cuda->context));
	return err;
}

int cuda_leave(struct backend_cuda *cuda, struct cu_context *before, int err)
{
	if (before != cuda->context)
		(void)cuda->calls->context_set(before);
	return err;
}

static void cuda_info(struct backend *backend, struct backend_info *info_out)
{
	*info_out = cuda_of(backend)->info;
}

static int check_size(const struct backend_cuda *cuda, const char *what, uint64_t bytes)
{
	if (bytes == 0 || bytes % cuda->info.granularity)
		return error_set(-EINVAL, "%s of %" PRIu64 " bytes: not a multiple of %" PRIu64,
				 what, bytes, cuda->info.granularity);
	return 0;
}

static int cuda_reserve(struct backend *backend, uint64_t bytes, uint64_t *va_out)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	cu_u64 at = 0;
	int err = check_size(cuda, "reserve", bytes);

	if (!err)
		err = cuda_enter(cuda, &before);
	if (err)
		return err;
	if (!ranges_room(&cuda->reserved))
		err = error_set(-ENOMEM, "reserve: no memory");
	else
		err = cuda_check(cuda, "cuMemAddressReserve",
				 cuda->calls->mem_reserve(&at, bytes, 0, 0, 0));
	if (!err) {
		ranges_add(&cuda->reserved, (struct range){ at, bytes, 0 });
		*va_out = at;
	}
	return cuda_leave(cuda, before, err);
}

static int cuda_unreserve(struct backend *backend, uint64_t va, uint64_t bytes)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct range *range = ranges_find(&cuda->reserved, va);
	struct cu_context *before;
	int err;

	if (!range || range->bytes != bytes)
		return error_set(-EINVAL, "unreserve: no such range");
	if (ranges_touch(&cuda->mapped, va, bytes))
		return error_set(-EBUSY, "unreserve: an extent is mapped in the range");
	err = cuda_enter(cuda, &before);
	if (err)
		return err;
	err = cuda_check(cuda, "cuMemAddressFree", cuda->calls->mem_unreserve(va, bytes));
	if (!err)
		ranges_remove(&cuda->reserved, range);
	return cuda_leave(cuda, before, err);
}

static struct cuda_extent *extent_of(struct backend_cuda *cuda, uint64_t handle)
{
	if (handle == 0 || handle > cuda->n_extents || !cuda->extents[handle - 1].bytes)
		return NULL;
	return &cuda->extents[handle - 1];
}

/* A free place, growing the table. 0: no memory. */
static uint64_t extent_place(struct backend_cuda *cuda)
{
	size_t old = cuda->n_extents, n = old ? 2 * old : 16;

	for (size_t i = 0; i < old; i++) {
		if (!cuda->extents[i].bytes)
			return i + 1;
	}
	if (!mem_grow(&cuda->extents, old, n, sizeof(*cuda->extents)))
		return 0;
	cuda->n_extents = n;
	return old + 1;
}

static struct cu_mem_prop extent_prop(const struct backend_cuda *cuda)
{
	struct cu_mem_prop prop = {
		.type = CU_ALLOCATION_PINNED,
		.handle_types = CU_HANDLE_POSIX_FD,
		.location = { CU_LOCATION_DEVICE, cuda->device },
	};

	prop.flags.gpu_direct_rdma = cuda->rdma;
	return prop;
}

static int cuda_extent_create(struct backend *backend, uint64_t bytes, uint64_t *handle_out)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_mem_prop prop = extent_prop(cuda);
	struct cu_context *before;
	uint64_t place = 0;
	cu_u64 made = 0;
	int err = check_size(cuda, "extent", bytes);

	if (!err)
		err = cuda_enter(cuda, &before);
	if (err)
		return err;
	place = extent_place(cuda);
	if (!place)
		err = error_set(-ENOMEM, "extent: no memory");
	else
		err = cuda_check(cuda, "cuMemCreate",
				 cuda->calls->mem_create(&made, bytes, &prop, 0));
	if (!err) {
		cuda->extents[place - 1] = (struct cuda_extent){ made, bytes, 0 };
		*handle_out = place;
	}
	return cuda_leave(cuda, before, err);
}

static int cuda_extent_export(struct backend *backend, uint64_t handle, int *fd_out)
{
	struct backend_cuda *cuda = cuda_of(backend);
	const struct cuda_extent *extent = extent_of(cuda, handle);
	struct cu_context *before;
	int fd = -1, err;

	if (!extent)
		return error_set(-EINVAL, "export: no such extent");
	err = cuda_enter(cuda, &before);
	if (err)
		return err;
	err = cuda_check(cuda, "cuMemExportToShareableHandle",
			 cuda->calls->mem_export(&fd, extent->handle, CU_HANDLE_POSIX_FD, 0));
	if (!err)
		*fd_out = fd;
	return cuda_leave(cuda, before, err);
}

/* The driver does not tell an fd's size: if it is another, the first map fails. */
static int cuda_extent_import(struct backend *backend, int fd, uint64_t bytes, uint64_t *handle_out)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	uint64_t place = 0;
	cu_u64 made = 0;
	int err = check_size(cuda, "import", bytes);

	if (!err)
		err = cuda_enter(cuda, &before);
	if (err)
		return err;
	place = extent_place(cuda);
	if (!place)
		err = error_set(-ENOMEM, "import: no memory");
	else
		err = cuda_check(
			cuda, "cuMemImportFromShareableHandle",
			cuda->calls->mem_import(&made, (void *)(intptr_t)fd, CU_HANDLE_POSIX_FD));
	if (!err) {
		cuda->extents[place - 1] = (struct cuda_extent){ made, bytes, 0 };
		*handle_out = place;
	}
	return cuda_leave(cuda, before, err);
}

static int cuda_extent_release(struct backend *backend, uint64_t handle)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cuda_extent *extent = extent_of(cuda, handle);
	struct cu_context *before;
	int err;

	if (!extent)
		return error_set(-EINVAL, "release: no such extent");
	if (extent->mapped)
		return error_set(-EBUSY, "release: the extent is mapped");
	err = cuda_enter(cuda, &before);
	if (!err)
		err = cuda_leave(
			cuda, before,
			cuda_check(cuda, "cuMemRelease", cuda->calls->mem_release(extent->handle)));
	if (err && err != -ENODEV) /* with the device its memory is gone */
		return err;
	extent->bytes = 0;
	return 0;
}

static int cuda_map(struct backend *backend, uint64_t va, uint64_t bytes, uint64_t handle)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cuda_extent *extent = extent_of(cuda, handle);
	struct cu_context *before;
	int err;

	if (!extent || extent->bytes != bytes)
		return error_set(-EINVAL, "map: no extent of %" PRIu64 " bytes", bytes);
	if (va % cuda->info.granularity || !ranges_hold(&cuda->reserved, va, bytes))
		return error_set(-EINVAL, "map: the range is not reserved");
	if (ranges_touch(&cuda->mapped, va, bytes))
		return error_set(-EBUSY, "map: an extent is mapped in the range");
	if (!ranges_room(&cuda->mapped))
		return error_set(-ENOMEM, "map: no memory");
	err = cuda_enter(cuda, &before);
	if (err)
		return err;
	err = cuda_check(cuda, "cuMemMap", cuda->calls->mem_map(va, bytes, 0, extent->handle, 0));
	if (!err) {
		extent->mapped++;
		ranges_add(&cuda->mapped, (struct range){ va, bytes, handle });
	}
	return cuda_leave(cuda, before, err);
}

static int cuda_set_access(struct backend *backend, uint64_t va, uint64_t bytes,
			   enum backend_access access)
{
	static const unsigned flags[] = { CU_ACCESS_NONE, CU_ACCESS_READ, CU_ACCESS_READWRITE };
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_mem_access wanted = { { CU_LOCATION_DEVICE, cuda->device }, 0 };
	struct cu_context *before;
	int err;

	if ((unsigned)access >= ARRAY_LEN(flags) || !ranges_tile(&cuda->mapped, va, bytes))
		return error_set(-EINVAL, "set access: the range is not of whole mapped extents");
	wanted.flags = flags[access];
	err = cuda_enter(cuda, &before);
	if (err)
		return err;
	return cuda_leave(cuda, before,
			  cuda_check(cuda, "cuMemSetAccess",
				     cuda->calls->mem_set_access(va, bytes, &wanted, 1)));
}

static int cuda_unmap(struct backend *backend, uint64_t va, uint64_t bytes)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	int err;

	if (bytes == 0 || !ranges_tile(&cuda->mapped, va, bytes))
		return error_set(-EINVAL, "unmap: the range is not of whole mapped extents");
	err = cuda_enter(cuda, &before);
	if (err)
		return err;
	err = cuda_check(cuda, "cuMemUnmap", cuda->calls->mem_unmap(va, bytes));
	while (!err && bytes) {
		struct range *range = ranges_find(&cuda->mapped, va);

		va += range->bytes;
		bytes -= range->bytes;
		cuda->extents[range->handle - 1].mapped--;
		ranges_remove(&cuda->mapped, range);
	}
	return cuda_leave(cuda, before, err);
}

static int cuda_dmabuf_export(struct backend *backend, uint64_t va, uint64_t bytes, int *fd_out,
			      uint64_t *off_out)
{
	struct backend_cuda *cuda = cuda_of(backend);
	struct cu_context *before;
	int fd = -1, err;

	if (!(cuda->info.caps & BACKEND_EXPORTS_DMABUF))
		return error_set(-ENOTSUP, "dma-buf: this device or its driver exports none");
	err = cuda_enter(cuda, &before);
	if (err)
		return err;
	err = cuda_check(cuda, "cuMemGetHandleForAddressRange",
			 cuda->calls->mem_range_handle(&fd, va, bytes, CU_RANGE_DMA_BUF_FD, 0));
	if (!err) {
		*fd_out = fd;
		*off_out = 0;
	}
	return cuda_leave(cuda, before, err);
}

static uint64_t cuda_now_ns(struct backend *backend)
{
	(void)backend;
	return clock_now_ns(clock_monotonic());
}

/* Of a lost device the calls fail, and the driver frees all of it when the process ends. */
static void cuda_close(struct backend *backend)
{
	struct backend_cuda *cuda = cuda_of(backend);
	const struct cuda_calls *calls = cuda->calls;

	if (getpid() == cuda->pid) {
		struct cu_context *before = NULL;

		(void)calls->context_get(&before);
		(void)calls->context_set(cuda->context);
		cuda_streams_close(cuda);
		cuda_graphs_close(cuda);
		if (cuda->gather.module)
			cuda_gather_close(&cuda->gather);
		for (size_t i = 0; i < cuda->mapped.n; i++)
			(void)calls->mem_unmap(cuda->mapped.items[i].va,
					       cuda->mapped.items[i].bytes);
		for (size_t i = 0; i < cuda->n_extents; i++) {
			if (cuda->extents[i].bytes)
				(void)calls->mem_release(cuda->extents[i].handle);
		}
		for (size_t i = 0; i < cuda->reserved.n; i++)
			(void)calls->mem_unreserve(cuda->reserved.items[i].va,
						   cuda->reserved.items[i].bytes);
		(void)calls->context_set(before);
		(void)calls->context_release(cuda->device);
	}
	mem_free(cuda->extents);
	mem_free(cuda->graphs);
	mem_free(cuda->mapped.items);
	mem_free(cuda->reserved.items);
	mem_free(cuda);
}

static const struct backend_ops cuda_ops = {
	.info = cuda_info,
	.reserve = cuda_reserve,
	.unreserve = cuda_unreserve,
	.extent_create = cuda_extent_create,
	.extent_export = cuda_extent_export,
	.extent_import = cuda_extent_import,
	.extent_expose = backend_expose_nothing,
	.extent_release = cuda_extent_release,
	.map = cuda_map,
	.set_access = cuda_set_access,
	.unmap = cuda_unmap,
	.stream_open = cuda_stream_open,
	.stream_close = cuda_stream_close,
	.stream_mark = cuda_stream_mark,
	.stream_progress = cuda_stream_progress,
	.progress_export = cuda_progress_export,
	.event_ask = cuda_event_ask,
	.copy_batch = cuda_copy_batch,
	.fill = cuda_fill,
	.host_register = cuda_host_register,
	.host_unregister = cuda_host_unregister,
	.host_share = cuda_host_share,
	.gather = cuda_gather_rows,
	.weigh = cuda_weigh,
	.graph_begin = cuda_graph_begin,
	.graph_end = cuda_graph_end,
	.graph_launch = cuda_graph_launch,
	.graph_drop = cuda_graph_drop,
	.dmabuf_export = cuda_dmabuf_export,
	.now_ns = cuda_now_ns,
	.close = cuda_close,
};

static int attribute(struct backend_cuda *cuda, unsigned which, bool *has_out)
{
	int value = 0;
	int err = cuda_check(cuda, "cuDeviceGetAttribute",
			     cuda->calls->device_attribute(&value, which, cuda->device));

	*has_out = value != 0;
	return err;
}

/* What the device can do, and which of it is used. */
static int cuda_probe(struct backend_cuda *cuda, const struct backend_cuda_opts *opts)
{
	const struct cuda_calls *calls = cuda->calls;
	bool vmm = false, fds = false, writes = false, dmabuf = false, ipc = false;
	int err = attribute(cuda, CU_ATTR_VMM, &vmm);

	err = err ? err : attribute(cuda, CU_ATTR_POSIX_FD, &fds);
	err = err ? err : attribute(cuda, CU_ATTR_STREAM_MEM_OPS_64, &writes);
	err = err ? err : attribute(cuda, CU_ATTR_IPC_EVENTS, &ipc);
	err = err ? err : attribute(cuda, CU_ATTR_DMA_BUF, &dmabuf);
	err = err ? err : attribute(cuda, CU_ATTR_GDR_WITH_VMM, &cuda->rdma);
	if (err)
		return err;
	if (!vmm || !fds)
		return error_set(
			-ENOTSUP,
			"cuda device %d: it cannot map memory of other processes (attributes 102 "
			"and 103): use another device, or the host backend",
			cuda->device);
	cuda->events = opts->events || getenv(CUDA_EVENTS_ENV) || !writes || !calls->stream_write;
	cuda->shares = cuda->events && opts->page_fd && ipc && calls->event_export;
	/* cuda.h says that both may wait */
	cuda->info.caps = BACKEND_EXPORTS_FD | BACKEND_MAP_WAITS;
	cuda->info.caps |= cuda->events ? 0 : BACKEND_PROGRESS_PAGE;
	cuda->info.caps |= dmabuf && calls->mem_range_handle ? BACKEND_EXPORTS_DMABUF : 0;
	return 0;
}

/* With the context current: names, sizes and the page of progress. */
static int cuda_begin(struct backend_cuda *cuda, int page_fd)
{
	const struct cuda_calls *calls = cuda->calls;
	struct cu_mem_prop prop = extent_prop(cuda);
	size_t granularity = 0, unused = 0, bytes = 0;
	int err = cuda_check(
		cuda, "cuDeviceGetName",
		calls->device_name(cuda->info.device, sizeof(cuda->info.device), cuda->device));

	if (!err)
		err = cuda_check(cuda, "cuMemGetInfo", calls->mem_info(&unused, &bytes));
	if (!err)
		err = cuda_check(
			cuda, "cuMemGetAllocationGranularity",
			calls->mem_granularity(&granularity, &prop, CU_GRANULARITY_MINIMUM));
	cuda->info.device_bytes = bytes;
	cuda->info.granularity = granularity;
	return err ? err : cuda_streams_open(cuda, page_fd);
}

static int cuda_start(struct backend_cuda *cuda, const struct backend_cuda_opts *opts)
{
	const struct cuda_calls *calls = cuda->calls;
	struct cu_context *before = NULL;
	int err = cuda_check(cuda, "cuDeviceGet", calls->device_get(&cuda->device, opts->device));

	err = err ? err : cuda_probe(cuda, opts);
	if (!err)
		err = cuda_check(cuda, "cuDevicePrimaryCtxRetain",
				 calls->context_retain(&cuda->context, cuda->device));
	if (err)
		return err;
	err = cuda_enter(cuda, &before);
	if (!err)
		err = cuda_leave(cuda, before, cuda_begin(cuda, opts->page_fd));
	if (err)
		(void)calls->context_release(cuda->device);
	return err;
}

int backend_cuda_open(const struct backend_cuda_opts *opts, struct backend **backend_out)
{
	const struct cuda_calls *calls;
	struct backend_cuda *cuda;
	int err = cuda_calls_load(&calls);

	if (err)
		return err;
	cuda = mem_zalloc(sizeof(*cuda));
	if (!cuda)
		return error_set(-ENOMEM, "cuda device: cannot allocate %zu bytes", sizeof(*cuda));
	cuda->base.ops = &cuda_ops;
	cuda->calls = calls;
	cuda->pid = getpid();
	(void)snprintf(cuda->info.name, sizeof(cuda->info.name), "cuda");
	err = cuda_start(cuda, opts);
	if (err)
		mem_free(cuda);
	else
		*backend_out = &cuda->base;
	return err;
}

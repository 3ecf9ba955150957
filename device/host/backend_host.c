#include "device/host/backend_host_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem/alloc.h"

LOCK_ROLE(host_role, "host device", LOCK_RANK_LEAF);

int host_enter(struct backend_host *host) LOCK_ACQUIRES(host_role)
{
	lock_acquire(&host->lock, &host_role);
	if (getpid() != host->pid)
		return error_set(-ECHILD, "the host device was opened before fork()");
	return 0;
}

int host_leave(struct backend_host *host, int ret) LOCK_RELEASES(host_role)
{
	lock_release(&host->lock, &host_role);
	return ret;
}

int host_copy_fd(int fd, const char *what, int *fd_out)
{
	*fd_out = mem_fail_now() ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return *fd_out < 0 ? error_set(-ENOMEM, "%s: cannot copy the fd: %m", what) : 0;
}

int host_memfd(const char *name, uint64_t bytes, int *fd_out)
{
	int ret, fd = mem_fail_now() ? -1 : memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return error_set(-ENOMEM, "%s: memfd_create failed: %m", name);
	if (ftruncate(fd, (off_t)bytes) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		ret = error_set(-ENOMEM, "%s: a memfd of %" PRIu64 " bytes: %m", name, bytes);
		close(fd);
		return ret;
	}
	*fd_out = fd;
	return 0;
}

static int host_check_size(const struct backend_host *host, const char *what, uint64_t bytes)
{
	if (bytes == 0 || bytes % host->opts.granularity)
		return error_set(-EINVAL, "%s of %" PRIu64 " bytes: not a multiple of %" PRIu64,
				 what, bytes, host->opts.granularity);
	return 0;
}

static void host_info(struct backend *backend, struct backend_info *info_out)
{
	const struct backend_host *host = host_of(backend);

	*info_out = (struct backend_info){
		.name = "host",
		.device = "memory of this host on a virtual clock",
		.device_bytes = host->opts.device_bytes,
		.granularity = host->opts.granularity,
		.caps = BACKEND_EXPORTS_FD | BACKEND_PROGRESS_PAGE | BACKEND_CPU_ADDRESSABLE,
	};
}

static int host_reserve(struct backend *backend, uint64_t bytes, uint64_t *va_out)
{
	struct backend_host *host = host_of(backend);
	void *ptr = MAP_FAILED;
	int ret = host_enter(host);

	if (ret == 0)
		ret = host_check_size(host, "reserve", bytes);
	if (ret)
		return host_leave(host, ret);
	if (ranges_room(&host->reserved) && !mem_fail_now())
		ptr = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			   0);
	if (ptr == MAP_FAILED)
		return host_leave(host, error_set(-ENOMEM, "reserve: no %" PRIu64 " bytes", bytes));
	*va_out = (uint64_t)(uintptr_t)ptr;
	ranges_add(&host->reserved, (struct range){ *va_out, bytes, 0 });
	return host_leave(host, 0);
}

static int host_unreserve(struct backend *backend, uint64_t va, uint64_t bytes)
{
	struct backend_host *host = host_of(backend);
	struct range *range;
	int ret = host_enter(host);

	if (ret)
		return host_leave(host, ret);
	range = ranges_find(&host->reserved, va);
	if (!range || range->bytes != bytes)
		ret = error_set(-EINVAL, "unreserve: no such range");
	else if (ranges_touch(&host->mapped, va, bytes))
		ret = error_set(-EBUSY, "unreserve: an extent is mapped in the range");
	else {
		munmap((void *)(uintptr_t)va, bytes);
		ranges_remove(&host->reserved, range);
	}
	return host_leave(host, ret);
}

static struct host_extent *host_extent(struct backend_host *host, uint64_t handle)
{
	if (handle == 0 || handle > host->n_extents || host->extents[handle - 1].fd < 0)
		return NULL;
	return &host->extents[handle - 1];
}

/* A free place, growing the table. 0: no memory. */
static uint64_t host_place(struct backend_host *host)
{
	size_t old = host->n_extents, n = old ? 2 * old : 16;

	for (size_t i = 0; i < old; i++) {
		if (host->extents[i].fd < 0)
			return i + 1;
	}
	if (!mem_grow(&host->extents, old, n, sizeof(*host->extents)))
		return 0;
	for (size_t i = old; i < n; i++)
		host->extents[i].fd = -1;
	host->n_extents = n;
	return old + 1;
}

static int host_extent_create(struct backend *backend, uint64_t bytes, uint64_t *handle_out)
{
	struct backend_host *host = host_of(backend);
	uint64_t handle;
	int fd, ret = host_enter(host);

	if (ret == 0)
		ret = host_check_size(host, "extent", bytes);
	if (ret == 0 && bytes > host->opts.device_bytes - host->created)
		ret = error_set(-ENOMEM,
				"extent of %" PRIu64 " bytes: the device has %" PRIu64 " left",
				bytes, host->opts.device_bytes - host->created);
	if (ret)
		return host_leave(host, ret);
	handle = host_place(host);
	ret = handle ? host_memfd("relive-extent", bytes, &fd)
		     : error_set(-ENOMEM, "extent: no memory");
	if (ret)
		return host_leave(host, ret);
	host->extents[handle - 1] = (struct host_extent){ fd, true, bytes, 0 };
	host->created += bytes;
	*handle_out = handle;
	return host_leave(host, 0);
}

static int host_extent_export(struct backend *backend, uint64_t handle, int *fd_out)
{
	struct backend_host *host = host_of(backend);
	const struct host_extent *extent;
	int ret = host_enter(host);

	if (ret)
		return host_leave(host, ret);
	extent = host_extent(host, handle);
	if (!extent)
		return host_leave(host, error_set(-EINVAL, "export: no such extent"));
	return host_leave(host, host_copy_fd(extent->fd, "export", fd_out));
}

static int host_extent_import(struct backend *backend, int fd, uint64_t bytes, uint64_t *handle_out)
{
	struct backend_host *host = host_of(backend);
	struct stat info;
	uint64_t handle;
	int copy, ret = host_enter(host);

	if (ret == 0)
		ret = host_check_size(host, "import", bytes);
	if (ret == 0 && (fstat(fd, &info) || (uint64_t)info.st_size != bytes))
		ret = error_set(-EINVAL, "import: the fd is no extent of %" PRIu64 " bytes", bytes);
	if (ret)
		return host_leave(host, ret);
	handle = host_place(host);
	ret = handle ? host_copy_fd(fd, "import", &copy) : error_set(-ENOMEM, "import: no memory");
	if (ret)
		return host_leave(host, ret);
	host->extents[handle - 1] = (struct host_extent){ copy, false, bytes, 0 };
	*handle_out = handle;
	return host_leave(host, 0);
}

static int host_extent_release(struct backend *backend, uint64_t handle)
{
	struct backend_host *host = host_of(backend);
	struct host_extent *extent;
	int ret = host_enter(host);

	if (ret)
		return host_leave(host, ret);
	extent = host_extent(host, handle);
	if (!extent)
		return host_leave(host, error_set(-EINVAL, "release: no such extent"));
	if (extent->mapped)
		return host_leave(host, error_set(-EBUSY, "release: the extent is mapped"));
	close(extent->fd);
	host->created -= extent->own ? extent->bytes : 0;
	extent->fd = -1;
	return host_leave(host, 0);
}

static int host_map(struct backend *backend, uint64_t va, uint64_t bytes, uint64_t handle)
{
	struct backend_host *host = host_of(backend);
	struct host_extent *extent;
	int ret = host_enter(host);

	if (ret)
		return host_leave(host, ret);
	extent = host_extent(host, handle);
	if (!extent || extent->bytes != bytes)
		ret = error_set(-EINVAL, "map: no extent of %" PRIu64 " bytes", bytes);
	else if (va % host->opts.granularity || !ranges_hold(&host->reserved, va, bytes))
		ret = error_set(-EINVAL, "map: the range is not reserved");
	else if (ranges_touch(&host->mapped, va, bytes))
		ret = error_set(-EBUSY, "map: an extent is mapped in the range");
	else if (!ranges_room(&host->mapped) || mem_fail_now() ||
		 mmap((void *)(uintptr_t)va, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, extent->fd,
		      0) == MAP_FAILED)
		ret = error_set(-ENOMEM, "map: mmap failed: %m");
	if (ret)
		return host_leave(host, ret);
	/* A child of fork() may outlive us: it must not keep memory that is given to others. */
	(void)madvise((void *)(uintptr_t)va, bytes, MADV_DONTFORK);
	extent->mapped++;
	ranges_add(&host->mapped, (struct range){ va, bytes, handle });
	return host_leave(host, 0);
}

static int host_set_access(struct backend *backend, uint64_t va, uint64_t bytes,
			   enum backend_access access)
{
	static const int protection[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE };
	struct backend_host *host = host_of(backend);
	int ret = host_enter(host);

	if (ret)
		return host_leave(host, ret);
	if ((unsigned)access >= ARRAY_LEN(protection) || !ranges_tile(&host->mapped, va, bytes))
		ret = error_set(-EINVAL, "set access: the range is not of whole mapped extents");
	else if (mem_fail_now() || mprotect((void *)(uintptr_t)va, bytes, protection[access]))
		ret = error_set(-ENOMEM, "set access: mprotect failed: %m");
	return host_leave(host, ret);
}

static int host_unmap(struct backend *backend, uint64_t va, uint64_t bytes)
{
	struct backend_host *host = host_of(backend);
	int ret = host_enter(host);

	if (ret)
		return host_leave(host, ret);
	if (!ranges_tile(&host->mapped, va, bytes))
		return host_leave(host, error_set(-EINVAL, "unmap: the range is not of whole "
							   "mapped extents"));
	if (mem_fail_now() ||
	    mmap((void *)(uintptr_t)va, bytes, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return host_leave(host, error_set(-ENOMEM, "unmap: mmap failed: %m"));
	while (bytes) {
		struct range *range = ranges_find(&host->mapped, va);

		va += range->bytes;
		bytes -= range->bytes;
		host->extents[range->handle - 1].mapped--;
		ranges_remove(&host->mapped, range);
	}
	return host_leave(host, 0);
}

/* All memory of the process is the device's. */
static int host_host_register(struct backend *backend, void *memory, uint64_t bytes)
{
	(void)backend;
	return memory && bytes ? 0 : error_set(-EINVAL, "register: no memory");
}

static int host_host_unregister(struct backend *backend, void *memory)
{
	(void)backend;
	return memory ? 0 : error_set(-EINVAL, "unregister: no memory");
}

static int host_host_share(struct backend *backend, void *memory, uint64_t bytes, uint64_t *va_out)
{
	*va_out = (uint64_t)(uintptr_t)memory;
	return host_host_register(backend, memory, bytes);
}

/* Batches land in place here: nobody gathers. */
static int host_gather(struct backend *backend, uint32_t stream, const struct backend_gather *work)
{
	(void)backend;
	(void)stream;
	(void)work;
	return error_set(-ENOTSUP, "gather: the host backend has none");
}

static int host_weigh(struct backend *backend, uint32_t stream, const struct backend_weights *work)
{
	(void)backend, (void)stream, (void)work;
	return error_set(-ENOTSUP, "weigh: the host backend has none");
}

static int host_graph_launch(struct backend *backend, uint32_t stream, uint64_t graph)
{
	(void)backend, (void)stream, (void)graph;
	return error_set(-ENOTSUP, "graphs: the host backend has none");
}

static int host_graph_begin(struct backend *backend, uint32_t stream)
{
	return host_graph_launch(backend, stream, 0);
}

static int host_graph_end(struct backend *backend, uint32_t stream, uint64_t *graph_out)
{
	(void)graph_out;
	return host_graph_launch(backend, stream, 0);
}

static int host_graph_drop(struct backend *backend, uint64_t graph)
{
	return graph ? host_graph_launch(backend, 0, graph) : 0;
}

static int host_event_ask(struct backend *backend, const uint8_t handle[BACKEND_EVENT_BYTES])
{
	(void)backend, (void)handle;
	return error_set(-ENOTSUP, "the host device has no events");
}

static int host_dmabuf_export(struct backend *backend, uint64_t va, uint64_t bytes, int *fd_out,
			      uint64_t *off_out)
{
	(void)backend, (void)va, (void)bytes, (void)fd_out, (void)off_out;
	return error_set(-ENOTSUP, "the host device exports no dma-buf");
}

static void host_close(struct backend *backend)
{
	struct backend_host *host = host_of(backend);

	if (getpid() == host->pid)
		host_finish(host);
	for (size_t i = 0; i < host->reserved.n; i++)
		munmap((void *)(uintptr_t)host->reserved.items[i].va,
		       host->reserved.items[i].bytes);
	for (size_t i = 0; i < host->n_extents; i++) {
		if (host->extents[i].fd >= 0)
			close(host->extents[i].fd);
	}
	munmap(host->progress, sizeof(*host->progress));
	close(host->progress_fd);
	mem_free(host->extents);
	mem_free(host->reserved.items);
	mem_free(host->mapped.items);
	lock_fini(&host->lock);
	mem_free(host);
}

static const struct backend_ops host_ops = {
	.info = host_info,
	.reserve = host_reserve,
	.unreserve = host_unreserve,
	.extent_create = host_extent_create,
	.extent_export = host_extent_export,
	.extent_import = host_extent_import,
	.extent_expose = backend_expose_nothing,
	.extent_release = host_extent_release,
	.map = host_map,
	.set_access = host_set_access,
	.unmap = host_unmap,
	.stream_open = host_stream_open,
	.stream_close = host_stream_close,
	.stream_mark = host_stream_mark,
	.stream_progress = host_stream_progress,
	.progress_export = host_progress_export,
	.event_ask = host_event_ask,
	.copy_batch = host_copy_batch,
	.fill = host_fill,
	.host_register = host_host_register,
	.host_unregister = host_host_unregister,
	.host_share = host_host_share,
	.gather = host_gather,
	.weigh = host_weigh,
	.graph_begin = host_graph_begin,
	.graph_end = host_graph_end,
	.graph_launch = host_graph_launch,
	.graph_drop = host_graph_drop,
	.dmabuf_export = host_dmabuf_export,
	.now_ns = host_now_ns,
	.close = host_close,
};

int backend_host_open(const struct backend_host_opts *opts, struct backend **backend_out)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct backend_host *host;
	int ret;

	if (opts->granularity && (!bits_is_pow2(opts->granularity) || opts->granularity < page))
		return error_set(-EINVAL,
				 "host device: granularity %" PRIu64
				 " is no power of two of at least a page",
				 opts->granularity);
	host = mem_zalloc(sizeof(*host));
	if (!host)
		return error_set(-ENOMEM, "host device: cannot allocate %zu bytes", sizeof(*host));
	host->base.ops = &host_ops;
	host->opts = *opts;
	host->opts.granularity = opts->granularity ? opts->granularity : page;
	host->pid = getpid();
	ret = host_progress_open(host);
	if (ret) {
		mem_free(host);
		return ret;
	}
	lock_init(&host->lock, &host_role);
	*backend_out = &host->base;
	return 0;
}

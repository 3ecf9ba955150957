#include "device/backend_host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/ranges.h"
#include "base/bits.h"
#include "base/mem/alloc.h"
#include "base/os/clock.h"
#include "base/os/lock.h"

static LOCK_ROLE(host_role, "host device", LOCK_RANK_LEAF);

struct host_extent {
	int fd; /* -1: the place is free */
	bool own;
	uint64_t bytes;
	uint32_t mapped;
};

enum host_op_kind { HOST_WORK, HOST_COPY, HOST_FILL, HOST_MARK };

struct host_op {
	struct host_op *next;
	enum host_op_kind kind;
	uint64_t end_ns;
	void (*fn)(void *ctx);
	void *ctx;
	struct backend_copy copy; /* a fill has its value in src, a mark its number in dst */
};

struct host_stream {
	bool open;
	uint64_t end_ns, queued;
	struct host_op *first, **tail;
};

struct backend_host {
	struct backend base;
	struct lock lock;
	struct backend_host_opts opts;
	pid_t pid;
	uint64_t now_ns, created;
	struct host_extent *extents;
	size_t n_extents;
	struct ranges reserved, mapped;
	struct host_stream streams[BACKEND_STREAMS];
	_Atomic uint64_t *progress; /* BACKEND_STREAMS words of a memfd */
	int progress_fd;
};

#define PROGRESS_BYTES (BACKEND_STREAMS * sizeof(uint64_t))

static struct backend_host *host_of(struct backend *backend)
{
	return (struct backend_host *)backend;
}

static int host_enter(struct backend_host *host) LOCK_ACQUIRES(host_role)
{
	lock_acquire(&host->lock, &host_role);
	if (getpid() != host->pid)
		return error_set(-ECHILD, "the host device was opened before fork()");
	return 0;
}

static int host_leave(struct backend_host *host, int ret) LOCK_RELEASES(host_role)
{
	lock_release(&host->lock, &host_role);
	return ret;
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
	fd = handle && !mem_fail_now() ? memfd_create("relive-extent", MFD_CLOEXEC) : -1;
	if (fd < 0)
		return host_leave(host, error_set(-ENOMEM, "extent: memfd_create failed: %m"));
	if (ftruncate(fd, (off_t)bytes)) {
		ret = error_set(-ENOMEM, "extent: ftruncate failed: %m");
		close(fd);
		return host_leave(host, ret);
	}
	host->extents[handle - 1] = (struct host_extent){ fd, true, bytes, 0 };
	host->created += bytes;
	*handle_out = handle;
	return host_leave(host, 0);
}

/* A copy of a fd that the caller closes. */
static int host_copy_fd(int fd, const char *what, int *fd_out)
{
	*fd_out = mem_fail_now() ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return *fd_out < 0 ? error_set(-ENOMEM, "%s: cannot copy the fd: %m", what) : 0;
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

static int host_stream_open(struct backend *backend, void *native, uint32_t *stream_out)
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

static int host_stream_close(struct backend *backend, uint32_t stream)
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

static int host_stream_mark(struct backend *backend, uint32_t stream, uint64_t seq)
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

static int host_stream_progress(struct backend *backend, uint32_t stream, uint64_t *seq_out)
{
	struct backend_host *host = host_of(backend);

	if (stream >= BACKEND_STREAMS)
		return error_set(-EINVAL, "no stream %" PRIu32, stream);
	/* Q2 pairs with Q1: work before the mark is seen by whoever sees the mark */
	*seq_out = atomic_load_explicit(&host->progress[stream], memory_order_acquire);
	return 0;
}

static int host_progress_export(struct backend *backend, int *fd_out)
{
	struct backend_host *host = host_of(backend);
	int ret = host_enter(host);

	if (ret == 0)
		ret = host_copy_fd(host->progress_fd, "progress", fd_out);
	return host_leave(host, ret);
}

static int host_copy_batch(struct backend *backend, uint32_t stream,
			   const struct backend_copy *copies, size_t n)
{
	struct backend_host *host = host_of(backend);
	int ret = host_enter(host);

	for (size_t i = 0; ret == 0 && i < n; i++) {
		const struct host_op op = { .kind = HOST_COPY, .copy = copies[i] };

		ret = host_queue(host, stream, &op, host_copy_ns(host, copies[i].bytes));
	}
	return host_leave(host, ret);
}

static int host_fill(struct backend *backend, uint32_t stream, uint64_t va, uint64_t bytes,
		     uint8_t value)
{
	struct backend_host *host = host_of(backend);
	const struct host_op op = { .kind = HOST_FILL, .copy = { va, value, bytes } };
	int ret = host_enter(host);

	if (ret == 0)
		ret = host_queue(host, stream, &op, host_copy_ns(host, bytes));
	return host_leave(host, ret);
}

static int host_dmabuf_export(struct backend *backend, uint64_t va, uint64_t bytes, int *fd_out,
			      uint64_t *off_out)
{
	(void)backend, (void)va, (void)bytes, (void)fd_out, (void)off_out;
	return error_set(-ENOTSUP, "the host device exports no dma-buf");
}

static uint64_t host_now_ns(struct backend *backend)
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
		atomic_store_explicit(&host->progress[stream], op->copy.dst, memory_order_release);
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

static void host_close(struct backend *backend)
{
	struct backend_host *host = host_of(backend);

	if (getpid() == host->pid)
		host_run_until(host, UINT64_MAX);
	for (size_t i = 0; i < host->reserved.n; i++)
		munmap((void *)(uintptr_t)host->reserved.items[i].va,
		       host->reserved.items[i].bytes);
	for (size_t i = 0; i < host->n_extents; i++) {
		if (host->extents[i].fd >= 0)
			close(host->extents[i].fd);
	}
	munmap((void *)(uintptr_t)host->progress, PROGRESS_BYTES);
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
	.extent_release = host_extent_release,
	.map = host_map,
	.set_access = host_set_access,
	.unmap = host_unmap,
	.stream_open = host_stream_open,
	.stream_close = host_stream_close,
	.stream_mark = host_stream_mark,
	.stream_progress = host_stream_progress,
	.progress_export = host_progress_export,
	.copy_batch = host_copy_batch,
	.fill = host_fill,
	.dmabuf_export = host_dmabuf_export,
	.now_ns = host_now_ns,
	.close = host_close,
};

static int host_progress_page(struct backend_host *host)
{
	void *ptr;

	host->progress_fd = mem_fail_now() ? -1 : memfd_create("relive-progress", MFD_CLOEXEC);
	if (host->progress_fd < 0)
		return error_set(-ENOMEM, "host device: memfd_create failed: %m");
	ptr = ftruncate(host->progress_fd, (off_t)PROGRESS_BYTES)
		      ? MAP_FAILED
		      : mmap(NULL, PROGRESS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			     host->progress_fd, 0);
	if (ptr != MAP_FAILED) {
		host->progress = ptr;
		return 0;
	}
	close(host->progress_fd);
	return error_set(-ENOMEM, "host device: cannot map the page of progress: %m");
}

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
	ret = host_progress_page(host);
	if (ret) {
		mem_free(host);
		return ret;
	}
	lock_init(&host->lock, &host_role);
	*backend_out = &host->base;
	return 0;
}

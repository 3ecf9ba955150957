#include "client/pool/backend_lease.h"

#include "device/cuda/backend_cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "base/os/fd_packet.h"
#include "base/os/pidfd.h"

static LOCK_ROLE(held_role, "extents of a job", LOCK_RANK_MEMORY);

struct held_extent {
	struct lease_ref ref;
	uint64_t handle;
	bool spare; /* leased, and in no use */
};

static struct backend_lease *lease_of(struct backend *backend)
{
	return (struct backend_lease *)backend;
}

void backend_lease_marks(const struct backend_lease *backend, uint64_t marks[LEASE_STREAMS])
{
	for (uint32_t i = 0; i < LEASE_STREAMS; i++) /* relaxed: each is a number by itself */
		marks[i] = atomic_load_explicit(&backend->marks[i], memory_order_relaxed);
}

/* -------- what is held -------- */

static int held_add(struct backend_lease *backend, const struct held_extent *one)
{
	size_t room = backend->room ? 2 * backend->room : 16;
	int ret = 0;

	lock_acquire(&backend->lock, &held_role);
	if (backend->n_held == backend->room) {
		if (mem_grow(&backend->held, backend->room, room, sizeof(*backend->held)))
			backend->room = room;
		else
			ret = error_set(-ENOMEM, "pool: cannot allocate %zu extents", room);
	}
	if (ret == 0)
		backend->held[backend->n_held++] = *one;
	lock_release(&backend->lock, &held_role);
	return ret;
}

/* The handle of a spare extent, which is in use from now on; 0: there is none. */
static uint64_t held_take_spare(struct backend_lease *backend)
{
	uint64_t handle = 0;

	lock_acquire(&backend->lock, &held_role);
	for (size_t i = 0; i < backend->n_held && !handle; i++) {
		if (!backend->held[i].spare)
			continue;
		backend->held[i].spare = false;
		handle = backend->held[i].handle;
	}
	lock_release(&backend->lock, &held_role);
	return handle;
}

/* Moves the extent of a handle to those that are given; handle 0: a spare one. False: none. */
static bool held_remove(struct backend_lease *backend, uint64_t handle, uint64_t *handle_out)
{
	bool found = false;

	lock_acquire(&backend->lock, &held_role);
	for (size_t i = 0; i < backend->n_held && !found; i++) {
		struct held_extent *one = &backend->held[i];

		if (handle ? one->handle != handle : !one->spare)
			continue;
		*handle_out = one->handle;
		backend->giving[backend->n_giving] = one->ref;
		backend->giving[backend->n_giving++].flags = 0;
		*one = backend->held[--backend->n_held];
		found = true;
	}
	lock_release(&backend->lock, &held_role);
	return found;
}

/* Fills a message with up to LEASE_REFS held extents from `from` on, and their descriptors. Returns
   how many, or an error. */
static int held_fill(struct backend_lease *backend, size_t from, struct lease_message *message)
{
	int ret = 0;

	memset(message, 0, sizeof(*message));
	for (size_t i = from; i < backend->n_held && message->n_fds < LEASE_REFS && ret == 0; i++) {
		ret = backend->inner->ops->extent_export(backend->inner, backend->held[i].handle,
							 &message->fds[message->n_fds]);
		if (ret == 0)
			message->refs.refs[message->n_fds++] = backend->held[i].ref;
	}
	if (ret) {
		lease_close_fds(message);
		return ret;
	}
	message->refs.n = (uint32_t)message->n_fds;
	if (from + message->n_fds == backend->n_held)
		message->refs.flags = LEASE_LAST;
	backend_lease_marks(backend, message->refs.marks);
	return (int)message->n_fds;
}

/* Tells a broker all that the job holds. Extents that were to be given are not among it. */
static int lease_present(void *ctx)
{
	struct backend_lease *backend = ctx;
	struct lease_message message;
	int fds[LEASE_REFS], ret;
	size_t from = 0;
	bool last = false;

	lock_acquire(&backend->lock, &held_role);
	backend->n_giving = 0;
	do {
		int n = held_fill(backend, from, &message);

		ret = n < 0 ? n : 0;
		if (ret)
			break;
		last = message.refs.flags & LEASE_LAST;
		memcpy(fds, message.fds, sizeof(fds));
		ret = lease_ask(&backend->lease, &message, LEASE_HOLD);
		for (int i = 0; i < n; i++)
			close(fds[i]);
		from += (size_t)n;
	} while (ret == 0 && !last);
	lock_release(&backend->lock, &held_role);
	return ret;
}

/* -------- the backend -------- */

static int lease_take(struct backend_lease *backend)
{
	uint32_t n = atomic_load_explicit(&backend->want, memory_order_relaxed); /* a hint */
	struct lease_message message = { .n_fds = 0 };
	int ret;

	message.take.n = n == 0 ? 1 : (uint32_t)min_u64(n, LEASE_REFS);
	ret = lease_request(&backend->lease, &message, LEASE_TAKE,
			    deadline_after(clock_monotonic(), backend->timeout_ns));
	for (uint32_t i = 0; ret == 0 && i < message.answer.n; i++) {
		struct held_extent one = { .ref = message.answer.refs[i], .spare = true };

		one.ref.flags = 0;
		ret = backend->inner->ops->extent_import(backend->inner, message.fds[i],
							 backend->extent_bytes, &one.handle);
		if (ret == 0)
			ret = held_add(backend, &one);
	}
	lease_close_fds(&message);
	return ret;
}

static int lease_extent_create(struct backend *base, uint64_t bytes, uint64_t *handle_out)
{
	struct backend_lease *backend = lease_of(base);
	int ret = 0;

	if (bytes != backend->extent_bytes)
		return error_set(-EINVAL, "an extent of the pool has %" PRIu64 " bytes",
				 backend->extent_bytes);
	*handle_out = held_take_spare(backend);
	if (!*handle_out)
		ret = lease_take(backend);
	if (ret == 0 && !*handle_out)
		*handle_out = held_take_spare(backend);
	if (ret == 0 && !*handle_out) /* the broker was lost in between */
		ret = error_set(-EAGAIN, "the extents that came are gone");
	return ret;
}

static int lease_give(struct backend_lease *backend)
{
	struct lease_message message = { .n_fds = 0 };

	lock_acquire(&backend->lock, &held_role);
	message.refs.n = backend->n_giving;
	memcpy(message.refs.refs, backend->giving, message.refs.n * sizeof(backend->giving[0]));
	backend->n_giving = 0;
	lock_release(&backend->lock, &held_role);
	if (message.refs.n == 0)
		return 0;
	backend_lease_marks(backend, message.refs.marks);
	return lease_request(&backend->lease, &message, LEASE_GIVE,
			     deadline_after(clock_monotonic(), backend->timeout_ns));
}

/* Ends a handle and lists its extent; handle 0: those of all spare ones. */
static int lease_release(struct backend_lease *backend, uint64_t handle)
{
	uint64_t found;
	int ret = 0;

	while (ret == 0 && held_remove(backend, handle, &found)) {
		ret = backend->inner->ops->extent_release(backend->inner, found);
		if (ret == 0 && backend->n_giving == LEASE_REFS)
			ret = lease_give(backend);
		if (handle)
			break;
	}
	return ret;
}

static int lease_extent_release(struct backend *base, uint64_t handle)
{
	return lease_release(lease_of(base), handle);
}

/* Marks the extent of a handle, or takes the mark back. False: it was so already. */
static bool held_expose(struct backend_lease *backend, uint64_t handle, bool exposed,
			struct lease_ref *ref_out)
{
	bool changed = false;

	lock_acquire(&backend->lock, &held_role);
	for (size_t i = 0; i < backend->n_held; i++) {
		struct held_extent *one = &backend->held[i];

		if (one->handle != handle)
			continue;
		*ref_out = one->ref;
		changed = exposed != (one->ref.flags & LEASE_EXPOSED);
		one->ref.flags = exposed ? LEASE_EXPOSED : 0;
	}
	lock_release(&backend->lock, &held_role);
	return changed;
}

static int lease_extent_expose(struct backend *base, uint64_t handle)
{
	struct backend_lease *backend = lease_of(base);
	struct lease_message message = { .refs = { .n = 1 } };
	struct lease_ref *ref = &message.refs.refs[0], unused;
	int ret;

	/* Before it is said, so that a broker that is started meanwhile is told, too. */
	if (!held_expose(backend, handle, true, ref))
		return 0;
	ret = lease_request(&backend->lease, &message, LEASE_EXPOSE,
			    deadline_after(clock_monotonic(), backend->timeout_ns));
	if (ret)
		(void)held_expose(backend, handle, false, &unused);
	else
		lease_close_fds(&message);
	return ret;
}

int backend_lease_flush(struct backend_lease *backend)
{
	int ret = lease_release(backend, 0);

	return ret ? ret : lease_give(backend);
}

static void lease_info(struct backend *base, struct backend_info *info_out)
{
	struct backend_lease *backend = lease_of(base);

	backend->inner->ops->info(backend->inner, info_out);
	info_out->device_bytes = backend->device_bytes;
}

static int lease_stream_mark(struct backend *base, uint32_t stream, uint64_t seq)
{
	struct backend_lease *backend = lease_of(base);
	int ret = backend->inner->ops->stream_mark(backend->inner, stream, seq);

	if (ret == 0)
		atomic_store_explicit(&backend->marks[stream], seq, memory_order_relaxed);
	return ret;
}

/* Calls that are passed on as they are. */
#define PASS(name, parameters, ...) \
	static int lease_##name parameters \
	{ \
		struct backend *inner = lease_of(base)->inner; \
\
		return inner->ops->name(inner, __VA_ARGS__); \
	}

PASS(reserve, (struct backend * base, uint64_t bytes, uint64_t *va_out), bytes, va_out)
PASS(unreserve, (struct backend * base, uint64_t va, uint64_t bytes), va, bytes)
PASS(extent_export, (struct backend * base, uint64_t handle, int *fd_out), handle, fd_out)
PASS(extent_import, (struct backend * base, int fd, uint64_t bytes, uint64_t *out), fd, bytes, out)
PASS(map, (struct backend * base, uint64_t va, uint64_t bytes, uint64_t handle), va, bytes, handle)
PASS(set_access, (struct backend * base, uint64_t va, uint64_t bytes, enum backend_access access),
     va, bytes, access)
PASS(unmap, (struct backend * base, uint64_t va, uint64_t bytes), va, bytes)
PASS(stream_open, (struct backend * base, void *native, uint32_t *stream_out), native, stream_out)
PASS(stream_close, (struct backend * base, uint32_t stream), stream)
PASS(stream_progress, (struct backend * base, uint32_t stream, uint64_t *seq_out), stream, seq_out)
PASS(copy_batch,
     (struct backend * base, uint32_t stream, const struct backend_copy *copies, size_t n), stream,
     copies, n)
PASS(fill, (struct backend * base, uint32_t stream, uint64_t va, uint64_t bytes, uint8_t value),
     stream, va, bytes, value)
PASS(host_register, (struct backend * base, void *memory, uint64_t bytes), memory, bytes)
PASS(host_unregister, (struct backend * base, void *memory), memory)
PASS(host_share, (struct backend * base, void *memory, uint64_t bytes, uint64_t *va_out), memory,
     bytes, va_out)
PASS(gather, (struct backend * base, uint32_t stream, const struct backend_gather *work), stream,
     work)
PASS(weigh, (struct backend * base, uint32_t stream, const struct backend_weights *work), stream,
     work)
PASS(graph_begin, (struct backend * base, uint32_t stream), stream)
PASS(graph_end, (struct backend * base, uint32_t stream, uint64_t *graph_out), stream, graph_out)
PASS(graph_launch, (struct backend * base, uint32_t stream, uint64_t graph), stream, graph)
PASS(graph_drop, (struct backend * base, uint64_t graph), graph)
PASS(dmabuf_export,
     (struct backend * base, uint64_t va, uint64_t bytes, int *fd_out, uint64_t *off_out), va,
     bytes, fd_out, off_out)
PASS(progress_export, (struct backend * base, int *fd_out), fd_out)
PASS(event_ask, (struct backend * base, const uint8_t handle[BACKEND_EVENT_BYTES]), handle)

static uint64_t lease_now_ns(struct backend *base)
{
	struct backend *inner = lease_of(base)->inner;

	return inner->ops->now_ns(inner);
}

static int lease_make_permit(struct lease *lease)
{
	const size_t bytes = sizeof(*lease->permit);
	void *permit;

	lease->permit_fd = memfd_create("relive-permit", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (lease->permit_fd < 0 || ftruncate(lease->permit_fd, (off_t)bytes) ||
	    fcntl(lease->permit_fd, F_ADD_SEALS, F_SEAL_SHRINK))
		return error_set(-ENOMEM, "pool: a memfd of %zu bytes: %m", bytes);
	permit = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, lease->permit_fd, 0);
	if (permit == MAP_FAILED)
		return error_set(-ENOMEM, "pool: mmap of its permit: %m");
	lease->permit = permit;
	return 0;
}

static void lease_close_files(struct lease *lease)
{
	if (lease->permit)
		munmap(lease->permit, sizeof(*lease->permit));
	fd_packet_close(&lease->permit_fd, 1);
	fd_packet_close(&lease->page_fd, 1);
	fd_packet_close(&lease->pidfd, 1);
}

static void lease_backend_close(struct backend *base)
{
	struct backend_lease *backend = lease_of(base);

	lease_close(&backend->lease);
	lease_close_files(&backend->lease);
	backend->inner->ops->close(backend->inner);
	lock_fini(&backend->lock);
	mem_free(backend->held);
	mem_free(backend);
}

static const struct backend_ops lease_ops = {
	.info = lease_info,
	.reserve = lease_reserve,
	.unreserve = lease_unreserve,
	.extent_create = lease_extent_create,
	.extent_export = lease_extent_export,
	.extent_import = lease_extent_import,
	.extent_expose = lease_extent_expose,
	.extent_release = lease_extent_release,
	.map = lease_map,
	.set_access = lease_set_access,
	.unmap = lease_unmap,
	.stream_open = lease_stream_open,
	.stream_close = lease_stream_close,
	.stream_mark = lease_stream_mark,
	.stream_progress = lease_stream_progress,
	.progress_export = lease_progress_export,
	.event_ask = lease_event_ask,
	.copy_batch = lease_copy_batch,
	.fill = lease_fill,
	.host_register = lease_host_register,
	.host_unregister = lease_host_unregister,
	.host_share = lease_host_share,
	.gather = lease_gather,
	.weigh = lease_weigh,
	.graph_begin = lease_graph_begin,
	.graph_end = lease_graph_end,
	.graph_launch = lease_graph_launch,
	.graph_drop = lease_graph_drop,
	.dmabuf_export = lease_dmabuf_export,
	.now_ns = lease_now_ns,
	.close = lease_backend_close,
};

/* The device that the broker answered with, in place of the host's, over the same page. */
static int lease_open_cuda(struct backend_lease *backend, struct backend **inner)
{
	const struct backend_cuda_opts opts = { .device = backend->cuda,
						.page_fd = backend->lease.page_fd };
	struct backend *cuda;
	int ret = backend_cuda_open(&opts, &cuda);

	if (ret)
		return error_prefix(ret, "device of the pool: ");
	(*inner)->ops->close(*inner);
	*inner = cuda;
	return 0;
}

/* Leaves a pool whose device this process cannot open. */
static void lease_leave(struct backend_lease *backend)
{
	struct lease_message bye = { .n_fds = 0 };
	struct error_kept kept;

	error_keep(&kept);
	if (lease_request(&backend->lease, &bye, LEASE_BYE, 0) == 0)
		lease_close_fds(&bye);
	lease_close(&backend->lease);
	error_restore(&kept);
}

int backend_lease_open(const char *pool, const struct lease_hello *hello, struct backend **inner,
		       struct backend_lease **backend_out)
{
	struct backend_lease *backend = mem_zalloc(sizeof(*backend));
	struct lease_message answer;
	int ret;

	if (!backend)
		return error_set(-ENOMEM, "pool: cannot allocate %zu bytes", sizeof(*backend));
	backend->base.ops = &lease_ops;
	backend->lease = (struct lease){ .hello = *hello,
					 .pidfd = -1,
					 .page_fd = -1,
					 .permit_fd = -1,
					 .present = lease_present,
					 .ctx = backend };
	memcpy(backend->lease.pool, pool, strlen(pool) + 1);
	ret = pidfd_open_self(&backend->lease.pidfd);
	if (ret == 0)
		ret = (*inner)->ops->progress_export(*inner, &backend->lease.page_fd);
	if (ret == 0)
		ret = lease_make_permit(&backend->lease);
	if (ret == 0)
		ret = lease_open(&backend->lease, &answer);
	if (ret == 0) {
		backend->extent_bytes = answer.answer.extent_bytes;
		backend->device_bytes = answer.answer.device_bytes;
		backend->device = answer.answer.device;
		backend->cuda = (int32_t)answer.answer.cuda - 1;
		ret = backend->cuda < 0 ? 0 : lease_open_cuda(backend, inner);
		if (ret)
			lease_leave(backend);
	}
	if (ret) {
		lease_close_files(&backend->lease);
		mem_free(backend);
		return ret;
	}
	backend->inner = *inner;
	lock_init(&backend->lock, &held_role);
	*backend_out = backend;
	return 0;
}

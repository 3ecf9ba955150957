/*
 * landing.c - landings and their buffers.
 */
#include "client/landing/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/pool/pool.h"
#include "client/store/abi.h"
#include "device/cuda/backend_cuda.h"

#include "base/bits.h"
#include "base/log.h"
#include "base/mem/alloc.h"
#include "base/mem/chunk.h"
#include "base/os/clock.h"

#define BUFFER_ALIGN 4096u /* page-locked memory is whole pages */

LOCK_ROLE(landing_role, "landing", LOCK_RANK_OBJECT);

int landing_enter(const struct rlv_landing *landing)
{
	if (!landing)
		return error_set(-EINVAL, "landing is NULL");
	if (getpid() != landing->pid)
		return error_set(-ECHILD, "the landing was opened before fork(): open one here");
	return 0;
}

/* -------- open and close -------- */

/* Notes why the host's memory cannot be page-locked, if it cannot: copies take a way around then. */
static int landing_probe_pinned(struct rlv_landing *landing) LOCK_UNCHECKED
{
	const struct backend_ops *ops = landing->backend->ops;
	void *page = chunk_alloc(BUFFER_ALIGN, BUFFER_ALIGN);
	int ret;

	if (!page)
		return error_set(-ENOMEM, "landing: cannot allocate a page");
	ret = ops->host_register(landing->backend, page, BUFFER_ALIGN);
	if (ret && ret != -ENODEV) {
		snprintf(landing->unpinned, sizeof(landing->unpinned), "%s", error_last());
		landing->info.path = RLV_LANDING_PLAIN;
		ret = 0;
	} else if (ret == 0) {
		ret = ops->host_unregister(landing->backend, page);
		if (ret)
			return ret; /* the page is the driver's */
	}
	chunk_free(page, BUFFER_ALIGN);
	return ret;
}

/* After an error, which is kept. */
static void landing_close_device(struct rlv_landing *landing)
{
	struct error_kept kept;

	error_keep(&kept);
	landing->backend->ops->close(landing->backend);
	error_restore(&kept);
}

/* The device's backend in this process, with the stream that copies. */
static int landing_open_device(struct rlv_landing *landing, uint32_t wish) LOCK_UNCHECKED
{
	const struct backend_cuda_opts opts = { .device = landing->info.device };
	struct landing_stream *own = &landing->streams[landing->n_streams++];
	struct backend_info info;
	int ret = backend_cuda_open(&opts, &landing->backend);

	if (ret)
		return ret;
	ret = landing->backend->ops->stream_open(landing->backend, NULL, &own->number);
	if (ret == 0 && wish != RLV_LANDING_PINNED && wish != RLV_LANDING_GATHER)
		ret = landing_probe_pinned(landing);
	if (ret == 0 && landing->gathers) /* loads the kernel */
		ret = landing->backend->ops->gather(landing->backend, own->number,
						    &(struct backend_gather){ 0 });
	if (ret == 0 && landing->graphs)
		ret = landing->backend->ops->graph_launch(landing->backend, own->number, 0);
	if (ret) {
		landing_close_device(landing);
		return ret;
	}
	landing->backend->ops->info(landing->backend, &info);
	memcpy(landing->info.name, info.device, sizeof(landing->info.name));
	return 0;
}

static int landing_read_opts(const struct rlv_landing_opts *opts, struct rlv_landing_opts *full)
{
	int ret = opts ? abi_read(full, sizeof(*full), opts, "opts.") : 0;

	if (ret)
		return ret;
	if (full->device < 0 || (full->pool && full->device))
		return error_set(-EINVAL,
				 "opts.device %d: want the number of a CUDA device, or "
				 "opts.pool, which has its own",
				 full->device);
	if (full->path == RLV_LANDING_IN_PLACE || full->path > RLV_LANDING_PEERMEM)
		return error_set(-EINVAL,
				 "opts.path %u: want 0, RLV_LANDING_PINNED, RLV_LANDING_GATHER, "
				 "RLV_LANDING_DMABUF or RLV_LANDING_PEERMEM",
				 full->path);
	if (full->avoid & ~(1u << RLV_LANDING_DMABUF | 1u << RLV_LANDING_PEERMEM) ||
	    (full->path && full->avoid & 1u << full->path))
		return error_set(-EINVAL,
				 "opts.avoid 0x%x: want 1 << RLV_LANDING_DMABUF, "
				 "1 << RLV_LANDING_PEERMEM, and not that of opts.path",
				 full->avoid);
	if (full->strict > 1 || (full->strict && !full->path))
		return error_set(-EINVAL, "opts.strict %u: want 0, or 1 with opts.path",
				 full->strict);
	if (full->graph > 1 || (full->graph && full->path != RLV_LANDING_GATHER))
		return error_set(-EINVAL, "opts.graph %u: want 0, or 1 with RLV_LANDING_GATHER",
				 full->graph);
	if (full->weights > RLV_LANDING_WEIGHTS_DEVICE)
		return error_set(-EINVAL, "opts.weights %u: not an rlv_landing_weights",
				 full->weights);
	if (full->timeout_ns < 0 || full->unwaited > 1)
		return error_set(-EINVAL, "opts.timeout_ns: want 0 or more; opts.unwaited: 0 or 1");
	return 0;
}

/* NULL: nothing, as far as it shows before a sampler comes. */
static const char *strict_lacks(const struct rlv_landing *landing) LOCK_UNCHECKED
{
	struct backend_info info = { 0 };

	if (!landing->strict)
		return NULL;
	if (!landing->backend)
		return "the device's memory is the host's";
	if (landing->asked < RLV_LANDING_DMABUF)
		return NULL;
	if (landing->pool && landing->asked == RLV_LANDING_PEERMEM)
		return landing_pool_needs_dmabuf;
	landing->backend->ops->info(landing->backend, &info);
	return landing->asked == RLV_LANDING_DMABUF && !(info.caps & BACKEND_EXPORTS_DMABUF)
		       ? landing_no_dmabuf
		       : NULL;
}

/* What options say, and the device. */
static int landing_begin(struct rlv_landing *landing,
			 const struct rlv_landing_opts *opts) LOCK_UNCHECKED
{
	const char *lacks;
	int ret = 0;

	landing->asked = opts->path;
	landing->strict = opts->strict;
	landing->avoid = opts->avoid;
	if (landing->pool || (opts->strict && opts->path == RLV_LANDING_DMABUF))
		landing->avoid |= 1u << RLV_LANDING_PEERMEM;
	landing->way = RLV_LANDING_PINNED;
	if (landing->info.device >= 0) {
		landing->gathers = opts->path == RLV_LANDING_GATHER;
		landing->graphs = opts->graph;
		landing->info.path = landing->gathers ? RLV_LANDING_GATHER : RLV_LANDING_PINNED;
		landing_choose_way(landing);
		ret = landing_open_device(landing, opts->path);
		if (ret)
			return ret;
	}
	lacks = strict_lacks(landing);
	if (lacks)
		ret = error_set(-ENOTSUP, "landing: opts.path %s, opts.strict: %s",
				rlv_landing_path_name(landing->asked), lacks);
	if (ret == 0)
		ret = landing_choose_weights(landing, opts->weights);
	if (ret && landing->backend)
		landing_close_device(landing);
	return ret;
}

int rlv_landing_open(const struct rlv_landing_opts *opts,
		     struct rlv_landing **landing_out) LOCK_UNCHECKED
{
	struct rlv_landing_opts full = RLV_LANDING_OPTS_INIT;
	struct rlv_landing *landing;
	int ret = landing_out ? landing_read_opts(opts, &full)
			      : error_set(-EINVAL, "landing_out is NULL");

	if (ret)
		return ret;
	landing = mem_zalloc(sizeof(*landing));
	if (!landing)
		return error_set(-ENOMEM, "landing: cannot allocate memory");
	landing->pid = getpid();
	landing->pool = full.pool;
	landing->unwaited = full.unwaited;
	landing->timeout_ns = full.timeout_ns ? full.timeout_ns : 30 * CLOCK_NS_PER_S;
	landing->info = (struct rlv_landing_info){
		.path = RLV_LANDING_IN_PLACE,
		.device = full.pool ? pool_cuda_device(full.pool) : full.device,
		.name = "host",
	};
	if (landing->pool)
		ret = rlv_pool_stream(landing->pool, NULL, &landing->pool_stream);
	if (ret == 0)
		ret = landing_begin(landing, &full);
	if (ret) {
		mem_free(landing);
		return ret;
	}
	lock_init(&landing->lock, &landing_role);
	*landing_out = landing;
	return 0;
}

int rlv_landing_close(struct rlv_landing **landing_inout) LOCK_UNCHECKED
{
	struct rlv_landing *landing = landing_inout ? *landing_inout : NULL;
	uint32_t buffers;

	if (!landing)
		return 0;
	if (getpid() != landing->pid) { /* the parent's: it is not touched */
		*landing_inout = NULL;
		return landing_enter(landing);
	}
	lock_acquire(&landing->lock, &landing_role);
	buffers = landing->info.buffers;
	if (!buffers)
		landing_end_ranges(landing);
	lock_release(&landing->lock, &landing_role);
	if (buffers)
		return error_set(-EBUSY,
				 "landing: %u buffers are left: close the samplers that land here",
				 buffers);
	*landing_inout = NULL;
	if (landing->backend)
		landing->backend->ops->close(landing->backend);
	landing_forget_ranges(landing);
	lock_fini(&landing->lock);
	mem_free(landing);
	return 0;
}

int rlv_landing_info(struct rlv_landing *landing, struct rlv_landing_info *info_out)
{
	struct rlv_landing_info info;
	int ret = landing_enter(landing);

	if (ret == 0)
		ret = abi_check(info_out, "info_out->");
	if (ret)
		return ret;
	lock_acquire(&landing->lock, &landing_role);
	info = landing->info;
	lock_release(&landing->lock, &landing_role);
	abi_write(info_out, &info, sizeof(info));
	return 0;
}

/* -------- both sides of a buffer -------- */

/* Memory of the device without a pool: one extent at a range of its own. */
static int side_take(struct rlv_landing *landing, struct landing_buffer *buffer)
{
	struct backend *dev = landing->backend;
	const struct backend_ops *ops = dev->ops;
	struct backend_info info;
	uint64_t bytes;
	int ret;

	ops->info(dev, &info);
	bytes = align_up(buffer->bytes, info.granularity);
	ret = ops->extent_create(dev, bytes, &buffer->extent);
	if (ret)
		return ret;
	ret = ops->reserve(dev, bytes, &buffer->at);
	if (ret)
		goto err_release;
	ret = ops->map(dev, buffer->at, bytes, buffer->extent);
	if (ret)
		goto err_unreserve;
	ret = ops->set_access(dev, buffer->at, bytes, BACKEND_ACCESS_READ_WRITE);
	if (ret)
		goto err_unmap;
	buffer->device_bytes = bytes;
	return 0;
err_unmap:
	(void)ops->unmap(dev, buffer->at, bytes);
err_unreserve:
	(void)ops->unreserve(dev, buffer->at, bytes);
err_release:
	(void)ops->extent_release(dev, buffer->extent);
	return ret;
}

/* With a pool: a tensor. Its own work is awaited before it is freed, so that any stream will do. */
static int side_take_tensor(struct rlv_landing *landing, struct landing_buffer *buffer)
{
	void *tensor;
	int ret = rlv_pool_alloc(landing->pool, RLV_POOL_STAGING, buffer->bytes,
				 landing->pool_stream, &tensor);

	if (ret)
		return ret;
	buffer->at = (uint64_t)(uintptr_t)tensor;
	buffer->device_bytes = buffer->bytes;
	return 0;
}

/* A device that is lost has no memory left to give: errors are of no use. */
static void side_give(struct rlv_landing *landing, struct landing_buffer *buffer)
{
	struct backend *dev = landing->backend;

	if (landing->pool || !dev)
		return;
	(void)dev->ops->unmap(dev, buffer->at, buffer->device_bytes);
	(void)dev->ops->unreserve(dev, buffer->at, buffer->device_bytes);
	(void)dev->ops->extent_release(dev, buffer->extent);
}

/* Without the landing's lock: the pool has its own, and may wait for other jobs. */
static void side_give_tensor(struct rlv_landing *landing, const struct landing_buffer *buffer)
{
	if (buffer->exported)
		pool_tensor_dmabuf_end(landing->pool);
	if (landing->pool) /* as of side_give */
		(void)!rlv_pool_free(landing->pool, (void *)(uintptr_t)buffer->at, 0);
}

/* With a pool the device's side is there. */
static int buffer_take_sides(struct rlv_landing *landing, struct landing_buffer *buffer)
{
	struct backend *dev = landing->backend;
	int ret = landing->pool ? 0 : side_take(landing, buffer);

	if (ret || !dev) {
		buffer->host = (uint8_t *)(uintptr_t)buffer->at;
		return ret;
	}
	buffer->host = chunk_alloc(BUFFER_ALIGN, buffer->bytes);
	if (!buffer->host)
		ret = error_set(-ENOMEM, "landing: cannot allocate %zu bytes", buffer->bytes);
	else if (!landing->unpinned[0])
		ret = dev->ops->host_register(dev, buffer->host, buffer->bytes);
	buffer->pinned = !landing->unpinned[0];
	if (ret) {
		struct error_kept kept;

		error_keep(&kept);
		chunk_free(buffer->host, buffer->bytes);
		side_give(landing, buffer);
		error_restore(&kept);
	}
	return ret;
}

/* Memory that the device still knows is nobody else's. */
static void buffer_give_sides(struct rlv_landing *landing, struct landing_buffer *buffer)
{
	struct backend *dev = landing->backend;

	landing_unlend(buffer);
	if (dev && (!buffer->pinned || dev->ops->host_unregister(dev, buffer->host) == 0))
		chunk_free(buffer->host, buffer->bytes);
	side_give(landing, buffer);
}

int rlv_landing_alloc(struct rlv_landing *landing, size_t align, size_t bytes, void **buffer_out)
{
	struct landing_buffer *buffer;
	int ret = landing_enter(landing);

	if (ret == 0 && !buffer_out)
		ret = error_set(-EINVAL, "buffer_out is NULL");
	if (ret == 0 &&
	    (!bits_is_pow2(align) || align > BUFFER_ALIGN || !bytes || bytes > SIZE_MAX / 2))
		ret = error_set(-EINVAL,
				"align %zu, bytes %zu: want a power of two up to %u, and bytes",
				align, bytes, BUFFER_ALIGN);
	if (ret)
		return ret;
	buffer = mem_zalloc(sizeof(*buffer));
	if (!buffer)
		return error_set(-ENOMEM, "landing: cannot allocate memory");
	buffer->bytes = align_up(bytes, BUFFER_ALIGN);
	buffer->side.dmabuf_fd = -1;
	ret = landing->pool ? side_take_tensor(landing, buffer) : 0;
	if (ret) {
		mem_free(buffer);
		return ret;
	}
	lock_acquire(&landing->lock, &landing_role);
	ret = buffer_take_sides(landing, buffer);
	if (ret == 0) {
		buffer->next = landing->buffers;
		landing->buffers = buffer;
		landing->info.buffers++;
		landing->info.bytes += buffer->device_bytes;
		*buffer_out = buffer->host;
	}
	lock_release(&landing->lock, &landing_role);
	if (ret) {
		struct error_kept kept;

		error_keep(&kept);
		side_give_tensor(landing, buffer);
		error_restore(&kept);
		mem_free(buffer);
	}
	return ret;
}

struct landing_buffer *landing_find(struct rlv_landing *landing, const void *ptr)
{
	const uint8_t *at = ptr;
	struct landing_buffer *buffer = landing->buffers;

	while (buffer && (at < buffer->host || at >= buffer->host + buffer->bytes))
		buffer = buffer->next;
	if (!buffer)
		(void)error_set(-EINVAL, "landing: %p is in none of its buffers", ptr);
	return buffer;
}

void rlv_landing_free(struct rlv_landing *landing, void *memory, size_t bytes)
{
	struct landing_buffer *buffer, **link;
	int ret = 0;

	(void)bytes;
	if (!memory || !landing || getpid() != landing->pid)
		return;
	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, memory);
	if (buffer) {
		ret = landing_mark_uses(landing, buffer);
		if (ret == 0)
			ret = landing_await_uses(landing, buffer);
		for (link = &landing->buffers; *link != buffer;)
			link = &(*link)->next;
		*link = buffer->next;
		landing->info.buffers--;
		landing->info.bytes -= buffer->device_bytes;
		landing_drop_graph(landing, buffer);
		if (ret == 0 || ret == -ENODEV)
			buffer_give_sides(landing, buffer);
		else
			log_error("landing: a buffer is left to the device: %s", error_last());
	}
	lock_release(&landing->lock, &landing_role);
	if (buffer && (ret == 0 || ret == -ENODEV))
		side_give_tensor(landing, buffer);
	mem_free(buffer);
}

int rlv_landing_device(struct rlv_landing *landing, const void *ptr, uint64_t *address_out)
{
	const struct landing_buffer *buffer;
	int ret = landing_enter(landing);

	if (ret == 0 && !address_out)
		ret = error_set(-EINVAL, "address_out is NULL");
	if (ret)
		return ret;
	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, ptr);
	if (buffer)
		*address_out = buffer->at + (uint64_t)((const uint8_t *)ptr - buffer->host);
	lock_release(&landing->lock, &landing_role);
	return buffer ? 0 : -EINVAL;
}

bool landing_is_in_place(const struct rlv_landing *landing)
{
	return !landing->backend;
}

void *landing_alloc_hook(void *ctx, size_t align, size_t bytes)
{
	void *buffer;

	return rlv_landing_alloc(ctx, align, bytes, &buffer) ? NULL : buffer;
}

void landing_free_hook(void *ctx, void *buffer, size_t bytes)
{
	rlv_landing_free(ctx, buffer, bytes);
}

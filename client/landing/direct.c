/*
 * direct.c - buffers whose device's side is filled by RDMA READs.
 *
 *   dma-buf of the driver ─> registered by the RDMA device ─┐
 *   address of the device ─> the same, by a peer driver ────┴─> READs; if neither works: a copy
 *
 * Memory of a pool comes as a dma-buf of the pool, or by a copy.
 * What fails once is not tried again by this landing.
 */
#include "client/landing/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem/chunk.h"

#include "client/pool/pool.h"

bool landing_is_direct(const struct rlv_landing *landing)
{
	return landing->direct;
}

bool landing_is_asked(const struct rlv_landing *landing)
{
	return landing->asked;
}

bool landing_is_strict(const struct rlv_landing *landing)
{
	return landing->strict;
}

/* The best way from this one on that is not avoided. */
static uint32_t way_from(const struct rlv_landing *landing, uint32_t way)
{
	while (way <= RLV_LANDING_PEERMEM && landing->avoid & 1u << way)
		way++;
	return way <= RLV_LANDING_PEERMEM ? way : RLV_LANDING_PINNED;
}

void landing_choose_way(struct rlv_landing *landing) LOCK_UNCHECKED
{
	bool by_rdma = !landing->asked || landing->asked >= RLV_LANDING_DMABUF;

	landing->way =
		by_rdma ? way_from(landing, landing->asked ? landing->asked : RLV_LANDING_DMABUF)
			: RLV_LANDING_PINNED;
	landing->direct = landing->way != RLV_LANDING_PINNED;
}

/* After an error of the best way: adds it to the reason. */
static void direct_fall(struct rlv_landing *landing) LOCK_REQUIRES(landing_role)
{
	bool dmabuf = landing->way == RLV_LANDING_DMABUF;
	size_t used = strnlen(landing->fallen, sizeof(landing->fallen) - 1);

	(void)snprintf(landing->fallen + used, sizeof(landing->fallen) - used, "%s%s: %s",
		       used ? "; " : "", dmabuf ? "as a dma-buf" : "by its address", error_last());
	log_info("landing: batches do not come by RDMA, %s: %s",
		 dmabuf ? "as a dma-buf" : "by its address", error_last());
	landing->way = way_from(landing, landing->way + 1);
}

/* Describes the device's side as the best way needs it. */
static int direct_lend(struct rlv_landing *landing, struct landing_buffer *buffer)
	LOCK_REQUIRES(landing_role)
{
	bool dmabuf = landing->way == RLV_LANDING_DMABUF;
	struct mem *side = &buffer->side;

	if (!side->len) {
		side->kind = MEM_DEVICE;
		side->ptr = (uint8_t *)(uintptr_t)buffer->at;
		if (!chunk_lend(side))
			return error_set(-ENOMEM, "all handles of memory are in use");
		side->len = buffer->device_bytes;
	}
	if (!dmabuf && side->dmabuf_fd >= 0) {
		(void)close(side->dmabuf_fd);
		side->dmabuf_fd = -1;
	}
	if (!dmabuf || side->dmabuf_fd >= 0)
		return 0;
	return landing->backend->ops->dmabuf_export(landing->backend, buffer->at, side->len,
						    &side->dmabuf_fd, &side->dmabuf_off);
}

void landing_unlend(struct landing_buffer *buffer)
{
	if (buffer->side.len)
		chunk_unlend(&buffer->side);
	if (buffer->side.dmabuf_fd >= 0)
		(void)close(buffer->side.dmabuf_fd);
	buffer->side.dmabuf_fd = -1;
	buffer->side.len = 0;
}

/* A buffer that a pool has to lend a dma-buf of, unless it did; NULL: there is none. */
static struct landing_buffer *direct_lacks_dmabuf(struct rlv_landing *landing, const void *host)
{
	struct landing_buffer *buffer;

	if (!landing->pool)
		return NULL;
	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, host);
	if (buffer && (buffer->exported || landing->way != RLV_LANDING_DMABUF))
		buffer = NULL;
	lock_release(&landing->lock, &landing_role);
	return buffer;
}

/* Without the landing's lock: the pool has its own, and asks its broker. The buffer stays: a batch lands there. */
static void direct_export(struct rlv_landing *landing, const void *host)
{
	struct landing_buffer *buffer = direct_lacks_dmabuf(landing, host);
	uint64_t off;
	int fd, ret;

	if (!buffer)
		return;
	ret = pool_tensor_dmabuf(landing->pool, buffer->at, &fd, &off);
	lock_acquire(&landing->lock, &landing_role);
	if (ret) {
		direct_fall(landing);
	} else {
		buffer->exported = true;
		buffer->side.dmabuf_fd = fd;
		buffer->side.dmabuf_off = off;
	}
	lock_release(&landing->lock, &landing_role);
}

int landing_reach(struct rlv_landing *landing, const void *host, struct transport *tr,
		  struct landing_side *side_out)
{
	struct landing_buffer *buffer;
	int ret = landing_enter(landing);

	if (ret)
		return ret;
	direct_export(landing, host);
	lock_acquire(&landing->lock, &landing_role);
	buffer = landing_find(landing, host);
	ret = buffer ? -ENOTSUP : -EINVAL;
	while (buffer && ret && !tr->broken && landing->way != RLV_LANDING_PINNED) {
		ret = direct_lend(landing, buffer);
		if (ret == 0)
			ret = transport_reach(tr, &buffer->side);
		if (ret && !tr->broken)
			direct_fall(landing);
	}
	if (ret == 0) {
		side_out->mem = &buffer->side;
		side_out->at = buffer->side.ptr + ((const uint8_t *)host - buffer->host);
		side_out->path = landing->way;
	}
	if (buffer && landing->way == RLV_LANDING_PINNED)
		ret = error_set(-ENOTSUP, "landing: no RDMA to the device: %s", landing->fallen);
	memcpy(landing->info.reason, landing->fallen, sizeof(landing->fallen));
	lock_release(&landing->lock, &landing_role);
	return ret;
}

int landing_copies(struct rlv_landing *landing, const char *why)
{
	char reason[sizeof(landing->info.reason)];

	(void)snprintf(reason, sizeof(reason), "%s", why); /* it may be the error's own text */
	lock_acquire(&landing->lock, &landing_role);
	memcpy(landing->info.reason, reason, sizeof(reason));
	lock_release(&landing->lock, &landing_role);
	return landing->strict ? error_set(-ENOTSUP, "landing: path %s, which is strict: %s",
					   rlv_landing_path_name(landing->asked), reason)
			       : 0;
}

void landing_count_direct(struct rlv_landing *landing, uint64_t bytes)
{
	lock_acquire(&landing->lock, &landing_role);
	landing->info.direct_bytes += bytes;
	lock_release(&landing->lock, &landing_role);
}

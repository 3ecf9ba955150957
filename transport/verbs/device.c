/*
 * device.c - opens, describes and shares a device.
 */
#include "transport/verbs/device.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "wire/verbs_layout.h"

#include "base/mem/alloc.h"
#include "base/os/lock.h"
#include "base/log.h"

static LOCK_ROLE(devices_role, "verbs devices", LOCK_RANK_CHANNEL);
static struct lock devices_lock = LOCK_INIT(&devices_role);
static struct verbs_device *devices LOCK_GUARDED_BY(devices_role);

/* -------- errors and capabilities -------- */

int verbs_device_error(const struct verbs_device *device, const char *call)
{
	int code = errno;

	return error_set(-code, "device %s: %s: %s", device->name, call, strerror(code));
}

bool verbs_device_ended(const struct verbs_device *device, const char *call, int ret)
{
	if (ret)
		log_error("device %s %s error %s", device->name, call, strerror(ret));
	return ret == 0;
}

static int device_describe(struct verbs_device *device)
{
	struct ibv_device_attr *attr = &device->attr;
	int ret = device->calls->query_device(device->context, attr);

	if (ret)
		return error_set(-ret, "device %s: ibv_query_device: %s", device->name,
				 strerror(ret));
	if (attr->atomic_cap == IBV_ATOMIC_NONE)
		return error_set(
			-ENOTSUP,
			"device %s has no RDMA atomics (compare-and-swap, fetch-and-add): "
			"a store over it cannot be kept; choose an address on another device",
			device->name);
	if (attr->max_qp_init_rd_atom <= 0 || attr->max_qp_rd_atom <= 0)
		return error_set(-ENOTSUP,
				 "device %s has no RDMA READs: choose an address on another device",
				 device->name);
	device->windows = attr->max_mw > 0 &&
			  (attr->device_cap_flags &
			   (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B));
	return 0;
}

/* -------- chunks -------- */

static void chunk_added(void *ctx, void *base, size_t bytes, uint32_t index)
{
	const struct mem mem = {
		.kind = MEM_REGISTERED, .handle = index, .ptr = base, .len = bytes
	};
	struct verbs_device *device = ctx;
	struct ibv_mr *mr = NULL;

	if (verbs_device_register(device, device->pd, &mem, IBV_ACCESS_LOCAL_WRITE, &mr))
		log_warn("chunk of %zu bytes cannot be registered, its data is copied: %s", bytes,
			 error_last());
	atomic_store_explicit(&device->chunks[index], mr, memory_order_release);
}

static void chunk_removed(void *ctx, uint32_t index)
{
	struct verbs_device *device = ctx;
	struct ibv_mr *mr =
		atomic_exchange_explicit(&device->chunks[index], NULL, memory_order_acq_rel);

	(void)verbs_device_deregister(device, mr);
}

/* -------- opening and sharing -------- */

static int device_make(const struct verbs_calls *calls, struct ibv_context *context,
		       struct verbs_device **device_out)
{
	struct verbs_device *device = mem_zalloc(sizeof(*device));
	int ret;

	if (!device)
		return error_set(-ENOMEM, "cannot allocate memory for a device");
	device->calls = calls;
	device->context = context;
	device->name = calls->get_device_name(context->device);
	ret = device_describe(device);
	if (ret == 0)
		device->pd = calls->alloc_pd(context);
	if (ret == 0 && !device->pd)
		ret = verbs_device_error(device, "ibv_alloc_pd");
	/* a NIC keeps the state of about so many work requests at hand */
	atomic_init(&device->outstanding, 8192);
	device->listener = (struct chunk_listener){ chunk_added, chunk_removed, device };
	if (ret == 0)
		ret = chunk_listen(&device->listener);
	if (ret) {
		if (device->pd)
			(void)calls->dealloc_pd(device->pd);
		mem_free(device);
		return ret;
	}
	device->refs = 1;
	log_info("device %s reads %d served %d send queue %d windows %d bound %d", device->name,
		 device->attr.max_qp_init_rd_atom, device->attr.max_qp_rd_atom,
		 device->attr.max_qp_wr, device->attr.max_mw, device->windows);
	*device_out = device;
	return 0;
}

int verbs_device_get(const struct verbs_calls *calls, struct ibv_context *context,
		     struct verbs_device **device_out)
{
	struct verbs_device *device;
	int ret = 0;

	lock_acquire(&devices_lock, &devices_role);
	device = devices;
	while (device && device->context != context)
		device = device->next;
	if (device) {
		device->refs++;
	} else {
		ret = device_make(calls, context, &device);
		if (ret == 0) {
			device->next = devices;
			devices = device;
		}
	}
	lock_release(&devices_lock, &devices_role);
	if (ret == 0)
		*device_out = device;
	return ret;
}

void verbs_device_put(struct verbs_device **device)
{
	struct verbs_device *gone = *device, **link;
	bool last;

	*device = NULL;
	if (!gone)
		return;
	lock_acquire(&devices_lock, &devices_role);
	last = --gone->refs == 0;
	if (last) {
		link = &devices;
		while (*link != gone)
			link = &(*link)->next;
		*link = gone->next;
	}
	lock_release(&devices_lock, &devices_role);
	if (!last)
		return;
	chunk_unlisten(&gone->listener);
	(void)verbs_device_ended(gone, "ibv_dealloc_pd", gone->calls->dealloc_pd(gone->pd));
	mem_free(gone);
}

/* -------- memory -------- */

int verbs_device_register(struct verbs_device *device, struct ibv_pd *domain, const struct mem *mem,
			  int access, struct ibv_mr **mr_out)
{
	const struct verbs_calls *calls = device->calls;
	bool dmabuf = mem->kind == MEM_DEVICE && mem->dmabuf_fd >= 0;
	struct ibv_mr *mr;

	if (dmabuf && !calls->reg_dmabuf_mr)
		return error_set(-ENOTSUP, "device %s: this rdma-core registers no dma-buf",
				 device->name);
	mr = dmabuf ? calls->reg_dmabuf_mr(domain, mem->dmabuf_off, mem->len, (uintptr_t)mem->ptr,
					   mem->dmabuf_fd, access)
		    : calls->reg_mr(domain, mem->ptr, mem->len, access);
	if (!mr) {
		int code = errno;

		return error_set(-code, "device %s: registering %zu bytes: %s%s", device->name,
				 mem->len, strerror(code),
				 code == ENOMEM ? " (locked memory is bounded by ulimit -l)" : "");
	}
	*mr_out = mr;
	return 0;
}

int verbs_device_reach(struct verbs_device *device, const struct mem *mem)
{
	struct ibv_mr *mr = NULL, *none = NULL;
	uint32_t key;
	int ret;

	if (verbs_device_key(device, mem, &key))
		return 0;
	ret = verbs_device_register(device, device->pd, mem, IBV_ACCESS_LOCAL_WRITE, &mr);
	if (ret)
		return ret;
	if (!atomic_compare_exchange_strong_explicit(&device->chunks[mem->handle], &none, mr,
						     memory_order_acq_rel, memory_order_relaxed))
		(void)verbs_device_deregister(device, mr); /* another thread was faster */
	return 0;
}

bool verbs_device_deregister(struct verbs_device *device, struct ibv_mr *mr)
{
	return verbs_device_ended(device, "ibv_dereg_mr", mr ? device->calls->dereg_mr(mr) : 0);
}

int verbs_device_memory(struct verbs_device *device, struct mem *mem, size_t bytes,
			uint32_t *key_out)
{
	if (!chunk_make_room(mem, bytes))
		return error_set(-ENOMEM, "cannot allocate memory for a connection");
	if (!verbs_device_key(device, mem, key_out))
		return error_set(-ENOMEM,
				 "device %s registers no memory: locked memory is bounded by "
				 "ulimit -l",
				 device->name);
	return 0;
}

int verbs_device_receive(struct ibv_qp *qp, uint64_t i, void *buffers, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)buffers + i * VERBS_MESSAGE_MAX, VERBS_MESSAGE_MAX, key };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
	int ret = ibv_post_recv(qp, &wr, &bad);

	return ret ? error_set(-ret, "ibv_post_recv: %s", strerror(ret)) : 0;
}

/* -------- counts -------- */

uint32_t verbs_device_reserve(struct verbs_device *device, uint32_t wanted)
{
	int64_t left = atomic_load_explicit(&device->outstanding, memory_order_relaxed);
	int64_t share;

	do {
		share = left / 2 < (int64_t)wanted ? left / 2 : (int64_t)wanted;
		if (share < VERBS_SHARE_MIN)
			share = VERBS_SHARE_MIN;
	} while (!atomic_compare_exchange_weak_explicit(&device->outstanding, &left, left - share,
							memory_order_relaxed,
							memory_order_relaxed));
	return (uint32_t)share;
}

void verbs_device_unreserve(struct verbs_device *device, uint32_t n)
{
	atomic_fetch_add_explicit(&device->outstanding, n, memory_order_relaxed);
}

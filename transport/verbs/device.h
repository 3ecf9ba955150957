/*
 * device.h - one RDMA device as this process uses it: shared by all its transports and targets.
 *
 * There is one object for each ibv_context, counted by references, because memory is registered
 * with a protection domain, and should be registered only once. A holder of a reference may read
 * its public fields, which never change.
 *
 * The chunks of base/mem/chunk.h are registered as they come and go, each under its index. A request
 * names the struct mem of its buffer, whose handle is that index: nothing is searched by address.
 * Registering memory pins it and costs a system call and about 0.1 us a page: at opening and when
 * buffers grow, never per operation.
 */
#ifndef RLV_TRANSPORT_VERBS_DEVICE_H
#define RLV_TRANSPORT_VERBS_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "transport/verbs/calls.h"

#include "base/mem/chunk.h"

struct verbs_device {
	const struct verbs_calls *calls;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	bool windows; /* of type 2: bound to one queue pair, by work requests */
	const char *name;

	/* private */
	struct verbs_device *next;
	uint32_t refs;
	_Atomic uint32_t qps, mrs;   /* of this process; links count theirs */
	_Atomic int64_t outstanding; /* work requests that verbs_device_reserve may still give */
	struct chunk_listener listener;
	struct ibv_mr *_Atomic chunks[CHUNK_MAX]; /* by chunk index; NULL = not registered */
};

/*
 * Takes a reference to the one object of that context, as an rdma_cm id names it, which the first
 * call makes. -ENOTSUP: the device has no atomics or no READs, which are required. -ENOMEM. Thread:
 * any.
 */
RLV_MUST_CHECK int verbs_device_get(const struct verbs_calls *calls, struct ibv_context *context,
				    struct verbs_device **device_out);

/*
 * Drops a reference and sets *device to NULL; with the last one all objects made from it must be
 * gone. *device NULL is a no-op. Thread: any.
 */
void verbs_device_put(struct verbs_device **device);

/*
 * Registers memory of any kind with a domain of the device. access: IBV_ACCESS_*. -ENOMEM: such as
 * more than RLIMIT_MEMLOCK; -ENOTSUP: a dma-buf, and this rdma-core registers none.
 * Thread: any.
 */
RLV_MUST_CHECK int verbs_device_register(struct verbs_device *device, struct ibv_pd *domain,
					 const struct mem *mem, int access, struct ibv_mr **mr_out);

/*
 * Registers memory of a device that has a handle (chunk_lend) with the device's own domain, unless it is: its key
 * is verbs_device_key's until chunk_unlend. Errors of verbs_device_register. Thread: any.
 */
RLV_MUST_CHECK int verbs_device_reach(struct verbs_device *device, const struct mem *mem);

/* Ends the registration mr; NULL is a no-op. False: the device keeps it; the error is logged. */
bool verbs_device_deregister(struct verbs_device *device, struct ibv_mr *mr);

/*
 * Makes *mem zeroed memory of a chunk (base/mem/chunk.h); *key_out: its local key. -ENOMEM: no
 * memory, or the device could not register the chunk.
 */
RLV_MUST_CHECK int verbs_device_memory(struct verbs_device *device, struct mem *mem, size_t bytes,
				       uint32_t *key_out);

/* Returns -errno, with a message that the call failed on this device. */
int verbs_device_error(const struct verbs_device *device, const char *call);

/* Logs ret, the result of a call that ends an object, unless it is 0. Returns true if it is 0. */
bool verbs_device_ended(const struct verbs_device *device, const char *call, int ret);

/*
 * The local key of a memory, for READs into it and WRITEs from it. False: mem is NULL or host
 * memory, or the device could not register its chunk. Cost: three loads. Thread: any.
 */
static inline bool verbs_device_key(const struct verbs_device *device, const struct mem *mem,
				    uint32_t *key_out)
{
	const struct ibv_mr *mr;

	if (!mem || mem->kind == MEM_HOST)
		return false;
	mr = atomic_load_explicit(&device->chunks[mem->handle], memory_order_acquire);
	if (!mr)
		return false;
	*key_out = mr->lkey;
	return true;
}

/*
 * Posts a receive to the queue pair: a message into the i-th of buffers of VERBS_MESSAGE_MAX bytes.
 * key: the local key of buffers.
 */
RLV_MUST_CHECK int verbs_device_receive(struct ibv_qp *qp, uint64_t i, void *buffers, uint32_t key);

/*
 * Reserves a share of the work requests that this process may have outstanding on the device:
 * wanted, at most half of the rest, at least VERBS_SHARE_MIN even if nothing is left. So a late
 * link is slow, not refused; each may exceed the bound by VERBS_SHARE_MIN. The caller returns all
 * of it, in parts if need be.
 */
#define VERBS_SHARE_MIN 16
uint32_t verbs_device_reserve(struct verbs_device *device, uint32_t wanted);
void verbs_device_unreserve(struct verbs_device *device, uint32_t n);

#endif

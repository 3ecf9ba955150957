/*
 * mem.h - memory that work requests read into or write from, as its owner describes it once.
 *
 *   MEM_HOST        any memory of this process: a wire copies it through memory of its own
 *   MEM_REGISTERED  in a chunk (base/mem/chunk.h): each RDMA device registered it when it came, and
 *                   finds its key by the handle
 *   MEM_DEVICE      of another device, which no CPU reads. READs fill it over a transport that reached it
 *                   (transport_reach): an RDMA device registered it, as a dma-buf or by its address
 *
 * A request names the memory that its buffer lies in, so that no transport searches for it.
 */
#ifndef RLV_BASE_MEM_MEM_H
#define RLV_BASE_MEM_MEM_H

#include <stddef.h>
#include <stdint.h>

enum mem_kind { MEM_HOST, MEM_REGISTERED, MEM_DEVICE };

/* All zero: no memory. */
struct mem {
	enum mem_kind kind;
	uint32_t handle; /* the place of its key in each device; of device memory by chunk_lend */
	int dmabuf_fd;   /* device: the dma-buf, -1 = none: registered by the address ... */
	uint8_t *ptr;    /* device: the address that requests use */
	size_t len;
	uint64_t dmabuf_off; /* ... and where in it the memory begins */
};

#endif

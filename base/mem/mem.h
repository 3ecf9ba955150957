/*
 * mem.h - memory that work requests read into or write from, as its owner describes it once.
 *
 *   MEM_HOST        any memory of this process: a wire copies it through memory of its own
 *   MEM_REGISTERED  in a chunk (base/mem/chunk.h): each RDMA device registered it when it came, and
 *                   finds its key by the handle
 *
 * A request names the memory that its buffer lies in, so that no transport searches for it.
 */
#ifndef RLV_BASE_MEM_MEM_H
#define RLV_BASE_MEM_MEM_H

#include <stddef.h>
#include <stdint.h>

enum mem_kind { MEM_HOST, MEM_REGISTERED };

/* All zero: no memory. */
struct mem {
	enum mem_kind kind;
	uint32_t handle; /* registered: the place of its key in each device */
	uint8_t *ptr;
	size_t len;
};

#endif

/*
 * dma.c - librelive-jemalloc: the arena over librelive's buffers.
 */
#include <relive/jemalloc.h>

#include "base/jemalloc/arena.h"

#include <errno.h>

static void *buffer_alloc(size_t align, size_t bytes)
{
	void *buffer;

	return rlv_buffer_alloc(align, bytes, &buffer) ? NULL : buffer;
}

static bool is_one_buffer(const void *ptr, size_t bytes)
{
	return rlv_buffer_find(ptr, bytes) == 0;
}

static const struct arena_source buffers = {
	.alloc = buffer_alloc,
	.is_one = is_one_buffer,
};

void *rlv_dma_alloc(size_t align, size_t bytes)
{
	return arena_alloc((void *)&buffers, align, bytes);
}

void rlv_dma_free(void *buffer)
{
	arena_free(NULL, buffer, 0);
}

const struct rlv_memory *rlv_dma_memory(void)
{
	static const struct rlv_memory memory = { arena_alloc, arena_free, (void *)&buffers };

	return &memory;
}

int rlv_dma_arena(unsigned *arena_out)
{
	return arena_out ? arena_open(&buffers, arena_out) : -EINVAL;
}

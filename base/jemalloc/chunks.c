/*
 * chunks.c - the source of a program that has base/ in itself.
 */
#include "base/jemalloc/arena.h"

#include "base/mem/chunk.h"

static bool is_one_chunk(const void *ptr, size_t bytes)
{
	uint32_t index;

	return chunk_find(ptr, bytes, &index);
}

const struct arena_source arena_chunks = {
	.alloc = chunk_alloc,
	.is_one = is_one_chunk,
};

const struct alloc_hooks arena_hooks = {
	.alloc = arena_alloc,
	.free = arena_free,
	.ctx = (void *)&arena_chunks,
};

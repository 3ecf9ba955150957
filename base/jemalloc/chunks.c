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

static void *hook_alloc(void *ctx, size_t align, size_t bytes)
{
	(void)ctx;
	return arena_alloc(&arena_chunks, align, bytes);
}

static void hook_free(void *ctx, void *ptr, size_t bytes)
{
	(void)ctx;
	(void)bytes;
	arena_free(ptr);
}

const struct alloc_hooks arena_hooks = { .alloc = hook_alloc, .free = hook_free };

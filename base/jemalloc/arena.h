/*
 * arena.h - the jemalloc arena of this process whose memory RDMA devices know.
 *
 * Extents come from a source, which is chunks (base/mem/chunk.h): directly in the daemons, through
 * librelive in programs. So one and the same allocator as for everything else, per-thread caches
 * included, gives buffers that need no registration of their own:
 *
 *   arena_alloc -> cache of the thread -> arena -> extents -> chunks -> one registration each
 *
 * The arena's own data lie elsewhere: a device that writes astray cannot harm them, and a forked
 * child, which does not have the chunks, can still run jemalloc. The child gets its own arena at
 * first use; it neither uses nor frees inherited buffers.
 *
 * The arena is made at first use and stays, with all extents taken from the source: its size is its
 * peak use. (jemalloc splits extents and keeps the rest, so returned pieces would be too small to
 * reuse.)
 */
#ifndef RLV_BASE_JEMALLOC_ARENA_H
#define RLV_BASE_JEMALLOC_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem/alloc.h"
#include "base/error.h"

/* Where extents come from; the same one in all calls. Called from any thread. */
struct arena_source {
	void *(*alloc)(size_t align, size_t bytes);    /* NULL when there is none */
	bool (*is_one)(const void *ptr, size_t bytes); /* one registration covers it */
};

/* Chunks of this copy of base/, and the arena over them: for daemons. */
extern const struct arena_source arena_chunks;
extern const struct alloc_hooks arena_hooks;

/*
 * Gives the number of the arena, which the first call makes. For MALLOCX_ARENA, with
 * MALLOCX_TCACHE_NONE or a cache made for it: the thread's own cache holds memory of other arenas.
 * -ENOMEM. Thread: any.
 */
int arena_open(const struct arena_source *source, unsigned *index_out) RLV_MUST_CHECK;

/*
 * Allocates from the arena. arena_alloc and arena_free are the calls of struct alloc_hooks and of
 * struct rlv_memory; source: a const struct arena_source. Not zeroed; inside one registration.
 * align: a power of two, at most 2 MiB. A size of 0 gives a unique pointer. NULL: no memory, or
 * another align. Thread: any. Cost: as malloc.
 */
void *arena_alloc(void *source, size_t align, size_t bytes) RLV_MUST_CHECK;

/*
 * Frees memory of arena_alloc, from any thread; ptr NULL is a no-op. source and bytes are not used.
 */
void arena_free(void *source, void *ptr, size_t bytes);

#endif

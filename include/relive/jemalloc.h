/*
 * Relive: registered memory by jemalloc, for C programs that link librelive-jemalloc beside
 * librelive (pkg-config relive-jemalloc).
 *
 * Buffers as rlv_buffer_alloc gives them, known to every RDMA device that this process uses, at the
 * speed of malloc and in any number: they come from a jemalloc arena whose extents are such buffers.
 *
 * Linking this library makes jemalloc the program's malloc. What loads librelive at run time, as
 * Python does, cannot load it: Debian's libjemalloc wants to be there from the start (static TLS).
 *
 * After fork() the child has an arena of its own. It must neither use nor free what was allocated
 * before.
 */
#ifndef RELIVE_JEMALLOC_H
#define RELIVE_JEMALLOC_H

#include <relive/relive.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Not zeroed; inside one registration. align: a power of two, at most 2 MiB. A size of 0 gives a
 * unique pointer. NULL: no memory, or another align. Thread: any. Cost: as malloc.
 */
RLV_API void *rlv_dma_alloc(size_t align, size_t bytes);

/* In any thread; NULL is a no-op. */
RLV_API void rlv_dma_free(void *buffer);

/* The same for opts.memory of a sampler. Static. */
RLV_API const struct rlv_memory *rlv_dma_memory(void);

/*
 * The arena's number, for mallocx with MALLOCX_ARENA and MALLOCX_TCACHE_NONE (the thread's own cache
 * holds memory of other arenas). -ENOMEM; no message is set. Thread: any.
 */
RLV_CHECKED int rlv_dma_arena(unsigned *arena_out);

#ifdef __cplusplus
}
#endif

#endif

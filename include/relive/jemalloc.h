/*
 * Relive: registered memory by jemalloc, for C programs that link librelive-jemalloc beside
 * librelive (pkg-config relive-jemalloc).
 *
 * It gives buffers as rlv_buffer_alloc does, registered with every RDMA device of this process, at
 * the speed of malloc and in any number: they come from a jemalloc arena whose extents are such
 * buffers.
 *
 * Linking this library makes jemalloc the program's malloc. A program that loads librelive at run
 * time, as Python does, cannot load it: Debian's libjemalloc must be loaded at start (static TLS).
 *
 * After fork() the child has an arena of its own. It must neither use nor free memory allocated
 * before.
 */
#ifndef RELIVE_JEMALLOC_H
#define RELIVE_JEMALLOC_H

#include <relive/relive.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Allocates memory inside one registration, not zeroed. align: a power of two, at most 2 MiB. A
 * size of 0 gives a unique pointer. NULL: no memory, or another align. Thread: any. Cost: as
 * malloc.
 */
RLV_API void *rlv_dma_alloc(size_t align, size_t bytes);

/* Frees memory of rlv_dma_alloc; NULL is a no-op. Thread: any. */
RLV_API void rlv_dma_free(void *buffer);

/*
 * Returns rlv_dma_alloc and rlv_dma_free as a struct rlv_memory, for opts.memory of a sampler.
 * Static.
 */
RLV_API const struct rlv_memory *rlv_dma_memory(void);

/*
 * Gives the arena's number, for mallocx with MALLOCX_ARENA and MALLOCX_TCACHE_NONE (the thread's
 * cache holds memory of other arenas). -ENOMEM; no message is set. Thread: any.
 */
RLV_CHECKED int rlv_dma_arena(unsigned *arena_out);

#ifdef __cplusplus
}
#endif

#endif

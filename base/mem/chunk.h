/*
 * chunk.h - memory that RDMA devices may know: buffers that the library hands out, stages rows in
 * or reads into.
 *
 * A chunk is a private mapping of one or more whole 2 MiB, on huge pages where the host has them.
 * It is cut in units of a cache line by first fit over a bitmap that lies outside of it, so that
 * nothing that a device writes can harm the allocator. A device listens: it is told of every chunk,
 * registers it, and keeps its key under the chunk's index. So a chunk is one registration for each
 * device. Who makes a buffer describes it once, and its work requests name the description:
 *
 *   chunk_make_room, chunk_mem -> struct mem: handle = index -> key that the device keeps
 *
 * Without a listener a chunk is memory like any other, and a forked child has its copy. From the
 * first listener on chunks are kept from children (MADV_DONTFORK): a page that a device knows must
 * not be copied on write. A child begins without chunks; it must not free inherited buffers.
 *
 * Used where handles are opened and closed, never for one operation. A chunk without buffers is
 * unmapped at once.
 */
#ifndef RLV_BASE_MEM_CHUNK_H
#define RLV_BASE_MEM_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem/alloc.h"
#include "base/mem/mem.h"
#include "base/error.h"

#define CHUNK_UNIT ((size_t)2 << 20) /* chunks are multiples of it, and start on one */
#define CHUNK_MAX 4096               /* chunks of one process; an index is below */
#define CHUNK_LISTENERS_MAX 32

/*
 * Allocates a buffer inside one chunk; not zeroed. align: a power of two, at most CHUNK_UNIT (a
 * cache line is the least). NULL: no memory, or all CHUNK_MAX chunks are in use. A size of 0 gives
 * a unique pointer. Thread: any.
 */
void *chunk_alloc(size_t align, size_t bytes) RLV_MUST_CHECK;

/*
 * Makes *mem, which is all zero at first, at least bytes long: a shorter one is freed, and replaced
 * by zeroed memory from a chunk. false: no memory; *mem is all zero.
 */
bool chunk_make_room(struct mem *mem, size_t bytes) RLV_MUST_CHECK;

/* Frees the memory of chunk_make_room, and zeroes *mem. All zero: a no-op. */
void chunk_drop(struct mem *mem);

/*
 * Frees a buffer, a part of one that starts and ends on a cache line, or adjacent buffers of one
 * chunk together. NULL, and in a forked child a buffer of its parent: a no-op. Thread: any.
 */
void chunk_free(void *ptr, size_t bytes);

/* chunk_alloc and chunk_free as hooks of alloc_buffer. */
extern const struct alloc_hooks chunk_hooks;

/*
 * Gives memory of a device, *mem, a handle of those of chunks. Listeners are not told: an RDMA device keeps a
 * key under it when it is asked to (transport_reach). chunk_find does not find it. false: no handle is left.
 */
bool chunk_lend(struct mem *mem) RLV_MUST_CHECK;

/* Takes the handle back, before the memory goes: listeners are told that it is removed. */
void chunk_unlend(const struct mem *mem);

/*
 * Finds the chunk that contains all of [ptr, ptr + len); false if none does. len > 0. For buffers
 * that the caller holds, and for memory outside all chunks. Thread: any, also while others make and
 * drop chunks. Cost: three loads.
 */
bool chunk_find(const void *ptr, size_t len, uint32_t *index_out);

/*
 * Describes a buffer as struct mem, once, when it is made: registered if one chunk contains it,
 * else host memory. len > 0. Valid until the buffer is freed.
 */
struct mem chunk_mem(void *ptr, size_t len);

/*
 * Both are called under the lock of the chunks: they call no chunk_*, and take only locks of
 * LOCK_RANK_LEAF. A device that cannot register a chunk remembers that and copies instead.
 */
struct chunk_listener {
	void (*added)(void *ctx, void *base, size_t bytes, uint32_t index);
	void (*removed)(void *ctx, uint32_t index); /* about to be unmapped */
	void *ctx;
};

/*
 * Calls `added` of the listener for all present chunks before it returns, and for each new chunk
 * before a buffer is allocated in it. listener is borrowed until chunk_unlisten. -ENOSPC: there are
 * CHUNK_LISTENERS_MAX already; -ENOMEM. Thread: any.
 */
int chunk_listen(const struct chunk_listener *listener) RLV_MUST_CHECK;

/* Calls `removed` for all chunks and removes the listener. No-op if it does not listen. */
void chunk_unlisten(const struct chunk_listener *listener);

struct chunk_usage {
	uint32_t chunks;
	size_t bytes;      /* mapped */
	size_t used_bytes; /* in buffers */
};

void chunk_usage(struct chunk_usage *usage_out);

#endif

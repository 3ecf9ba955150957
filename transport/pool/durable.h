/*
 * durable.h - a mapped pool file whose bytes can be made to survive a power failure.
 *
 * libpmem is opened by dlopen: on persistent memory it flushes cache lines (pmem_persist), else it
 * calls msync (pmem_msync). Without the library: mmap and msync, which are correct everywhere.
 */
#ifndef RLV_TRANSPORT_POOL_DURABLE_H
#define RLV_TRANSPORT_POOL_DURABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct durable {
	uint8_t *base;
	uint64_t size;
	bool by_library; /* mapped by libpmem */
	bool is_pmem;    /* stores are durable once flushed from the caches */
};

/*
 * True if libpmem is loaded, which the first call tries, and has the needed functions. Thread: any.
 */
bool durable_has_library(void);

/*
 * Maps the whole file, of size bytes, for reading and writing: by libpmem where it can be loaded,
 * else by mmap. Forked children do not inherit the mapping.
 */
RLV_MUST_CHECK int durable_map(int fd, uint64_t size, struct durable *map_out);
void durable_unmap(struct durable *map);

/* Thread: any. */
RLV_MUST_CHECK int durable_persist(const struct durable *map, uint64_t off, uint64_t len);

#endif

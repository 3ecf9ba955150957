/*
 * map.h - mappings of region memory: shared, not inherited by a fork, on huge pages if they can be.
 */
#ifndef RLV_TRANSPORT_POOL_MAP_H
#define RLV_TRANSPORT_POOL_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define MAP_HUGE_BYTES ((uint64_t)2 << 20)

enum map_mode {
	MAP_WRITABLE = 1,
	MAP_HUGE = 2, /* ask for huge pages */
};

/*
 * Maps size bytes of fd from off. -ENOMEM, -EACCES, -EINVAL with the call that
 * failed. Thread: any.
 */
RLV_MUST_CHECK int map_shared(int fd, uint64_t off, uint64_t size, uint32_t mode,
			      uint8_t **base_out);

/* Maps the first size bytes of fd in the place of what is mapped at base, and as writable as told. */
RLV_MUST_CHECK int map_over(int fd, uint64_t size, bool writable, uint8_t *base);

/* Keeps a mapping from forked children, and asks for huge pages if told. */
RLV_MUST_CHECK int map_protect(void *base, uint64_t size, bool huge);

void map_release(uint8_t *base, uint64_t size);

/* msync of len bytes from off. */
RLV_MUST_CHECK int map_persist(uint8_t *base, uint64_t off, uint64_t len);

/*
 * Memory of a region, or of a page of one, of mode 0600 and sealed: no mapping of it ever faults. flags:
 * those of memfd_create beside the usual ones.
 */
RLV_MUST_CHECK int map_memfd(uint32_t region, uint64_t bytes, unsigned flags, int *fd_out);

/* Is what a peer sent such memory? -EPROTO. */
RLV_MUST_CHECK int map_check_memfd(int fd, uint64_t bytes);

/* -1 is a no-op. */
void map_close(int fd);

/* Does /sys/kernel/mm/transparent_hugepage/shmem_enabled let MADV_HUGEPAGE work on a memfd? */
bool map_thp_for_memfd(void);

/* A new descriptor of the same file, with an open file description of its own. -errno. */
RLV_MUST_CHECK int map_reopen(int fd, bool writable, int *fd_out);

#endif

/*
 * map.h - mappings of region memory: shared, not inherited by a fork, on huge pages where possible.
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
 * Maps size bytes of fd from off. -ENOMEM, -EACCES, -EINVAL; the message names the failed call.
 * Thread: any.
 */
RLV_MUST_CHECK int map_shared(int fd, uint64_t off, uint64_t size, uint32_t mode,
			      uint8_t **base_out);

/* Maps the first size bytes of fd over the existing mapping at base; read-only unless writable. */
RLV_MUST_CHECK int map_over(int fd, uint64_t size, bool writable, uint8_t *base);

/* Sets MADV_DONTFORK on a mapping, and MADV_HUGEPAGE if huge. */
RLV_MUST_CHECK int map_protect(void *base, uint64_t size, bool huge);

void map_release(uint8_t *base, uint64_t size);

/* Makes len bytes from base + off durable by msync, and waits for it. */
RLV_MUST_CHECK int map_persist(uint8_t *base, uint64_t off, uint64_t len);

/*
 * Makes a memfd for a region or for one of its pages: mode 0600 and sealed against shrinking, so no
 * mapping of it ever faults. flags: added to the usual flags of memfd_create.
 */
RLV_MUST_CHECK int map_memfd(uint32_t region, uint64_t bytes, unsigned flags, int *fd_out);

/*
 * Checks a memfd that a peer sent. -EPROTO: it has not `bytes` bytes, is open to other users, is
 * not sealed against shrinking, or is sealed against writing.
 */
RLV_MUST_CHECK int map_check_memfd(int fd, uint64_t bytes);

/* Closes fd; -1 is a no-op. */
void map_close(int fd);

/* True if /sys/kernel/mm/transparent_hugepage/shmem_enabled lets MADV_HUGEPAGE work on a memfd. */
bool map_thp_for_memfd(void);

/*
 * own: takes the owner's lock of a file (byte 0, of the open file description). Else gives it up:
 * closing fd does not, if a child inherited the descriptor. -EBUSY: another process has it.
 */
int map_own(int fd, bool own);

/*
 * Opens a file of a folder, makes it if it is missing and create is set, and takes its owner's lock
 * (map_own). 1: it was made; 0: it was there. The caller closes *fd_out.
 */
RLV_MUST_CHECK int map_open_own(int folder, const char *name, bool create, int *fd_out);

/* True if the file still has that name in that directory. */
bool map_is_named(int fd, int folder, const char *name);

/* Bytes that the file system of fd has left; UINT64_MAX where it does not say. */
uint64_t map_left(int fd);

/*
 * Allocates all disk blocks of a range of a file, so that no store there finds the disk full.
 * -ENOSPC: too few are left, or a limit forbids it.
 */
RLV_MUST_CHECK int map_take_blocks(int fd, uint64_t off, uint64_t bytes);

/* True if nobody holds a flock on the file: one is taken and released, so fd must hold none. */
bool map_is_sole(int fd);

#endif

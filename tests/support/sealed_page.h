/*
 * sealed_page.h - pages that a job shows to a pool's broker.
 */
#ifndef RLV_TESTS_SUPPORT_SEALED_PAGE_H
#define RLV_TESTS_SUPPORT_SEALED_PAGE_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire/lease_layout.h"
#include "wire/lease_permit.h"

/* A memfd that is sealed against shrinking. */
static inline int sealed_page(size_t bytes)
{
	int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		abort();
	return fd;
}

/* As broker_hello wants them. */
static inline void sealed_pages(int pages_out[2])
{
	pages_out[0] = sealed_page(LEASE_PROGRESS_BYTES);
	pages_out[1] = sealed_page(sizeof(struct lease_permit));
}

#endif

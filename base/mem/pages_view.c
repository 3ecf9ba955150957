#include "base/mem/alloc.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"

int pages_view_open(const void *at, size_t bytes, bool writable, struct pages_view *out)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t)at & ~(page - 1);
	size_t all = align_up((uintptr_t)at + bytes - begin, page);
	/* An old size of 0 maps shared pages once more. */
	uint8_t *base = mremap((void *)begin, 0, all, MREMAP_MAYMOVE);

	if (base == MAP_FAILED)
		return error_set(-ENOTSUP, "mremap: the memory cannot be mapped twice: %m");
	if (!writable && mprotect(base, all, PROT_READ)) {
		(void)munmap(base, all);
		return error_set(-ENOTSUP, "mprotect: the memory cannot be mapped read-only: %m");
	}
	*out = (struct pages_view){ .at = base + ((uintptr_t)at - begin),
				    .base = base,
				    .bytes = all };
	return 0;
}

int pages_view_set(const struct pages_view *view, size_t off, const void *at, size_t bytes)
{
	uint8_t *to = (uint8_t *)view->base + off;

	if (mremap((void *)(uintptr_t)at, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to &&
	    mprotect(to, bytes, PROT_READ) == 0)
		return 0;
	return error_set(-ENOTSUP, "mremap: the memory cannot be mapped twice: %m");
}

void pages_view_close(struct pages_view *view)
{
	(void)munmap(view->base, view->bytes);
}

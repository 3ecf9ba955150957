#include "base/mem/alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/os/process.h"

#define HUGE_BYTES ((size_t)2 << 20)

bool pages_thp_allowed(void)
{
	/* 0 = not asked; relaxed: two threads that ask at once get the same answer */
	static _Atomic int answer;
	int known = atomic_load_explicit(&answer, memory_order_relaxed), n;
	char text[64];

	if (known)
		return known == 1;
	n = process_read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text));
	known = n > 0 && !strstr(text, "[never]") ? 1 : 2;
	atomic_store_explicit(&answer, known, memory_order_relaxed);
	return known == 1;
}

static void *map_private(size_t bytes, int flags)
{
	void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags,
			 -1, 0);

	return ptr == MAP_FAILED ? NULL : ptr;
}

/* A mapping that starts on a huge page boundary: map one page more, cut off both ends. */
static void *map_aligned(size_t bytes)
{
	char *ptr, *start;
	size_t head, tail;

	ptr = map_private(bytes + HUGE_BYTES, 0);
	if (!ptr)
		return NULL;
	start = (char *)(uintptr_t)align_up((uintptr_t)ptr, HUGE_BYTES);
	head = (size_t)(start - ptr);
	tail = HUGE_BYTES - head;
	if (head)
		munmap(ptr, head);
	if (tail)
		munmap(start + bytes, tail);
	return start;
}

static void *map_kind(size_t bytes, enum page_kind kind)
{
	void *ptr;

	if (kind == PAGE_HUGETLB)
		return map_private(bytes, MAP_HUGETLB | (21 << MAP_HUGE_SHIFT));
	if (kind == PAGE_SMALL)
		return is_aligned(bytes, HUGE_BYTES) ? map_aligned(bytes) : map_private(bytes, 0);
	ptr = pages_thp_allowed() ? map_aligned(bytes) : NULL;
	if (!ptr || madvise(ptr, bytes, MADV_HUGEPAGE) == 0)
		return ptr;
	munmap(ptr, bytes);
	return NULL;
}

int pages_alloc(size_t bytes, enum page_kind wanted, struct pages *pages_out)
{
	int kind = (int)wanted;

	if (bytes == 0)
		return error_set(-EINVAL, "bytes 0: must be at least 1");
	if (bytes > (size_t)PTRDIFF_MAX - 2 * HUGE_BYTES)
		return error_set(-EOVERFLOW, "bytes %zu: too large for a mapping", bytes);
	if (mem_fail_now())
		return error_set(-ENOMEM, "cannot map %zu bytes of memory", bytes);
	for (; kind >= (int)PAGE_SMALL; kind--) {
		size_t unit = kind == PAGE_SMALL ? (size_t)sysconf(_SC_PAGESIZE) : HUGE_BYTES;
		size_t size = align_up(bytes, unit);
		void *ptr = map_kind(size, (enum page_kind)kind);

		if (!ptr)
			continue;
		*pages_out = (struct pages){ ptr, size, (enum page_kind)kind };
		return 0;
	}
	return error_set(-ENOMEM, "cannot map %zu bytes of memory", bytes);
}

void pages_free(struct pages *pages)
{
	if (pages->ptr)
		munmap(pages->ptr, pages->bytes);
	*pages = (struct pages){ 0 };
}

void pages_populate(void *ptr, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = align_down((uintptr_t)ptr, page);

#ifdef MADV_POPULATE_WRITE
	(void)madvise((void *)from, bytes + ((uintptr_t)ptr - from), MADV_POPULATE_WRITE);
#else
	(void)from, (void)bytes;
#endif
}

uint64_t pages_available(void)
{
	char line[128];
	uint64_t kib = 0;
	FILE *file = fopen("/proc/meminfo", "re");

	if (!file)
		return UINT64_MAX;
	while (kib == 0 && fgets(line, sizeof(line), file))
		if (strncmp(line, "MemAvailable:", 13) == 0)
			kib = strtoull(line + 13, NULL, 10);
	fclose(file);
	return kib ? kib * 1024 : UINT64_MAX;
}

const char *page_kind_name(enum page_kind kind)
{
	static const char *const names[] = { "small", "thp", "hugetlb" };

	return names[kind];
}

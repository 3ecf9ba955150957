/*
 * alloc.h - memory, in three kinds:
 *
 *   mem_*     the heap, for structures. One place, so that tests can fail the n-th allocation.
 *   alloc_*   buffers through hooks of the caller's, by default from the heap. Buffers that RDMA
 *             devices may touch come from base/mem/chunk.h.
 *   pages_*   large private mappings on huge pages where the host has them, and says which.
 */
#ifndef RLV_BASE_MEM_ALLOC_H
#define RLV_BASE_MEM_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* NULL when there is no memory. A size of 0 gives a unique pointer. Thread: any. */
void *mem_alloc(size_t bytes) RLV_MUST_CHECK;
void *mem_zalloc(size_t bytes) RLV_MUST_CHECK;

/* n zeroed elements of size bytes. NULL when there is no memory, or n * size does not fit. */
void *mem_array(size_t n, size_t size) RLV_MUST_CHECK;

/*
 * If *room < n, replaces the array at *array_inout (a pointer to any object) by one of n zeroed
 * elements; old elements are not kept. false: no memory; *room is then 0.
 */
bool mem_make_room(void *array_inout, size_t *room, size_t n, size_t size) RLV_MUST_CHECK;

/*
 * Grows an array from `from` to `to` elements, the new ones zero. false: no memory; the array is
 * unchanged.
 */
bool mem_grow(void *array_inout, size_t from, size_t to, size_t size) RLV_MUST_CHECK;

/*
 * Memory aligned to align, a power of two of at least sizeof(void *); not zeroed. NULL: no memory.
 */
void *mem_aligned(size_t align, size_t bytes) RLV_MUST_CHECK;

/* As realloc(3); on NULL the old block is untouched. */
void *mem_resize(void *ptr, size_t bytes) RLV_MUST_CHECK;

char *mem_strdup(const char *text) RLV_MUST_CHECK;

/* Frees memory of any mem_* function; NULL is a no-op. */
void mem_free(void *ptr);

/*
 * For tests: the n-th allocation from now on (1 = the next one), counted over all threads and all
 * of mem_*, alloc_* and pages_*, fails once. 0 turns it off. mem_fail_fired says whether it has
 * failed since: a test that sweeps all allocations sets 1, 2, 3, .. until a run ends without. Off,
 * it costs one relaxed load per allocation. Thread: any.
 */
void mem_fail_after(uint64_t n);
bool mem_fail_fired(void);

/*
 * Counts an allocation of another source (a mapping, a memfd) for mem_fail_after: true if it must
 * fail.
 */
bool mem_fail_now(void);

/* Source of the buffers that the library hands out. Both calls: any thread. */
struct alloc_hooks {
	void *(*alloc)(void *ctx, size_t align, size_t bytes); /* NULL when there is none */
	void (*free)(void *ctx, void *ptr, size_t bytes);      /* bytes as given to alloc */
	void *ctx;
};

/*
 * A buffer from the hooks' alloc; hooks NULL = the heap. NULL: no memory. mem_fail_after counts it.
 */
void *alloc_buffer(const struct alloc_hooks *hooks, size_t align, size_t bytes) RLV_MUST_CHECK;
void alloc_buffer_free(const struct alloc_hooks *hooks, void *ptr, size_t bytes);

/* Larger is better; the order matters. */
enum page_kind {
	PAGE_SMALL,   /* the system's page, 4 KiB on x86 */
	PAGE_THP,     /* 2 MiB by MADV_HUGEPAGE: requested and allowed, not guaranteed */
	PAGE_HUGETLB, /* 2 MiB from the reserved pool, guaranteed */
};

struct pages {
	void *ptr;
	size_t bytes; /* mapped, at least the size requested */
	enum page_kind kind;
};

/*
 * Zeroed private memory on pages of the kind wanted or, where the host has none, of the next
 * lower kind; pages_out->kind says which. Sizes that are multiples of 2 MiB are aligned to 2 MiB.
 * -EINVAL bytes 0, -EOVERFLOW, -ENOMEM.
 */
int pages_alloc(size_t bytes, enum page_kind wanted, struct pages *pages_out) RLV_MUST_CHECK;

/* Unmaps and zeroes *pages; a second call is a no-op. */
void pages_free(struct pages *pages);

/*
 * Gives all pages of a mapping their memory now, and this process's tables an entry for each: writes to them do not fault. What
 * they hold stays. Advice: nothing happens where the kernel cannot. Cost: about as long as to fill the new ones with zeros.
 */
void pages_populate(void *ptr, size_t bytes);

struct pages_view {
	void *at; /* the same bytes again */
	void *base;
	size_t bytes; /* of whole pages */
};

/* Maps shared pages of this process a second time; they stay when the first mapping ends. -ENOTSUP: the pages are
   private, or huge. Thread: any. */
int pages_view_open(const void *at, size_t bytes, bool writable, struct pages_view *out)
	RLV_MUST_CHECK;
/* Maps shared pages once more, read-only, in place of those at that offset of the view. They begin and end with pages, but may end within
   one where the view does. -ENOTSUP: as above, or the process has too many mappings. Thread: any. */
int pages_view_set(const struct pages_view *view, size_t off, const void *at, size_t bytes)
	RLV_MUST_CHECK;
void pages_view_close(struct pages_view *view);

/* True if the kernel honours MADV_HUGEPAGE for private memory. Looked up once. */
bool pages_thp_allowed(void);

/* Bytes of memory that this host has available; UINT64_MAX where it does not say. */
uint64_t pages_available(void);

/* "small", "thp", "hugetlb". Static. */
const char *page_kind_name(enum page_kind kind);

#endif

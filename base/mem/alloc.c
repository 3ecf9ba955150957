#include "base/mem/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/*
 * Allocations until one fails; 0 = off. Relaxed: only the count matters, and the decrement
 * decides alone which thread gets the failure.
 */
static _Atomic uint64_t fail_left;
static _Atomic bool fail_fired;

void mem_fail_after(uint64_t n)
{
	atomic_store_explicit(&fail_fired, false, memory_order_relaxed);
	atomic_store_explicit(&fail_left, n, memory_order_relaxed);
}

bool mem_fail_fired(void)
{
	return atomic_load_explicit(&fail_fired, memory_order_relaxed);
}

bool mem_fail_now(void)
{
	uint64_t left = atomic_load_explicit(&fail_left, memory_order_relaxed);

	if (__builtin_expect(left == 0, 1))
		return false;
	while (left != 0 &&
	       !atomic_compare_exchange_weak_explicit(&fail_left, &left, left - 1,
						      memory_order_relaxed, memory_order_relaxed))
		;
	if (left != 1)
		return false;
	atomic_store_explicit(&fail_fired, true, memory_order_relaxed);
	return true;
}

/* bytes, but 1 for 0: malloc(0) may give NULL, which would read as a failure. */
static size_t at_least_one(size_t bytes)
{
	return bytes ? bytes : 1;
}

void *mem_alloc(size_t bytes)
{
	return mem_fail_now() ? NULL : malloc(at_least_one(bytes));
}

void *mem_zalloc(size_t bytes)
{
	return mem_fail_now() ? NULL : calloc(1, at_least_one(bytes));
}

void *mem_array(size_t n, size_t size)
{
	size_t bytes;

	return __builtin_mul_overflow(n, size, &bytes) ? NULL : mem_zalloc(bytes);
}

bool mem_make_room(void *array_inout, size_t *room, size_t n, size_t size)
{
	void *array;

	if (n <= *room)
		return true;
	memcpy(&array, array_inout, sizeof(array)); /* whatever it points to */
	mem_free(array);
	array = mem_array(n, size);
	*room = array ? n : 0;
	memcpy(array_inout, &array, sizeof(array));
	return array;
}

void *mem_aligned(size_t align, size_t bytes)
{
	void *ptr = NULL;

	if (mem_fail_now() || posix_memalign(&ptr, align, at_least_one(bytes)) != 0)
		return NULL;
	return ptr;
}

void *mem_resize(void *ptr, size_t bytes)
{
	return mem_fail_now() ? NULL : realloc(ptr, at_least_one(bytes));
}

bool mem_grow(void *array_inout, size_t from, size_t to, size_t size)
{
	uint8_t *grown;
	void *array;

	memcpy(&array, array_inout, sizeof(array)); /* whatever it points to */
	grown = mem_resize(array, to * size);
	if (!grown)
		return false;
	memset(grown + from * size, 0, (to - from) * size);
	memcpy(array_inout, &grown, sizeof(grown));
	return true;
}

char *mem_strdup(const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = mem_alloc(bytes);

	return copy ? memcpy(copy, text, bytes) : NULL;
}

void mem_free(void *ptr)
{
	free(ptr);
}

void *alloc_buffer(const struct alloc_hooks *hooks, size_t align, size_t bytes)
{
	if (!hooks)
		return mem_aligned(align, bytes);
	return mem_fail_now() ? NULL : hooks->alloc(hooks->ctx, align, bytes);
}

void alloc_buffer_free(const struct alloc_hooks *hooks, void *ptr, size_t bytes)
{
	if (!ptr)
		return;
	if (hooks)
		hooks->free(hooks->ctx, ptr, bytes);
	else
		mem_free(ptr);
}

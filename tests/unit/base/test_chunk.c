#include "base/mem/chunk.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/rng.h"

#include "tests/support/test.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Registration that a device would keep. */
struct device {
	struct {
		char *base;
		size_t bytes;
	} chunks[CHUNK_MAX];
	uint32_t n;
	uint32_t added, removed;
};

static struct device device;

static void device_added(void *ctx, void *base, size_t bytes, uint32_t index)
{
	struct device *dev = ctx;

	assert_true(index < CHUNK_MAX);
	assert_null(dev->chunks[index].base);
	assert_true(is_aligned((uintptr_t)base, CHUNK_UNIT));
	assert_true(bytes > 0 && is_aligned(bytes, CHUNK_UNIT));
	dev->chunks[index].base = base;
	dev->chunks[index].bytes = bytes;
	dev->n++;
	dev->added++;
}

static void device_removed(void *ctx, uint32_t index)
{
	struct device *dev = ctx;

	assert_true(index < CHUNK_MAX);
	assert_non_null(dev->chunks[index].base);
	dev->chunks[index].base = NULL;
	dev->n--;
	dev->removed++;
}

static const struct chunk_listener listener = { device_added, device_removed, &device };

static int begin(void **state)
{
	(void)state;
	memset(&device, 0, sizeof(device));
	return 0;
}

/* No test leaves a chunk, a listener or a countdown behind. */
static int end(void **state)
{
	struct chunk_usage usage;

	(void)state;
	mem_fail_after(0);
	chunk_unlisten(&listener);
	chunk_usage(&usage);
	return usage.chunks || usage.bytes || usage.used_bytes || device.n ? -1 : 0;
}

static uint32_t chunks_now(void)
{
	struct chunk_usage usage;

	chunk_usage(&usage);
	return usage.chunks;
}

#define CASE(name) TEST_WITH(name, begin, end)

/* -------- buffers -------- */

CASE(chunk_alloc__buffers_share_a_chunk)
{
	char *a = chunk_alloc(8, 1000), *b = chunk_alloc(8, 1);
	uint32_t at_a, at_b;

	assert_non_null(a);
	assert_non_null(b);
	memset(a, 1, 1000);
	*b = 2;
	assert_true(is_aligned((uintptr_t)a, CACHE_LINE));
	assert_true(is_aligned((uintptr_t)b, CACHE_LINE));
	assert_true(b >= a + 1000 || b < a);
	assert_true(chunk_find(a, 1000, &at_a));
	assert_true(chunk_find(b, 1, &at_b));
	assert_int_equal(at_a, at_b);
	assert_int_equal(chunks_now(), 1);
	chunk_free(a, 1000);
	chunk_free(b, 1);
}

CASE(chunk_alloc__zero_bytes_is_a_pointer)
{
	void *a = chunk_alloc(64, 0), *b = chunk_alloc(64, 0);

	assert_non_null(a);
	assert_non_null(b);
	assert_ptr_not_equal(a, b);
	chunk_free(a, 0);
	chunk_free(b, 0);
	chunk_free(NULL, 7);
}

CASE(chunk_alloc__alignment_is_kept)
{
	void *odd = chunk_alloc(1, 65);

	for (size_t align = 1; align <= CHUNK_UNIT; align *= 2) {
		void *ptr = chunk_alloc(align, 100);

		assert_non_null(ptr);
		assert_true(is_aligned((uintptr_t)ptr, align));
		chunk_free(ptr, 100);
	}
	assert_null(chunk_alloc(2 * CHUNK_UNIT, 100));
	chunk_free(odd, 65);
}

CASE(chunk_alloc__large_gets_a_chunk_of_whole_units)
{
	size_t bytes = 2 * CHUNK_UNIT + 1;
	struct chunk_usage usage;
	char *ptr = chunk_alloc(64, bytes), *rest;
	uint32_t at, at_rest;

	assert_non_null(ptr);
	chunk_usage(&usage);
	assert_int_equal(usage.chunks, 1);
	assert_int_equal(usage.bytes, 3 * CHUNK_UNIT);
	assert_int_equal(usage.used_bytes, 2 * CHUNK_UNIT + 64);
	assert_true(chunk_find(ptr, bytes, &at));
	rest = chunk_alloc(64, CHUNK_UNIT / 2); /* fits behind */
	assert_true(chunk_find(rest, CHUNK_UNIT / 2, &at_rest));
	assert_int_equal(at, at_rest);
	chunk_free(ptr, bytes);
	chunk_free(rest, CHUNK_UNIT / 2);
}

CASE(chunk_alloc__impossible_size_is_null)
{
	assert_null(chunk_alloc(64, SIZE_MAX));
	assert_null(chunk_alloc(64, (size_t)PTRDIFF_MAX / 2));
}

CASE(chunk_make_room__is_zeroed_where_another_buffer_was)
{
	unsigned char *keep = chunk_alloc(64, 1), *dirty = chunk_alloc(64, 4096);
	struct mem clean = { 0 };

	memset(dirty, 0xff, 4096);
	chunk_free(dirty, 4096);
	assert_true(chunk_make_room(&clean, 4096));
	assert_ptr_equal(clean.ptr, dirty);
	for (int i = 0; i < 4096; i++)
		assert_int_equal(clean.ptr[i], 0);
	chunk_drop(&clean);
	chunk_free(keep, 1);
}

CASE(chunk_make_room__grows_and_never_shrinks)
{
	struct mem mem = { 0 };
	const uint8_t *before;

	assert_true(chunk_make_room(&mem, 100));
	assert_int_equal(mem.len, 100);
	before = mem.ptr;
	assert_true(chunk_make_room(&mem, 64));
	assert_ptr_equal(mem.ptr, before);
	assert_int_equal(mem.len, 100);
	assert_true(chunk_make_room(&mem, 4096));
	assert_int_equal(mem.len, 4096);
	assert_false(chunk_make_room(&mem, SIZE_MAX));
	assert_null(mem.ptr);
	assert_int_equal(mem.len, 0);
	chunk_drop(&mem);
}

CASE(chunk_mem__names_the_chunk_or_host_memory)
{
	struct mem made = { 0 }, part, beyond, stack;
	uint32_t at;
	uint64_t word;

	assert_true(chunk_make_room(&made, 4096));
	assert_true(chunk_find(made.ptr, 4096, &at));
	assert_int_equal(made.kind, MEM_REGISTERED);
	assert_int_equal(made.handle, at);
	part = chunk_mem(made.ptr + 4088, 8);
	assert_int_equal(part.kind, MEM_REGISTERED);
	assert_int_equal(part.handle, at);
	assert_ptr_equal(part.ptr, made.ptr + 4088);
	assert_int_equal(part.len, 8);
	beyond = chunk_mem(made.ptr, CHUNK_UNIT + 1);
	assert_int_equal(beyond.kind, MEM_HOST);
	stack = chunk_mem(&word, sizeof(word));
	assert_int_equal(stack.kind, MEM_HOST);
	chunk_drop(&made);
	assert_null(made.ptr);
}

CASE(chunk_free__gap_is_used_again)
{
	void *ptrs[4], *again;

	for (int i = 0; i < 4; i++)
		ptrs[i] = chunk_alloc(64, CHUNK_UNIT / 4);
	assert_int_equal(chunks_now(), 1);
	chunk_free(ptrs[1], CHUNK_UNIT / 4);
	chunk_free(ptrs[2], CHUNK_UNIT / 4);
	again = chunk_alloc(64, CHUNK_UNIT / 2);
	assert_ptr_equal(again, ptrs[1]);
	assert_int_equal(chunks_now(), 1);
	chunk_free(ptrs[0], CHUNK_UNIT / 4);
	chunk_free(again, CHUNK_UNIT / 2);
	chunk_free(ptrs[3], CHUNK_UNIT / 4);
}

CASE(chunk_free__in_parts_and_of_neighbours_together)
{
	char *a = chunk_alloc(4096, 16384), *b = chunk_alloc(4096, 4096);

	assert_ptr_equal(b, a + 16384);
	chunk_free(a, 4096);
	chunk_free(a + 4096, 16384); /* the rest of a, and b */
	assert_int_equal(chunks_now(), 0);
}

CASE(chunk_free__last_buffer_unmaps_the_chunk)
{
	void *ptr = chunk_alloc(64, 10);
	uint32_t at;

	assert_true(chunk_find(ptr, 10, &at));
	chunk_free(ptr, 10);
	assert_int_equal(chunks_now(), 0);
	assert_false(chunk_find(ptr, 10, &at));
}

/* -------- lookup -------- */

CASE(chunk_find__memory_of_others_is_none)
{
	void *heap = mem_alloc(100);
	uint32_t at = 77;

	assert_false(chunk_find(heap, 100, &at));
	assert_false(chunk_find(&at, sizeof(at), &at));
	assert_false(chunk_find(NULL, 1, &at));
	assert_false(chunk_find((void *)(uintptr_t)0xffffffff00000000u, 8, &at));
	assert_int_equal(at, 77);
	mem_free(heap);
}

CASE(chunk_find__range_beyond_the_chunk_is_none)
{
	char *ptr = chunk_alloc(CHUNK_UNIT, CHUNK_UNIT);
	uint32_t at;

	assert_true(chunk_find(ptr, CHUNK_UNIT, &at));
	assert_true(chunk_find(ptr + CHUNK_UNIT - 1, 1, &at));
	assert_false(chunk_find(ptr, CHUNK_UNIT + 1, &at));
	assert_false(chunk_find(ptr - 1, 2, &at));
	assert_false(chunk_find(ptr, SIZE_MAX, &at));
	chunk_free(ptr, CHUNK_UNIT);
}

CASE(chunk_find__two_chunks_are_not_one)
{
	char *a = chunk_alloc(CHUNK_UNIT, CHUNK_UNIT), *b = chunk_alloc(CHUNK_UNIT, CHUNK_UNIT);
	uint32_t at_a, at_b;

	assert_true(chunk_find(a, CHUNK_UNIT, &at_a));
	assert_true(chunk_find(b, CHUNK_UNIT, &at_b));
	assert_int_not_equal(at_a, at_b);
	if (b == a + CHUNK_UNIT) /* as the kernel likes it */
		assert_false(chunk_find(a, 2 * CHUNK_UNIT, &at_a));
	if (a == b + CHUNK_UNIT)
		assert_false(chunk_find(b, 2 * CHUNK_UNIT, &at_a));
	chunk_free(a, CHUNK_UNIT);
	chunk_free(b, CHUNK_UNIT);
}

/* -------- listeners -------- */

CASE(chunk_listen__hears_of_what_is_there_and_what_comes)
{
	char *before = chunk_alloc(64, CHUNK_UNIT), *after;
	uint32_t at_before, at_after;

	assert_int_equal(chunk_listen(&listener), 0);
	assert_int_equal(device.added, 1);
	after = chunk_alloc(64, 3 * CHUNK_UNIT);
	assert_int_equal(device.added, 2);
	assert_true(chunk_find(before, CHUNK_UNIT, &at_before));
	assert_true(chunk_find(after, 3 * CHUNK_UNIT, &at_after));
	assert_ptr_equal(device.chunks[at_before].base, before);
	assert_ptr_equal(device.chunks[at_after].base, after);
	assert_int_equal(device.chunks[at_after].bytes, 3 * CHUNK_UNIT);
	chunk_free(before, CHUNK_UNIT);
	assert_int_equal(device.removed, 1);
	assert_null(device.chunks[at_before].base);
	chunk_free(after, 3 * CHUNK_UNIT);
	assert_int_equal(device.n, 0);
}

CASE(chunk_unlisten__hears_removed_then_nothing)
{
	void *ptr = chunk_alloc(64, 64), *more;

	assert_int_equal(chunk_listen(&listener), 0);
	chunk_unlisten(&listener);
	assert_int_equal(device.removed, 1);
	more = chunk_alloc(64, CHUNK_UNIT);
	assert_int_equal(device.added, 1);
	chunk_unlisten(&listener);
	assert_int_equal(device.removed, 1);
	chunk_free(more, CHUNK_UNIT);
	chunk_free(ptr, 64);
}

CASE(chunk_listen__too_many_are_refused)
{
	struct chunk_listener many[CHUNK_LISTENERS_MAX + 1];

	for (int i = 0; i <= CHUNK_LISTENERS_MAX; i++) {
		many[i] = listener;
		assert_int_equal(chunk_listen(&many[i]), i == CHUNK_LISTENERS_MAX ? -ENOSPC : 0);
	}
	for (int i = 0; i <= CHUNK_LISTENERS_MAX; i++)
		chunk_unlisten(&many[i]);
}

/* -------- fork -------- */

/* Runs fn in a child; it returns 0 on success. */
static int in_child(int (*look)(char *ptr), char *ptr)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(look(ptr));
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static int child_has_a_copy(char *ptr)
{
	uint32_t at;
	char *mine;

	if (*ptr != 5 || chunk_find(ptr, 64, &at))
		return 1;
	chunk_free(ptr, 64); /* the parent's: nothing happens */
	mine = chunk_alloc(64, 64);
	if (!mine || mine == ptr || *ptr != 5)
		return 2;
	chunk_free(mine, 64);
	return chunks_now() == 0 ? 0 : 3;
}

CASE(chunk__child_keeps_a_copy_where_no_device_listens)
{
	char *ptr = chunk_alloc(64, 64);

	*ptr = 5;
	assert_int_equal(in_child(child_has_a_copy, ptr), 0);
	assert_int_equal(*ptr, 5);
	assert_int_equal(chunks_now(), 1);
	chunk_free(ptr, 64);
}

static int child_has_no_such_page(char *ptr)
{
	int fds[2];
	char *mine;
	char seen;

	/* read by write(2), which minds no fault; another mapping may be there by now */
	if (pipe(fds))
		return 1;
	if (write(fds[1], ptr, 1) == 1 && (read(fds[0], &seen, 1) != 1 || seen == 5))
		return 1;
	mine = chunk_alloc(64, 64);
	if (!mine)
		return 2;
	*mine = 1;
	chunk_free(mine, 64);
	return device.added == 1 && device.removed == 0 ? 0 : 3;
}

CASE(chunk__child_has_nothing_that_a_device_knows)
{
	char *ptr = chunk_alloc(64, 64);

	assert_int_equal(chunk_listen(&listener), 0);
	*ptr = 5;
	assert_int_equal(in_child(child_has_no_such_page, ptr), 0);
	assert_int_equal(*ptr, 5);
	chunk_free(ptr, 64);
}

/* -------- failures and chance -------- */

CASE(chunk_alloc__failed_allocation_leaves_nothing)
{
	uint64_t n;

	assert_int_equal(chunk_listen(&listener), 0);
	for (n = 1;; n++) {
		void *ptr;

		mem_fail_after(n);
		ptr = chunk_alloc(64, 5 * CHUNK_UNIT);
		if (!mem_fail_fired()) {
			assert_non_null(ptr);
			chunk_free(ptr, 5 * CHUNK_UNIT);
			break;
		}
		assert_null(ptr);
		assert_int_equal(chunks_now(), 0);
	}
	assert_true(n >= 4); /* itself, the mapping, the bitmap */
	assert_int_equal(device.added, 1);
}

#define LIVE 64

struct live {
	unsigned char *ptr;
	size_t bytes;
	unsigned char fill;
};

static void assert_filled(const struct live *live)
{
	uint32_t at;

	assert_true(chunk_find(live->ptr, live->bytes, &at));
	assert_true(live->ptr >= (unsigned char *)device.chunks[at].base);
	assert_true(live->ptr + live->bytes <=
		    (unsigned char *)device.chunks[at].base + device.chunks[at].bytes);
	for (size_t i = 0; i < live->bytes; i++)
		if (live->ptr[i] != live->fill)
			fail_msg("byte %zu of %zu belongs to two", i, live->bytes);
}

CASE(chunk__random_buffers_never_overlap)
{
	uint64_t seed = test_seed("chunk__random_buffers_never_overlap", 3);
	struct live live[LIVE] = { 0 };
	struct rng rng;

	rng_seed(&rng, seed, 0);
	assert_int_equal(chunk_listen(&listener), 0);
	for (int step = 0; step < 4000; step++) {
		struct live *l = &live[rng_uniform_u64(&rng, LIVE)];

		if (l->ptr) {
			assert_filled(l);
			chunk_free(l->ptr, l->bytes);
			l->ptr = NULL;
			continue;
		}
		l->bytes = 1 + rng_uniform_u64(&rng, UINT64_C(1) << rng_uniform_u64(&rng, 19));
		l->fill = (unsigned char)step;
		l->ptr = chunk_alloc((size_t)1 << rng_uniform_u64(&rng, 14), l->bytes);
		assert_non_null(l->ptr);
		memset(l->ptr, l->fill, l->bytes);
	}
	for (int i = 0; i < LIVE; i++) {
		if (live[i].ptr)
			assert_filled(&live[i]);
		chunk_free(live[i].ptr, live[i].bytes);
	}
}

/* Its handle is a chunk's, its addresses are nobody's. */
TEST_WITH(lend__is_a_handle_that_listeners_lose, begin, end)
{
	static uint64_t theirs[8];
	struct mem mem = { .kind = MEM_DEVICE, .ptr = (uint8_t *)theirs, .len = sizeof(theirs) };
	struct chunk_usage usage;
	uint32_t index;
	void *ours = chunk_alloc(64, 64), *later;

	assert_int_equal(chunk_listen(&listener), 0);
	assert_true(chunk_lend(&mem));
	assert_true(chunk_find(ours, 64, &index));
	assert_int_not_equal(mem.handle, index);
	assert_false(chunk_find(theirs, 8, &index));
	assert_int_equal(device.added, 1); /* ours alone */
	later = chunk_alloc(64, CHUNK_UNIT);
	assert_true(chunk_find(later, 64, &index));
	assert_int_not_equal(mem.handle, index);
	chunk_usage(&usage);
	assert_int_equal(usage.chunks, 2);
	device.chunks[mem.handle].base = (char *)theirs; /* as reached */
	device.n++;
	chunk_unlend(&mem);
	assert_int_equal(device.removed, 1);
	chunk_unlend(&mem);
	assert_int_equal(device.removed, 1);
	chunk_free(later, CHUNK_UNIT);
	chunk_free(ours, 64);
	chunk_unlisten(&listener);
}

int main(void)
{
	if (test_skips_valgrind("forks"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}

#include "base/mem/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "tests/support/test.h"

static int disarm(void **state)
{
	(void)state;
	mem_fail_after(0);
	return 0;
}

TEST(mem_alloc__zero_bytes_is_a_pointer)
{
	void *a = mem_alloc(0), *b = mem_zalloc(0), *c = mem_array(0, 8);

	assert_non_null(a);
	assert_non_null(b);
	assert_non_null(c);
	assert_ptr_not_equal(a, b);
	mem_free(a);
	mem_free(b);
	mem_free(c);
	mem_free(NULL);
}

TEST(mem_array__product_that_does_not_fit_is_null)
{
	assert_null(mem_array(SIZE_MAX / 2, 3));
	assert_null(mem_array(SIZE_MAX, SIZE_MAX));
}

TEST(mem_grow__keeps_the_old_and_zeroes_the_new)
{
	uint32_t *array = NULL;

	assert_true(mem_grow(&array, 0, 2, sizeof(*array)));
	assert_int_equal(array[0] | array[1], 0);
	array[0] = 7;
	array[1] = 8;
	assert_true(mem_grow(&array, 2, 100, sizeof(*array)));
	assert_int_equal(array[0], 7);
	assert_int_equal(array[1], 8);
	for (uint32_t i = 2; i < 100; i++)
		assert_int_equal(array[i], 0);
	mem_fail_after(1);
	assert_false(mem_grow(&array, 100, 200, sizeof(*array)));
	mem_fail_after(0);
	assert_int_equal(array[1], 8);
	mem_free(array);
}

TEST(mem_make_room__grows_and_says_when_it_cannot)
{
	uint32_t *array = NULL, *first;
	size_t room = 0;

	assert_true(mem_make_room(&array, &room, 10, sizeof(*array)));
	assert_int_equal(room, 10);
	assert_int_equal(array[9], 0);
	first = array;
	assert_true(mem_make_room(&array, &room, 7, sizeof(*array)));
	assert_ptr_equal(array, first);
	assert_true(mem_make_room(&array, &room, 1000, sizeof(*array)));
	assert_int_equal(room, 1000);
	assert_int_equal(array[999], 0);
	assert_false(mem_make_room(&array, &room, SIZE_MAX / 2, sizeof(*array)));
	assert_int_equal(room, 0);
	assert_null(array);
}

TEST(mem_array__is_zeroed)
{
	unsigned char *bytes = mem_array(100, 7);

	assert_non_null(bytes);
	for (int i = 0; i < 700; i++)
		assert_int_equal(bytes[i], 0);
	mem_free(bytes);
}

TEST(mem_aligned__is_aligned)
{
	for (size_t align = sizeof(void *); align <= 4096; align *= 2) {
		void *ptr = mem_aligned(align, 10);

		assert_non_null(ptr);
		assert_true(is_aligned((uintptr_t)ptr, align));
		mem_free(ptr);
	}
}

TEST_WITH(mem_resize__failure_leaves_the_block, NULL, disarm)
{
	char *text = mem_strdup("still here");

	assert_non_null(text);
	mem_fail_after(1);
	assert_null(mem_resize(text, 1000));
	assert_string_equal(text, "still here");
	text = mem_resize(text, 1000);
	assert_non_null(text);
	assert_string_equal(text, "still here");
	mem_free(text);
}

/*
 * Makes one call of each kind in a fixed order; returns the number that succeeded, or the index of
 * the failure.
 */
static unsigned allocate_all(void)
{
	struct pages pages = { 0 };
	void *ptrs[6];
	unsigned failed = 0;

	ptrs[0] = mem_alloc(1);
	ptrs[1] = mem_zalloc(1);
	ptrs[2] = mem_array(2, 2);
	ptrs[3] = mem_aligned(64, 64);
	ptrs[4] = mem_strdup("x");
	ptrs[5] = alloc_buffer(NULL, 64, 64);
	for (unsigned i = 0; i < 6; i++)
		failed |= ptrs[i] ? 0 : 1u << i;
	if (pages_alloc(1, PAGE_SMALL, &pages) != 0)
		failed |= 1u << 6;
	for (unsigned i = 0; i < 6; i++)
		mem_free(ptrs[i]);
	pages_free(&pages);
	return failed;
}

TEST_WITH(mem_fail_after__sweep_fails_each_allocation_once, NULL, disarm)
{
	uint64_t n;

	for (n = 1;; n++) {
		unsigned failed;

		mem_fail_after(n);
		failed = allocate_all();
		if (!mem_fail_fired())
			break;
		assert_int_equal(failed, 1u << (n - 1));
		assert_int_equal(allocate_all(), 0);
	}
	assert_int_equal(n, 8);
}

TEST_WITH(mem_fail_after__zero_turns_it_off, NULL, disarm)
{
	mem_fail_after(3);
	mem_fail_after(0);
	assert_int_equal(allocate_all(), 0);
	assert_false(mem_fail_fired());
}

enum { THREADS = 4, EACH = 1000 };

static _Atomic unsigned nulls;

static void *allocate_many(void *arg)
{
	(void)arg;
	for (int i = 0; i < EACH; i++) {
		void *ptr = mem_alloc(8);

		if (!ptr)
			atomic_fetch_add(&nulls, 1);
		mem_free(ptr);
	}
	return NULL;
}

TEST_WITH(mem_fail_after__strikes_once_over_all_threads, NULL, disarm)
{
	pthread_t threads[THREADS];

	atomic_store(&nulls, 0);
	mem_fail_after(THREADS * EACH); /* the very last of all */
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, allocate_many, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&nulls), 1);
	assert_true(mem_fail_fired());
}

struct chunk {
	_Alignas(64) char bytes[256];
	size_t asked, freed;
};

static void *chunk_alloc(void *ctx, size_t align, size_t bytes)
{
	struct chunk *chunk = ctx;

	if (align > 64 || bytes > sizeof(chunk->bytes))
		return NULL;
	chunk->asked = bytes;
	return chunk->bytes;
}

static void chunk_free(void *ctx, void *ptr, size_t bytes)
{
	struct chunk *chunk = ctx;

	assert_ptr_equal(ptr, chunk->bytes);
	chunk->freed = bytes;
}

TEST(alloc_buffer__comes_from_the_hooks)
{
	struct chunk chunk = { .asked = 0 };
	const struct alloc_hooks hooks = { chunk_alloc, chunk_free, &chunk };
	void *ptr = alloc_buffer(&hooks, 64, 100);

	assert_ptr_equal(ptr, chunk.bytes);
	assert_int_equal(chunk.asked, 100);
	alloc_buffer_free(&hooks, ptr, 100);
	assert_int_equal(chunk.freed, 100);
	assert_null(alloc_buffer(&hooks, 64, 257));
	alloc_buffer_free(&hooks, NULL, 257);
	assert_int_equal(chunk.freed, 100);
}

TEST_WITH(alloc_buffer__countdown_spares_the_hook, NULL, disarm)
{
	struct chunk chunk = { .asked = 0 };
	const struct alloc_hooks hooks = { chunk_alloc, chunk_free, &chunk };

	mem_fail_after(1);
	assert_null(alloc_buffer(&hooks, 64, 100));
	assert_int_equal(chunk.asked, 0);
}

TEST(pages_alloc__gives_zeroed_memory_of_every_kind)
{
	for (int kind = PAGE_SMALL; kind <= PAGE_HUGETLB; kind++) {
		struct pages pages;
		unsigned char *bytes;

		assert_int_equal(pages_alloc(5 << 20, (enum page_kind)kind, &pages), 0);
		assert_true(pages.kind <= (enum page_kind)kind);
		assert_true(pages.bytes >= 5 << 20);
		if (pages.kind != PAGE_SMALL)
			assert_true(is_aligned((uintptr_t)pages.ptr, 2 << 20));
		bytes = pages.ptr;
		assert_int_equal(bytes[0] | bytes[5 << 19] | bytes[pages.bytes - 1], 0);
		memset(bytes, 1, pages.bytes);
		print_message("wanted %s got %s\n", page_kind_name((enum page_kind)kind),
			      page_kind_name(pages.kind));
		pages_free(&pages);
		assert_null(pages.ptr);
		pages_free(&pages);
	}
}

TEST(pages_populate__gives_every_page_its_memory)
{
	enum { N = 300 };
	struct pages pages;
	unsigned char *bytes, there[N] = { 0 };

	assert_int_equal(pages_alloc(N * 4096, PAGE_SMALL, &pages), 0);
	bytes = pages.ptr;
	bytes[5000] = 7;
#ifdef MADV_POPULATE_WRITE
	if (madvise(bytes, 4096, MADV_POPULATE_WRITE)) {
		print_message("this kernel populates nothing\n");
		pages_free(&pages);
		skip();
	}
#endif
	pages_populate(bytes + 3 * 4096 + 100, (N - 3) * 4096 - 100);
	assert_int_equal(mincore(bytes, (size_t)N * 4096, there), 0);
	assert_int_equal(there[2] & 1, 0);
	for (int i = 3; i < N; i++)
		assert_int_equal(there[i] & 1, 1);
	assert_int_equal(bytes[5000], 7);
	pages_free(&pages);
}

TEST(pages_alloc__small_is_what_small_gets)
{
	struct pages pages;

	assert_int_equal(pages_alloc(1, PAGE_SMALL, &pages), 0);
	assert_int_equal(pages.kind, PAGE_SMALL);
	assert_true(pages.bytes < 2 << 20);
	pages_free(&pages);
}

TEST(pages_alloc__bad_size_is_refused)
{
	struct pages pages = { .bytes = 77 };

	assert_int_equal(pages_alloc(0, PAGE_SMALL, &pages), -EINVAL);
	assert_non_null(strstr(error_last(), "bytes 0"));
	assert_int_equal(pages_alloc(SIZE_MAX, PAGE_THP, &pages), -EOVERFLOW);
	assert_int_equal(pages_alloc(SIZE_MAX / 4, PAGE_HUGETLB, &pages), -ENOMEM);
	assert_int_equal(pages.bytes, 77);
	assert_null(pages.ptr);
}

int main(void)
{
	return test_run(NULL, NULL);
}

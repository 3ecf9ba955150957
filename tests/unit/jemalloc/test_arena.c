/*
 * The arena with the real jemalloc, over chunks.
 */
#include "base/jemalloc/arena.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/mem/chunk.h"
#include "base/rng.h"

#include "tests/support/test.h"

#include <jemalloc/jemalloc.h>

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *take(size_t align, size_t bytes)
{
	return arena_alloc((void *)&arena_chunks, align, bytes);
}

TEST(arena_alloc__every_size_lies_in_one_chunk)
{
	uint32_t at;

	for (size_t bytes = 1; bytes <= (size_t)16 << 20; bytes += 1 + bytes / 3) {
		char *ptr = take(8, bytes);

		assert_non_null(ptr);
		assert_true(chunk_find(ptr, bytes, &at));
		memset(ptr, 1, bytes);
		arena_free(NULL, ptr, 0);
	}
}

TEST(arena_alloc__alignment_is_kept)
{
	for (size_t align = 1; align <= CHUNK_UNIT; align *= 2) {
		void *ptr = take(align, 24);

		assert_non_null(ptr);
		assert_true(is_aligned((uintptr_t)ptr, align));
		arena_free(NULL, ptr, 0);
	}
	assert_null(take(2 * CHUNK_UNIT, 24));
}

TEST(arena_alloc__edges)
{
	void *none = take(8, 0);

	assert_non_null(none);
	arena_free(NULL, none, 0);
	arena_free(NULL, NULL, 0);
	assert_null(take(8, SIZE_MAX));
	assert_null(take(8, (size_t)PTRDIFF_MAX / 2));
}

TEST(arena_open__number_is_of_this_arena_alone)
{
	size_t bytes = sizeof(unsigned);
	unsigned mine, again, whose;
	void *ptr, *ordinary = malloc(100);
	uint32_t at;

	assert_int_equal(arena_open(&arena_chunks, &mine), 0);
	assert_int_equal(arena_open(&arena_chunks, &again), 0);
	assert_int_equal(mine, again);
	ptr = mallocx(100, MALLOCX_ARENA(mine) | MALLOCX_TCACHE_NONE);
	assert_true(chunk_find(ptr, 100, &at));
	assert_int_equal(mallctl("arenas.lookup", &whose, &bytes, &ptr, sizeof(ptr)), 0);
	assert_int_equal(whose, mine);
	assert_false(chunk_find(ordinary, 100, &at)); /* malloc stays where it was */
	dallocx(ptr, MALLOCX_TCACHE_NONE);
	free(ordinary);
}

TEST(arena_alloc__of_this_cache_after_malloc_frees)
{
	void *mixed[64];
	uint32_t at;

	for (int i = 0; i < 64; i++)
		mixed[i] = i % 2 ? take(8, 200) : malloc(200);
	for (int i = 0; i < 64; i++) {
		if (i % 2)
			arena_free(NULL, mixed[i], 0);
		else
			free(mixed[i]);
	}
	for (int i = 0; i < 64; i++) {
		mixed[i] = i % 2 ? take(8, 200) : malloc(200);
		assert_int_equal(chunk_find(mixed[i], 200, &at), i % 2);
	}
	for (int i = 0; i < 64; i++) {
		if (i % 2)
			arena_free(NULL, mixed[i], 0);
		else
			free(mixed[i]);
	}
}

static void purge(void)
{
	unsigned mine;
	char name[64];

	assert_int_equal(arena_open(&arena_chunks, &mine), 0);
	(void)snprintf(name, sizeof(name), "arena.%u.purge", mine);
	assert_int_equal(mallctl(name, NULL, NULL, NULL, 0), 0);
}

TEST(arena__is_as_large_as_its_largest_use)
{
	struct chunk_usage first, last;
	void *ptrs[8];

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 8; i++) {
			ptrs[i] = take(64, 6 * CHUNK_UNIT);
			assert_non_null(ptrs[i]);
		}
		chunk_usage(round ? &last : &first);
		for (int i = 0; i < 8; i++)
			arena_free(NULL, ptrs[i], 0);
		purge();
	}
	assert_true(first.bytes >= 8 * 6 * CHUNK_UNIT);
	assert_int_equal(last.bytes, first.bytes);
}

TEST(arena_alloc__no_memory_is_null)
{
	mem_fail_after(1);
	assert_null(take(64, 100));
	mem_fail_after(0);
	assert_null(take(64, (size_t)1 << 46)); /* the hook says so */
}

/* -------- threads -------- */

enum { THREADS = 4, LIVE = 200, STEPS = 20000 };

struct buffer {
	unsigned char *ptr;
	size_t bytes;
};

/* Half of the buffers are freed by the thread that joins: memory may change threads. */
struct worker {
	pthread_t thread;
	uint64_t seed;
	struct buffer live[LIVE];
	uint32_t bad;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct rng rng;
	uint32_t at;

	rng_seed(&rng, w->seed, 0);
	for (int step = 0; step < STEPS; step++) {
		struct buffer *b = &w->live[rng_uniform_u64(&rng, LIVE)];
		size_t bytes = 1 + rng_uniform_u64(&rng, UINT64_C(1) << rng_uniform_u64(&rng, 17));

		if (b->ptr)
			w->bad += b->ptr[0] != (unsigned char)b->bytes ||
				  b->ptr[b->bytes - 1] != (unsigned char)b->bytes;
		arena_free(NULL, b->ptr, 0);
		b->ptr = take(8, bytes);
		b->bytes = bytes;
		if (!b->ptr || !chunk_find(b->ptr, bytes, &at)) {
			w->bad++;
			return NULL;
		}
		b->ptr[0] = b->ptr[bytes - 1] = (unsigned char)bytes;
	}
	return NULL;
}

TEST(arena__threads_share_it)
{
	static struct worker workers[THREADS];
	uint64_t seed = test_seed("arena__threads_share_it", 5);

	for (uint64_t i = 0; i < THREADS; i++) {
		workers[i].seed = seed + i;
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].bad, 0);
		for (int k = 0; k < LIVE; k++)
			arena_free(NULL, workers[i].live[k].ptr, 0);
	}
}

static void *count_caches(void *arg)
{
	size_t bytes = sizeof(unsigned);

	arena_free(NULL, take(8, 100), 0);
	/* the lowest number that is free */
	if (mallctl("tcache.create", arg, &bytes, NULL, 0) == 0)
		(void)mallctl("tcache.destroy", NULL, NULL, arg, bytes);
	return NULL;
}

TEST(arena__cache_of_a_thread_ends_with_it)
{
	unsigned first = 0, last = 0;

	for (int i = 0; i < 50; i++) {
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, count_caches, i ? &last : &first),
				 0);
		pthread_join(thread, NULL);
	}
	assert_int_equal(last, first);
}

/* -------- fork -------- */

static void chunk_heard(void *ctx, void *base, size_t bytes, uint32_t index)
{
	(void)ctx;
	(void)base;
	(void)bytes;
	(void)index;
}

static void chunk_gone(void *ctx, uint32_t index)
{
	(void)ctx;
	(void)index;
}

static int child_works(unsigned parents)
{
	unsigned mine;
	uint32_t at;
	char *ptr;

	free(malloc(100));
	if (arena_open(&arena_chunks, &mine) || mine == parents)
		return 1;
	ptr = take(8, 100);
	if (!ptr || !chunk_find(ptr, 100, &at))
		return 2;
	memset(ptr, 1, 100);
	arena_free(NULL, ptr, 0);
	return 0;
}

/* Chunks are not mapped in the child, as with a registered device. */
TEST(arena__child_has_its_own)
{
	const struct chunk_listener device = { chunk_heard, chunk_gone, NULL };
	char *ptr = take(8, 100);
	unsigned mine;
	pid_t pid;
	int status;

	assert_int_equal(arena_open(&arena_chunks, &mine), 0);
	assert_int_equal(chunk_listen(&device), 0);
	*ptr = 1;
	pid = fork();
	if (pid == 0)
		_exit(child_works(mine));
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(*ptr, 1);
	arena_free(NULL, ptr, 0);
	chunk_unlisten(&device);
}

int main(void)
{
	if (test_skips_valgrind("forks"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}

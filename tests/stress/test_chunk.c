/*
 * Threads that take and give back buffers of chunks, look them up and hand them to each other, while
 * devices come and go. A device's key for a chunk is a plain word, as in a device's table: under
 * TSan the edges of base/mem/chunk.h are what makes that right.
 */
#include "base/mem/chunk.h"

#include "base/rng.h"

#include "tests/support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define THREADS 3
#define STEPS 1500
#define HELD 8
#define SEED 23

static struct {
	uintptr_t base; /* 0 = not registered */
	size_t bytes;
} keys[CHUNK_MAX];

static atomic_int failed;
static atomic_bool stop;

/* A place where one thread leaves a buffer's address and any may look it up. */
static _Atomic(char *) shown;

static void expect(bool good, const char *what)
{
	if (good)
		return;
	atomic_store_explicit(&failed, 1, memory_order_relaxed); /* read after the join */
	print_message("%s\n", what);
}

static void key_added(void *ctx, void *base, size_t bytes, uint32_t index)
{
	(void)ctx;
	keys[index].base = (uintptr_t)base;
	keys[index].bytes = bytes;
}

static void key_removed(void *ctx, uint32_t index)
{
	(void)ctx;
	keys[index].base = 0;
}

static void hear_added(void *ctx, void *base, size_t bytes, uint32_t index)
{
	(void)base;
	(void)bytes;
	(void)index;
	++*(uint32_t *)ctx;
}

static void hear_removed(void *ctx, uint32_t index)
{
	(void)index;
	--*(uint32_t *)ctx;
}

/* The caller holds the buffer, so its chunk and the device's key of it stay. */
static void look(const char *ptr, size_t bytes)
{
	uintptr_t at = (uintptr_t)ptr;
	uint32_t index = 0;

	expect(chunk_find(ptr, bytes, &index), "buffer of no chunk");
	expect(keys[index].base && at >= keys[index].base &&
		       at + bytes <= keys[index].base + keys[index].bytes,
	       "key of another chunk");
}

static void *work(void *arg)
{
	struct {
		char *ptr;
		size_t bytes;
	} held[HELD] = { 0 };
	struct rng rng;

	rng_seed(&rng, SEED, (uintptr_t)arg);
	for (uint32_t i = 0; i < STEPS + HELD; i++) {
		uint32_t at = i % HELD;

		if (held[at].ptr) {
			look(held[at].ptr, held[at].bytes);
			expect(*held[at].ptr == (char)at, "buffer of two");
			chunk_free(held[at].ptr, held[at].bytes);
			held[at].ptr = NULL;
		}
		if (i >= STEPS)
			continue;
		held[at].bytes = 1 + rng_uniform_u64(&rng, CHUNK_UNIT);
		held[at].ptr = chunk_alloc(64, held[at].bytes);
		expect(held[at].ptr != NULL, "no memory");
		if (!held[at].ptr)
			return NULL;
		*held[at].ptr = (char)at;
		look(held[at].ptr, held[at].bytes);
		/* relaxed: the lookup must hold for addresses that come without an order, too */
		atomic_store_explicit(&shown, held[at].ptr, memory_order_relaxed);
	}
	return NULL;
}

/* Looks up memory that others make and drop at this time: any answer, but one. */
static void *watch(void *arg)
{
	uint64_t found = 0;

	(void)arg;
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) { /* a hint to end */
		char *ptr = atomic_load_explicit(&shown, memory_order_relaxed);
		uint32_t index;

		if (ptr && chunk_find(ptr, 1, &index)) {
			expect(index < CHUNK_MAX, "no index");
			found++;
		}
		expect(!chunk_find(&found, sizeof(found), &index), "a stack in a chunk");
	}
	return NULL;
}

/* Devices that come and go. */
static void *listen_on_and_off(void *arg)
{
	(void)arg;
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) { /* a hint to end */
		uint32_t heard = 0;
		const struct chunk_listener listener = { hear_added, hear_removed, &heard };

		expect(chunk_listen(&listener) == 0, "listen");
		chunk_unlisten(&listener);
		expect(heard == 0, "added and removed do not match");
	}
	return NULL;
}

TEST(chunk__threads_and_devices)
{
	static const struct chunk_listener listener = { key_added, key_removed, NULL };
	pthread_t threads[THREADS], watcher, devices;
	struct chunk_usage usage;

	assert_int_equal(chunk_listen(&listener), 0);
	assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
	assert_int_equal(pthread_create(&devices, NULL, listen_on_and_off, NULL), 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	atomic_store_explicit(&stop, true, memory_order_relaxed);
	pthread_join(watcher, NULL);
	pthread_join(devices, NULL);
	assert_int_equal(atomic_load_explicit(&failed, memory_order_relaxed), 0);
	chunk_usage(&usage);
	assert_int_equal(usage.chunks, 0);
	for (int i = 0; i < CHUNK_MAX; i++)
		assert_true(keys[i].base == 0);
	chunk_unlisten(&listener);
}

int main(void)
{
	return test_run(NULL, NULL);
}

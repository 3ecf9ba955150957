/* Threads with a client each put, get and compare-and-put the same keys of a small heap. */
#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/must_internal.h"

#include "base/rng.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define THREADS 4u
#define KEYS 6u
#define OPS 20000u

struct thread {
	pthread_t id;
	struct heap_client client;
	uint64_t seen[KEYS];
	uint64_t won; /* compare-and-puts of the counter */
	uint64_t waits;
	uint32_t number;
	const char *failed;
};

/* A value that proves itself: words that depend on its length and version. */
static void fill(uint64_t *words, uint64_t n, uint64_t key, uint64_t salt)
{
	for (uint64_t i = 0; i < n; i++)
		words[i] = (i == 0 ? salt : words[0] * 3 + i) ^ key << 56;
}

static bool is_whole(const struct heap_value *got, uint64_t key)
{
	uint64_t want[256], have[256], n = got->len / 8;

	if (got->len % 8 || n == 0 || n > 256)
		return false;
	memcpy(have, got->ptr, got->len);
	want[0] = have[0];
	for (uint64_t i = 1; i < n; i++)
		want[i] = (want[0] * 3 + i) ^ key << 56;
	return have[0] >> 56 == key && memcmp(want, have, got->len) == 0;
}

static struct chain_key key_of(const struct thread *t, const char *text)
{
	return chain_key(text, (uint32_t)strlen(text), t->client.heap->desc.seed);
}

/* Adds 1 to a counter by compare-and-put. */
static int count(struct thread *t)
{
	struct chain_key key = key_of(t, "counter");
	struct heap_put put = { .len = 8 };
	struct heap_value got = { 0 };
	const struct heap_room room = { 0 };
	uint64_t n = 0, version;
	int ret = heap_get(&t->client.acc, &key, &room, &got);

	if (ret && ret != -ENOENT)
		return ret;
	if (ret == 0)
		memcpy(&n, got.ptr, sizeof(n));
	n++;
	put.value = &n;
	put.expected = ret ? 0 : got.version;
	ret = heap_put(&t->client.acc, &key, &put, &version);
	t->won += ret == 0;
	return ret == -ESTALE ? 0 : ret;
}

static int put_or_get(struct thread *t, struct rng *rng)
{
	uint64_t k = rng_uniform_u64(rng, KEYS), words[256], n = 1 + rng_uniform_u64(rng, 250),
		 version;
	char text[8];
	struct heap_value got;
	const struct heap_room room = { 0 };
	struct chain_key key;
	int ret;

	snprintf(text, sizeof(text), "k%u", (unsigned)k);
	key = key_of(t, text);
	if (rng_uniform_u64(rng, 2)) {
		struct heap_put put = { .value = words,
					.len = 8 * n,
					.expected = HEAP_ANY_VERSION };

		fill(words, n, k, rng_next_u64(rng) >> 8);
		ret = heap_put(&t->client.acc, &key, &put, &version);
	} else {
		ret = heap_get(&t->client.acc, &key, &room, &got);
		version = got.version;
		if (ret == 0 && !is_whole(&got, k))
			t->failed = "a value is torn";
	}
	if (ret == -ENOENT)
		return 0;
	if (ret == 0 && version < t->seen[k])
		t->failed = "a version went back";
	if (ret == 0)
		t->seen[k] = version;
	return ret;
}

/* Puts three keys in one call; equal ones in their order. */
static int put_some(struct thread *t, struct rng *rng)
{
	uint64_t words[3][256], keys[3], n;
	struct heap_put_ask asks[3];
	char texts[3][8];
	int ret;

	for (uint32_t i = 0; i < 3; i++) {
		keys[i] = rng_uniform_u64(rng, KEYS);
		n = 1 + rng_uniform_u64(rng, 250);
		snprintf(texts[i], sizeof(texts[i]), "k%u", (unsigned)keys[i]);
		fill(words[i], n, keys[i], rng_next_u64(rng) >> 8);
		asks[i] = (struct heap_put_ask){
			.key = key_of(t, texts[i]),
			.put = { .value = words[i], .len = 8 * n, .expected = HEAP_ANY_VERSION },
		};
	}
	ret = heap_put_many(&t->client.acc, asks, 3);
	for (uint32_t i = 0; i < 3; i++) {
		if (asks[i].state != HEAP_PUT_DONE || asks[i].status)
			continue;
		if (asks[i].version <= t->seen[keys[i]])
			t->failed = "a put has no newer version";
		t->seen[keys[i]] = asks[i].version;
	}
	return ret;
}

static void *work(void *arg)
{
	struct thread *t = arg;
	struct rng rng;
	int ret;

	rng_seed(&rng, 9, t->number);
	for (uint32_t i = 0; i < OPS && !t->failed; i++) {
		ret = i % 3 == 0 ? count(t) : i % 16 == 1 ? put_some(t, &rng) : put_or_get(t, &rng);
		t->waits += ret == -EAGAIN;
		if (ret && ret != -EAGAIN)
			t->failed = error_last();
	}
	return NULL;
}

static void run_threads(enum heap_mode mode)
{
	static struct thread threads[THREADS];
	struct heap_fixture fx;
	struct heap_check_report report;
	struct heap_value got;
	uint64_t won = 0, n = 0;

	memset(threads, 0, sizeof(threads));
	if (mode == HEAP_CLOVER)
		heap_fixture_open(&fx, 50, 120);
	else
		heap_fixture_open_mode(&fx, mode, 50, 4096);
	for (uint32_t i = 0; i < THREADS; i++) {
		threads[i].number = i;
		heap_fixture_join(&fx, i + 1, NULL, &threads[i].client);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i].id, NULL, work, &threads[i]), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i].id, NULL), 0);
		if (threads[i].failed)
			fail_msg("thread %u: %s", i, threads[i].failed);
		won += threads[i].won;
		print_message("thread %u: %d of %u calls had to wait\n", i, (int)threads[i].waits,
			      OPS);
	}
	if (heap_fixture_get(&threads[0].client, "counter", &got) <= 0)
		fail_msg("counter: %s", error_last());
	memcpy(&n, got.ptr, sizeof(n));
	assert_int_equal(n, won);
	assert_int_equal(got.version, won);
	heap_fixture_expect_sound(&fx, &report);
	assert_int_equal(report.keys, KEYS + 1);
	for (uint32_t i = 0; i < THREADS; i++)
		heap_fixture_leave(&threads[i].client);
	heap_fixture_close(&fx);
}

TEST(clover__threads_see_whole_values_and_rising_versions)
{
	run_threads(HEAP_CLOVER);
}

TEST(direct__threads_see_whole_values_and_rising_versions)
{
	run_threads(HEAP_DIRECT);
}

/* -------- ranges of large values -------- */

#define LARGE_WORDS 25000u /* 200 KB, in four chunks */
#define LARGE_PUTS 150u

static atomic_bool put_all;

static void *put_large(void *arg)
{
	static uint64_t words[LARGE_WORDS];
	struct thread *t = arg;
	uint64_t version;
	int ret = 0;

	for (uint64_t v = 1; v <= LARGE_PUTS && (ret == 0 || ret == -EAGAIN); v += ret == 0) {
		for (uint64_t i = 0; i < LARGE_WORDS; i++)
			words[i] = v << 32 | i;
		ret = heap_fixture_put(&t->client, "large", words, sizeof(words), &version);
	}
	if (ret)
		t->failed = error_last();
	atomic_store(&put_all, true);
	return NULL;
}

/* The bytes of a range are those of its version, and versions rise. */
static void *get_ranges(void *arg)
{
	static const struct heap_room room = { NULL, 0 };
	struct thread *t = arg;
	struct chain_key key = key_of(t, "large");
	struct heap_value got = { 0 };
	struct rng rng;

	rng_seed(&rng, 9, t->number);
	while (!t->failed && got.version < LARGE_PUTS) {
		uint64_t first = rng_uniform_u64(&rng, LARGE_WORDS), before = got.version;
		const struct heap_range range = { 8 * first,
						  8 + rng_uniform_u64(&rng, 150000) / 8 * 8 };
		bool last = atomic_load(&put_all);
		int ret = heap_get_range(&t->client.acc, &key, &range, &room, &got);

		if (ret == 0 && (got.version < before || (last && got.version < LARGE_PUTS)))
			t->failed = "a version went back";
		for (uint64_t i = 0; ret == 0 && i < got.len / 8; i++)
			if (((const uint64_t *)got.ptr)[i] != (got.version << 32 | (first + i)))
				t->failed = "a range has bytes of another version";
		if (ret && ret != -ENOENT)
			t->failed = error_last();
	}
	return NULL;
}

TEST(ranges__threads_see_bytes_of_one_version)
{
	static struct thread threads[3];
	struct heap_fixture fx;

	memset(threads, 0, sizeof(threads));
	heap_fixture_open(&fx, 50, 24);
	for (uint32_t i = 0; i < 3; i++) {
		threads[i].number = i;
		heap_fixture_join(&fx, i + 1, NULL, &threads[i].client);
		assert_int_equal(pthread_create(&threads[i].id, NULL, i ? get_ranges : put_large,
						&threads[i]),
				 0);
	}
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(threads[i].id, NULL), 0);
		if (threads[i].failed)
			fail_msg("thread %u: %s", i, threads[i].failed);
	}
	heap_fixture_expect_sound(&fx, NULL);
	for (uint32_t i = 0; i < 3; i++)
		heap_fixture_leave(&threads[i].client);
	heap_fixture_close(&fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}

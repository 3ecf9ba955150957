/* Threads that put and get values in stripes of the same keys: each get finds a value whole, and versions rise. */
#include "tests/support/must.h"

#include "relive/kv.h"

#include "base/rng.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define EXTENT 65536u
#define WRITERS 2u
#define READERS 2u
#define KEYS 2u
#define PUTS 150u
#define MOST (5u * EXTENT)

struct worker {
	struct rlv_store *store;
	_Atomic uint32_t *left; /* writers */
	uint32_t number;
	uint64_t calls;
	pthread_t thread;
};

static struct rlv_bytes key_of(uint32_t k)
{
	static const char *const texts[KEYS] = { "a", "b" };

	return (struct rlv_bytes){ texts[k], 1 };
}

static struct rlv_kv *open_kv(struct rlv_store *store)
{
	struct rlv_kv *kv = NULL;

	must(rlv_kv_open(store, "h", &kv), "rlv_kv_open");
	return kv;
}

static void *write_all(void *arg)
{
	struct worker *worker = arg;
	struct rlv_kv *kv = open_kv(worker->store);
	uint32_t *words = calloc(MOST / 4, 4);
	uint64_t versions[KEYS] = { 0 };
	struct rng rng;

	assert_non_null(words);
	rng_seed(&rng, 9, worker->number);
	for (uint32_t i = 0; i < PUTS; i++) {
		uint32_t k = (uint32_t)rng_uniform_u64(&rng, KEYS);
		size_t n = 1 + rng_uniform_u64(&rng, MOST / 4 - 1);
		uint64_t version;
		int ret;

		for (size_t w = 0; w < n; w++)
			words[w] = (uint32_t)n << 1 | (worker->number & 1);
		do
			ret = rlv_kv_put(kv, key_of(k), (struct rlv_bytes){ words, 4 * n },
					 &version);
		while (ret == -EAGAIN);
		must(ret, "rlv_kv_put");
		assert_true(version > versions[k]);
		versions[k] = version;
	}
	free(words);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	atomic_fetch_sub(worker->left, 1);
	return NULL;
}

static void *read_all(void *arg)
{
	struct worker *worker = arg;
	struct rlv_kv *kv = open_kv(worker->store);
	uint64_t versions[KEYS] = { 0 };
	uint32_t k = 0;

	while (atomic_load(worker->left)) {
		struct rlv_kv_value value = RLV_KV_VALUE_INIT;
		const uint32_t *words;
		int ret;

		k = (k + 1) % KEYS;
		ret = rlv_kv_get(kv, key_of(k), &value);
		if (ret == -ENOENT || ret == -EAGAIN)
			continue;
		must(ret, "rlv_kv_get");
		words = value.ptr;
		assert_true(value.version >= versions[k]);
		versions[k] = value.version;
		assert_int_equal(words[0] >> 1, value.len / 4);
		for (size_t w = 1; w < value.len / 4; w++)
			if (words[w] != words[0])
				fail_msg("a part of another value at %zu of %zu", 4 * w,
					 (size_t)value.len);
		worker->calls++;
	}
	must(rlv_kv_close(&kv), "rlv_kv_close");
	return NULL;
}

TEST(stripes__of_threads_that_put_and_get)
{
	const struct rlv_kv_opts opts = { .size = sizeof(opts),
					  .keys = 4000,
					  .bytes = 48 << 20,
					  .extent_bytes = EXTENT,
					  .parts = 3,
					  .max_clients = 8,
					  .stripe_bytes = EXTENT };
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;
	struct worker workers[WRITERS + READERS];
	_Atomic uint32_t left = WRITERS;
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = NULL;

	must(rlv_store_open("embed:", NULL, &store), "rlv_store_open");
	must(rlv_kv_create(store, "h", &opts, &kv), "rlv_kv_create");
	for (uint32_t i = 0; i < WRITERS + READERS; i++) {
		workers[i] = (struct worker){ .store = store, .left = &left, .number = i };
		assert_int_equal(pthread_create(&workers[i].thread, NULL,
						i < WRITERS ? write_all : read_all, &workers[i]),
				 0);
	}
	for (uint32_t i = 0; i < WRITERS + READERS; i++)
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
	must(rlv_kv_verify(kv, &report), "rlv_kv_verify");
	if (report.problems)
		fail_msg("%s", report.first_problem);
	assert_int_equal(report.keys, KEYS);
	must(rlv_kv_close(&kv), "rlv_kv_close");
	must(rlv_store_close(&store), "rlv_store_close");
}

int main(void)
{
	return test_run(NULL, NULL);
}

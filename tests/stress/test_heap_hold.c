/* Threads hold values in chunks of a small heap, and read them twice, while another replaces the values. */
#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/must_internal.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define HOLDERS 3u
#define HOLDS 300u /* of each, at least */
#define EXTENT 65536u
#define SHARE (EXTENT - 64u)
#define CHUNKS 2u

struct holder {
	pthread_t id;
	struct heap_client client;
	_Atomic bool *done;
	_Atomic uint64_t held;
	_Atomic(const char *) failed;
};

/* Number of the put whose bytes the chunk has; UINT64_MAX: those of several. */
static uint64_t chunk_number(const struct heap_client *client, uint64_t place)
{
	static _Thread_local uint64_t words[SHARE / 8];

	transport_copy_racy(words, client->heap->rows->base + place + sizeof(struct heap_entry),
			    sizeof(words));
	for (uint32_t i = 1; i < SHARE / 8; i++)
		if (words[i] != words[0])
			return UINT64_MAX;
	return words[0];
}

static bool is_whole(const struct heap_client *client, const struct heap_hold *held)
{
	for (uint32_t i = 0; i < CHUNKS; i++)
		if (chunk_number(client, heap_manifest_place(held->manifest, i)) != held->version)
			return false;
	return true;
}

static void *hold_on(void *arg)
{
	struct holder *h = arg;
	const struct chain_key key = chain_key("k", 1, h->client.heap->desc.seed);
	const struct heap_pin *line =
		(const void *)(h->client.heap->tree->base + heap_pin_off(h->client.owner));

	while (!h->failed && !atomic_load(h->done)) {
		struct heap_hold held;
		int ret = heap_hold(&h->client.acc, &key, &held);

		if (ret == -EAGAIN)
			continue;
		if (ret) {
			h->failed = error_last();
			break;
		}
		if (!is_whole(&h->client, &held) || !is_whole(&h->client, &held))
			h->failed = "what is held has changed";
		heap_hold_end(line, &held);
		mem_free((void *)held.manifest);
		h->held++;
	}
	return NULL;
}

/* Or one has failed. */
static bool all_have_held(struct holder *holders)
{
	bool all = true, failed = false;

	for (uint32_t i = 0; i < HOLDERS; i++) {
		all &= atomic_load(&holders[i].held) >= HOLDS;
		failed |= atomic_load(&holders[i].failed) != NULL;
	}
	return all || failed;
}

TEST(heap_hold__what_is_held_does_not_change)
{
	static uint64_t value[CHUNKS * SHARE / 8];
	struct holder holders[HOLDERS] = { 0 };
	_Atomic bool done = false;
	struct heap_client writer;
	struct heap_fixture fx;
	uint64_t version = 0, puts = 0;

	heap_fixture_open(&fx, 10, (2 + HOLDERS) * CHUNKS + 3);
	heap_fixture_join(&fx, 1, NULL, &writer);
	for (uint32_t i = 0; i < HOLDERS; i++) {
		holders[i].done = &done;
		heap_fixture_join(&fx, 2 + i, NULL, &holders[i].client);
	}
	while (!all_have_held(holders)) {
		int ret;

		/* The version that the put will have. */
		for (uint32_t i = 0; i < CHUNKS * SHARE / 8; i++)
			value[i] = puts + 1;
		ret = heap_fixture_put(&writer, "k", value, sizeof(value), &version);
		assert_true(ret == 0 || ret == -EAGAIN || ret == -ENOSPC);
		puts += ret == 0;
		if (ret == 0)
			assert_int_equal(version, puts);
		for (uint32_t i = 0; puts == 1 && ret == 0 && i < HOLDERS; i++)
			assert_int_equal(pthread_create(&holders[i].id, NULL, hold_on, &holders[i]),
					 0);
	}
	atomic_store(&done, true);
	for (uint32_t i = 0; i < HOLDERS; i++) {
		pthread_join(holders[i].id, NULL);
		if (holders[i].failed)
			fail_msg("holder %u: %s", i, holders[i].failed);
		heap_fixture_leave(&holders[i].client);
	}
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&writer);
	heap_fixture_close(&fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}

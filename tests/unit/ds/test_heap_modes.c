/* The modes direct and central of a heap: exact round trips over a wire, and what they keep. */
#include "ds/heap/central.h"
#include "ds/heap/direct.h"
#include "ds/heap/pair.h"

#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/fake/wire_transport.h"
#include "tests/support/must_internal.h"

#include "base/rng.h"

#include <errno.h>
#include <string.h>

#define COPY 2048u

static const uint8_t zeros[COPY];

static uint64_t put(struct heap_client *client, const char *key, uint64_t len)
{
	uint64_t version = 0;

	must(heap_fixture_put(client, key, zeros, len, &version));
	return version;
}

static int put_if(struct heap_client *client, const char *key, uint64_t expected)
{
	const struct heap_put put = { .value = zeros, .len = 8, .expected = expected };
	struct chain_key hashed = chain_key(key, (uint32_t)strlen(key), client->heap->desc.seed);
	uint64_t version;

	return heap_put(&client->acc, &hashed, &put, &version);
}

static int delete (struct heap_client *client, const char *key, uint64_t *version_out)
{
	const struct heap_put put = { .deletes = true, .expected = HEAP_ANY_VERSION };
	struct chain_key hashed = chain_key(key, (uint32_t)strlen(key), client->heap->desc.seed);

	return heap_put(&client->acc, &hashed, &put, version_out);
}

/* -------- both modes -------- */

static void keeps_versions(enum heap_mode mode)
{
	struct heap_check_report report;
	struct heap_fixture fx;
	struct heap_client a, b;
	struct heap_value got;
	uint64_t version = 0;

	heap_fixture_open_mode(&fx, mode, 100, COPY);
	heap_fixture_join(&fx, 1, NULL, &a);
	heap_fixture_join(&fx, 0, NULL, &b);
	assert_int_equal(heap_fixture_get(&b, "k", &got), -ENOENT);
	assert_int_equal(put(&a, "k", 1000), 1);
	assert_int_equal(put(&a, "k", 0), 2);
	assert_int_equal(put(&a, "other", COPY - 64 - 8), 1);
	assert_int_equal(heap_fixture_get(&b, "k", &got), 2);
	assert_int_equal(got.len, 0);
	assert_int_equal(put_if(&a, "k", 1), -ESTALE);
	assert_int_equal(put_if(&a, "k", 2), 0);
	assert_int_equal(put_if(&a, "new", 3), -ESTALE);
	assert_int_equal(heap_fixture_get(&b, "k", &got), 3);
	must(delete (&a, "k", &version));
	assert_int_equal(version, 4);
	assert_int_equal(delete (&a, "k", &version), -ENOENT);
	assert_int_equal(delete (&a, "none", &version), -ENOENT);
	assert_int_equal(heap_fixture_get(&b, "k", &got), -ENOENT);
	assert_int_equal(put_if(&a, "k", 0), 0);
	assert_int_equal(heap_fixture_get(&b, "k", &got), 5);
	assert_int_equal(heap_fixture_put(&b, "k", zeros, 1, &version), -EACCES);
	assert_int_equal(heap_fixture_put(&a, "k", zeros, COPY, &version), -ERANGE);
	heap_fixture_expect_sound(&fx, &report);
	assert_int_equal(report.keys, 2);
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	heap_fixture_close(&fx);
}

TEST(direct__keeps_versions)
{
	keeps_versions(HEAP_DIRECT);
}

TEST(central__keeps_versions)
{
	keeps_versions(HEAP_CENTRAL);
}

static void full_of_keys(enum heap_mode mode)
{
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_value got;
	uint64_t version;
	uint32_t n = 0, seen = 0, bucket = 0;
	struct heap_key found;
	char key[16] = "";
	int ret;

	heap_fixture_open_mode(&fx, mode, 40, 128);
	heap_fixture_join(&fx, 1, NULL, &a);
	do {
		(void)snprintf(key, sizeof(key), "key-%u", n);
		ret = heap_fixture_put(&a, key, key, 8, &version);
		n += ret == 0;
	} while (ret == 0);
	assert_int_equal(ret, -ENOSPC);
	assert_in_range(n, 41, fx.desc.buckets + HEAP_PROBES);
	assert_int_equal(heap_fixture_get(&a, key, &got), -ENOENT);
	assert_int_equal(heap_fixture_get(&a, "key-0", &got), 1);
	must(delete (&a, "key-0", &version));
	while ((ret = heap_next(&a.acc, &bucket, &found)) == 0)
		seen++;
	assert_int_equal(ret, -ENODATA);
	assert_int_equal(seen, n - 1);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

TEST(direct__full_of_keys)
{
	full_of_keys(HEAP_DIRECT);
}

TEST(central__full_of_keys)
{
	full_of_keys(HEAP_CENTRAL);
}

TEST(plan__bad_sizes_are_refused)
{
	struct heap_wish wish = { .name = "h",
				  .keys = 100,
				  .n_parts = 1,
				  .max_clients = 1,
				  .extent_bytes = 192,
				  .mode = HEAP_DIRECT };
	struct heap_desc desc;

	must(heap_plan(&wish, &desc));
	assert_int_equal(desc.extents, 0);
	wish.mode = HEAP_MODES;
	assert_int_equal(heap_plan(&wish, &desc), -EINVAL);
	wish.mode = HEAP_CENTRAL;
	wish.extent_bytes = 1 << 20;
	assert_int_equal(heap_plan(&wish, &desc), -EINVAL);
	wish.extent_bytes = 100;
	assert_int_equal(heap_plan(&wish, &desc), -EINVAL);
	wish.extent_bytes = 0;
	wish.bytes = 100 * 1000;
	must(heap_plan(&wish, &desc));
	assert_int_equal(desc.extent_bytes, 1024);
	wish.mode = HEAP_DIRECT;
	wish.keys = 1 << 28;
	wish.extent_bytes = 1 << 20;
	assert_int_equal(heap_plan(&wish, &desc), -EINVAL);
}

/* -------- direct -------- */

TEST(direct__get_costs_1_round_trip_put_4)
{
	struct heap_fixture fx;
	struct heap_client a, b;
	struct heap_value got;
	uint64_t before, version;

	heap_fixture_open_mode(&fx, HEAP_DIRECT, 100, COPY);
	heap_fixture_join(&fx, 1, wire_wrap, &a);
	heap_fixture_join(&fx, 2, wire_wrap, &b);
	put(&a, "k", 900);
	before = a.tr->stats.phases;
	put(&a, "k", 900);
	assert_int_equal(a.tr->stats.phases - before, 4);
	before = a.tr->stats.phases;
	assert_int_equal(put_if(&a, "k", 9), -ESTALE);
	assert_int_equal(a.tr->stats.phases - before, 2);
	before = a.tr->stats.phases;
	must(delete (&a, "k", &version));
	assert_int_equal(a.tr->stats.phases - before, 4);
	put(&a, "k", 900);
	before = a.tr->stats.phases;
	assert_int_equal(heap_fixture_get(&a, "k", &got), 4);
	assert_int_equal(a.tr->stats.phases - before, 1);
	assert_int_equal(heap_fixture_get(&b, "k", &got), 4);
	before = b.tr->stats.phases;
	assert_int_equal(heap_fixture_get(&b, "k", &got), 4);
	assert_int_equal(b.tr->stats.phases - before, 1);
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	heap_fixture_close(&fx);
}

static uint32_t bucket_of(struct heap_client *client, const char *key)
{
	uint64_t hash = chain_key(key, (uint32_t)strlen(key), client->heap->desc.seed).hash;

	return client->acc.cursors[hash % HEAP_CURSORS].bucket;
}

/* The lock is another owner's: puts and gets say so, until that owner is settled. */
TEST(direct__lock_of_another_owner)
{
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_value got;
	uint64_t version, lock_at, intent, old;
	uint8_t torn[64];

	heap_fixture_open_mode(&fx, HEAP_DIRECT, 100, COPY);
	heap_fixture_join(&fx, 1, NULL, &a);
	put(&a, "k", 500);
	lock_at = heap_head_off(fx.heap, bucket_of(&a, "k")) + offsetof(struct heap_head, lock);
	intent = bucket_of(&a, "k") + 1;
	must(transport_store(fx.heap->tree, heap_pin_off(2), &intent, sizeof(intent)));
	must(transport_cas_word(fx.heap->tree, lock_at, 0, 2, &old));
	assert_int_equal(heap_fixture_put(&a, "k", zeros, 8, &version), -EAGAIN);
	assert_int_equal(heap_fixture_get(&a, "k", &got), 1);
	/* It is in the middle of writing. */
	memset(torn, 0xee, sizeof(torn));
	must(transport_store(fx.heap->rows,
			     pair_off(fx.heap, (struct pair_at){ (uint32_t)intent - 1, 0 }) + 128,
			     torn, sizeof(torn)));
	assert_int_equal(heap_fixture_get(&a, "k", &got), -EAGAIN);
	must(heap_settle(fx.heap, 2));
	/* Its second copy is that of our put, whole. */
	assert_int_equal(heap_fixture_get(&a, "k", &got), 1);
	assert_int_equal(put(&a, "k", 8), 2);
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

TEST(direct__damage_is_an_error)
{
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_check_report report;
	struct heap_value got;
	uint64_t intent = UINT64_MAX;
	uint8_t torn[64];

	heap_fixture_open_mode(&fx, HEAP_DIRECT, 100, COPY);
	heap_fixture_join(&fx, 1, NULL, &a);
	put(&a, "k", 500);
	memset(torn, 0xee, sizeof(torn));
	must(transport_store(fx.heap->rows,
			     pair_off(fx.heap, (struct pair_at){ bucket_of(&a, "k"), 0 }) + 128,
			     torn, sizeof(torn)));
	assert_int_equal(heap_fixture_get(&a, "k", &got), -EBADMSG);
	must(heap_check(fx.heap, &report));
	assert_int_equal(report.problems, 1);
	assert_int_equal(put(&a, "k", 500), 2);
	/* A pin that no client writes. */
	must(transport_store(fx.heap->tree, heap_pin_off(3), &intent, sizeof(intent)));
	must(heap_settle(fx.heap, 3));
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

/* -------- central -------- */

TEST(central__one_call_each_and_no_round_trip)
{
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_value got;
	uint64_t before, calls;

	heap_fixture_open_mode(&fx, HEAP_CENTRAL, 100, COPY);
	heap_fixture_join(&fx, 1, wire_wrap, &a);
	before = a.tr->stats.phases;
	calls = a.acc.stats.calls;
	put(&a, "k", 900);
	put(&a, "k", 900);
	assert_int_equal(heap_fixture_get(&a, "k", &got), 2);
	assert_int_equal(a.acc.stats.calls - calls, 3);
	assert_int_equal(a.tr->stats.phases - before, 0);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

/* A new coordinator finds what the one before it had answered, and nothing of what is torn. */
TEST(central__map_is_rebuilt)
{
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_value got;
	uint8_t torn[64];
	uint64_t off;
	char key[16];

	heap_fixture_open_mode(&fx, HEAP_CENTRAL, 100, COPY);
	heap_fixture_join(&fx, 1, NULL, &a);
	for (uint32_t i = 0; i < 60; i++)
		for (uint32_t v = 0; v <= i % 3; v++) {
			(void)snprintf(key, sizeof(key), "key-%u", i);
			assert_int_equal(put(&a, key, 8 * i), v + 1);
		}
	central_free(fx.heap->central);
	fx.heap->central = NULL;
	for (uint32_t i = 0; i < 60; i++) {
		(void)snprintf(key, sizeof(key), "key-%u", i);
		assert_int_equal(heap_fixture_get(&a, key, &got), i % 3 + 1);
		assert_int_equal(got.len, 8 * i);
	}
	/* Killed in the write of version 4 of the last key. */
	for (uint32_t bucket = 0; bucket < fx.desc.buckets + HEAP_PROBES; bucket++) {
		struct heap_entry entry;

		off = pair_off(fx.heap, (struct pair_at){ bucket, 0 });
		must(transport_fetch(fx.heap->rows, off, &entry, sizeof(entry)));
		if (entry.version != 2 || entry.len != 8 * 59)
			continue;
		entry.version = 4;
		must(transport_store(fx.heap->rows, off, &entry, sizeof(entry)));
	}
	central_free(fx.heap->central);
	fx.heap->central = NULL;
	assert_int_equal(heap_fixture_get(&a, "key-59", &got), 3);
	assert_int_equal(put(&a, "key-59", 8), 4);
	/* Damage of a version that was answered is an error. */
	memset(torn, 0xee, sizeof(torn));
	for (uint32_t bucket = 0; bucket < fx.desc.buckets + HEAP_PROBES; bucket++)
		for (uint32_t which = 0; which < 2; which++) {
			off = pair_off(fx.heap, (struct pair_at){ bucket, which });
			must(transport_store(fx.heap->rows, off, torn, sizeof(torn)));
		}
	assert_int_equal(heap_fixture_get(&a, "key-59", &got), -EBADMSG);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

TEST(central__bad_requests_are_refused)
{
	struct central_call calls[] = {
		{ .op = 0 },
		{ .op = 99 },
		{ .op = CENTRAL_GET },
		{ .op = CENTRAL_GET, .key = { zeros, HEAP_KEY_MAX + 1, 0 } },
		{ .op = CENTRAL_PUT,
		  .key = { "k", 1, 0 },
		  .put = { .value = zeros, .len = UINT64_MAX, .expected = HEAP_ANY_VERSION } },
		{ .op = CENTRAL_PUT,
		  .key = { "k", 1, 0 },
		  .put = { .value = zeros, .len = COPY, .expected = HEAP_ANY_VERSION } },
		{ .op = CENTRAL_NEXT, .bucket = UINT32_MAX },
	};
	const int codes[] = { -EINVAL, -EINVAL, -EINVAL, -EINVAL, -ERANGE, -ERANGE, -ENODATA };
	struct heap_fixture fx;

	heap_fixture_open_mode(&fx, HEAP_CENTRAL, 100, COPY);
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
		assert_int_equal(central_serve(fx.heap, &calls[i]), codes[i]);
	heap_fixture_close(&fx);
	heap_fixture_open_mode(&fx, HEAP_DIRECT, 100, COPY);
	calls[2].key = (struct chain_key){ "k", 1, 0 };
	assert_int_equal(central_serve(fx.heap, &calls[2]), -EINVAL);
	heap_fixture_close(&fx);
}

/* -------- noise -------- */

/* Words of both regions become anything, copies that look right included. */
static void noise(enum heap_mode mode)
{
	uint64_t seed = test_seed("noise in copies", 5), version;
	struct heap_check_report report;
	struct heap_fixture fx;
	struct heap_client a, b;
	struct heap_value got;
	struct chain_key hashed;
	struct heap_key key;
	struct rng rng;
	uint32_t walk;
	char text[16];
	int ret;

	for (uint32_t round = 0; round < 40; round++) {
		rng_seed(&rng, seed, round);
		heap_fixture_open_mode(&fx, mode, 40, 256);
		heap_fixture_join(&fx, 1, NULL, &a);
		heap_fixture_join(&fx, 2, NULL, &b);
		for (uint32_t i = 0; i < 400; i++) {
			struct region *region = rng_uniform_u64(&rng, 3) ? fx.heap->rows
									 : fx.heap->tree;
			uint64_t from = region == fx.heap->rows ? HEAP_ROWS_OFF : HEAP_PINS_OFF,
				 word = rng_next_u64(&rng) >> rng_uniform_u64(&rng, 64);

			from += rng_uniform_u64(&rng, region->size - from) & ~UINT64_C(7);
			must(transport_store(region, from, &word, sizeof(word)));
			snprintf(text, sizeof(text), "key-%u", (uint32_t)rng_uniform_u64(&rng, 40));
			(void)heap_fixture_put(i % 2 ? &a : &b, text, zeros,
					       rng_uniform_u64(&rng, 180), &version);
			hashed = chain_key(text, (uint32_t)strlen(text), fx.desc.seed);
			ret = heap_get(i % 2 ? &b.acc : &a.acc, &hashed, &(struct heap_room){ 0 },
				       &got);
			assert_true(ret == 0 || ret == -ENOENT || ret == -EAGAIN ||
				    ret == -EBADMSG);
			walk = (uint32_t)rng_next_u64(&rng);
			ret = heap_next(&a.acc, &walk, &key);
			assert_true(ret == 0 || ret == -ENODATA || ret == -EAGAIN ||
				    ret == -EBADMSG);
			if (i % 50 == 0 && mode == HEAP_CENTRAL) {
				central_free(fx.heap->central);
				fx.heap->central = NULL;
			}
		}
		must(heap_check(fx.heap, &report));
		heap_fixture_leave(&a);
		heap_fixture_leave(&b);
		heap_fixture_close(&fx);
	}
}

TEST(direct__noise_never_crashes_or_hangs)
{
	noise(HEAP_DIRECT);
}

TEST(central__noise_never_crashes_or_hangs)
{
	noise(HEAP_CENTRAL);
}

int main(void)
{
	return test_run(NULL, NULL);
}

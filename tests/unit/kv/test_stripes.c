/* Values in stripes over the parts of a heap: round trips, what is refused, and what a replaced value leaves. */
#include "tests/support/must.h"

#include "relive/kv.h"

#include "base/rng.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENT 65536u
#define STRIPE (2u * EXTENT)
#define SHARE (2u * (EXTENT - 64u)) /* of a value, in a stripe */
#define PARTS 4u
#define MOST (24u * SHARE)

static uint8_t bytes[MOST], back[MOST];

static struct rlv_bytes text(const char *words)
{
	return (struct rlv_bytes){ words, strlen(words) };
}

/* The value of that number. */
static struct rlv_bytes value_of(uint64_t number, size_t len)
{
	uint64_t word = number * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (size_t i = 0; i < len; i++) {
		bytes[i] = (uint8_t)(word >> 56);
		word = word * 6364136223846793005u + 1442695040888963407u;
	}
	return (struct rlv_bytes){ bytes, len };
}

struct scene {
	struct rlv_store *store;
	struct rlv_kv *kv, *other;
};

static struct rlv_kv_opts opts_of(uint64_t heap_bytes)
{
	return (struct rlv_kv_opts){ .size = sizeof(struct rlv_kv_opts),
				     .keys = 4000,
				     .bytes = heap_bytes,
				     .extent_bytes = EXTENT,
				     .parts = PARTS,
				     .max_clients = 4,
				     .stripe_bytes = STRIPE };
}

static void scene_open(struct scene *s, uint64_t heap_bytes)
{
	const struct rlv_kv_opts opts = opts_of(heap_bytes);

	memset(s, 0, sizeof(*s));
	must(rlv_store_open("embed:", NULL, &s->store), "rlv_store_open");
	must(rlv_kv_create(s->store, "h", &opts, &s->kv), "rlv_kv_create");
	must(rlv_kv_open(s->store, "h", &s->other), "rlv_kv_open");
}

/* Nothing is damaged, and there is no stripe or intent that no value names. */
static struct rlv_kv_report verify(struct rlv_kv *kv)
{
	struct rlv_kv_report report = RLV_KV_REPORT_INIT;

	must(rlv_kv_verify(kv, &report), "rlv_kv_verify");
	if (report.problems)
		fail_msg("%s", report.first_problem);
	return report;
}

static void scene_close(struct scene *s)
{
	(void)verify(s->kv);
	must(rlv_kv_close(&s->other), "rlv_kv_close");
	must(rlv_kv_close(&s->kv), "rlv_kv_close");
	must(rlv_store_close(&s->store), "rlv_store_close");
}

static void expect_get(struct rlv_kv *kv, const char *key, uint64_t number, size_t len,
		       uint64_t version)
{
	struct rlv_kv_value mine = { .size = sizeof(mine), .ptr = back, .room = sizeof(back) };
	struct rlv_kv_value theirs = RLV_KV_VALUE_INIT;
	struct rlv_bytes want = value_of(number, len);

	must(rlv_kv_get(kv, text(key), &mine), "rlv_kv_get");
	assert_int_equal(mine.len, len);
	assert_int_equal(mine.version, version);
	assert_true(memcmp(back, want.ptr, len) == 0);
	must(rlv_kv_get(kv, text(key), &theirs), "rlv_kv_get");
	assert_int_equal(theirs.len, len);
	assert_int_equal(theirs.version, version);
	assert_true(memcmp(theirs.ptr, want.ptr, len) == 0);
}

static void put(struct rlv_kv *kv, const char *key, uint64_t number, size_t len, uint64_t version)
{
	uint64_t got = 0;

	must(rlv_kv_put(kv, text(key), value_of(number, len), &got), "rlv_kv_put");
	assert_int_equal(got, version);
}

TEST(stripes__come_back_at_all_lengths)
{
	static const size_t lens[] = {
		1,         97,        SHARE - 1,     SHARE,     SHARE + 1,
		SHARE + 5, 2 * SHARE, 5 * SHARE + 7, 0,         3 * SHARE,
		40,        MOST / 2,  EXTENT,        SHARE * 4, SHARE * 4 + 97
	};
	struct scene s;

	scene_open(&s, 32 << 20);
	for (uint64_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		put(i % 2 ? s.kv : s.other, "a", i, lens[i], i + 1);
		expect_get(s.kv, "a", i, lens[i], i + 1);
		expect_get(s.other, "a", i, lens[i], i + 1);
		assert_int_equal(verify(s.kv).keys, 1);
	}
	scene_close(&s);
}

TEST(stripes__make_room_for_a_value_that_is_larger_than_a_part)
{
	struct rlv_kv_opts opts = opts_of(80 * EXTENT);
	struct scene s;

	scene_open(&s, 80 * EXTENT); /* 20 in each part, one more, and the value has 48 */
	put(s.kv, "a", 1, MOST, 1);
	expect_get(s.other, "a", 1, MOST, 1);
	opts.stripe_bytes = 0;
	expect(rlv_kv_create(s.store, "h", &opts, &s.other), -EEXIST);
	scene_close(&s);
}

TEST(stripes__of_a_value_of_which_one_part_has_no_room_leave_nothing)
{
	struct scene s;

	scene_open(&s, 32 * EXTENT);
	put(s.kv, "a", 1, 3 * SHARE, 1);
	for (uint32_t i = 0; i < 3; i++) {
		expect(rlv_kv_put(s.kv, text("a"), value_of(2, MOST), NULL), -ENOSPC);
		expect_get(s.other, "a", 1, 3 * SHARE, 1);
		(void)verify(s.kv);
	}
	scene_close(&s);
}

TEST(stripes__of_keys_that_are_deleted_go)
{
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	struct scene s;
	uint64_t version;

	scene_open(&s, 32 << 20);
	for (uint64_t i = 0; i < 10; i++) {
		put(s.kv, "a", i, 3 * SHARE + i, 4 * i + 1);
		put(s.other, "a", i, 4 * SHARE + i, 4 * i + 2);
		must(rlv_kv_put_if(s.kv, text("a"), value_of(i + 7, 2 * SHARE), 4 * i + 2,
				   &version),
		     "rlv_kv_put_if");
		assert_int_equal(version, 4 * i + 3);
		expect(rlv_kv_put_if(s.kv, text("a"), value_of(i, 2 * SHARE), 4 * i + 2, &version),
		       -ESTALE);
		expect(rlv_kv_put_if(s.kv, text("a"), value_of(i, 2 * SHARE), 0, &version),
		       -ESTALE);
		expect_get(s.other, "a", i + 7, 2 * SHARE, 4 * i + 3);
		must(rlv_kv_delete(s.other, text("a"), &version), "rlv_kv_delete");
		assert_int_equal(version, 4 * i + 4);
		expect(rlv_kv_delete(s.other, text("a"), &version), -ENOENT);
		expect(rlv_kv_get(s.kv, text("a"), &value), -ENOENT);
		assert_int_equal(verify(s.kv).keys, 0);
	}
	scene_close(&s);
}

/* Numbers of hidden keys are used again: a heap of a few keys has room for any number of puts. */
TEST(stripes__use_their_hidden_keys_again)
{
	struct rlv_kv_info info = RLV_KV_INFO_INIT;
	struct scene s;
	uint64_t keys;
	char key[16];

	scene_open(&s, 32 << 20);
	for (uint64_t i = 0; i < 60; i++) {
		(void)snprintf(key, sizeof(key), "%d", (int)(i % 5));
		put(i % 3 ? s.kv : s.other, key, i, (2 + i % 7) * SHARE, i / 5 + 1);
	}
	must(rlv_kv_info(s.kv, &info), "rlv_kv_info");
	assert_int_equal(info.stripe_bytes, STRIPE);
	keys = info.keys;
	for (uint64_t i = 60; i < 400; i++) {
		(void)snprintf(key, sizeof(key), "%d", (int)(i % 5));
		put(i % 3 ? s.kv : s.other, key, i, (2 + i % 7) * SHARE, i / 5 + 1);
	}
	must(rlv_kv_info(s.kv, &info), "rlv_kv_info");
	assert_in_range(info.keys, keys, keys + keys / 2);
	scene_close(&s);
}

TEST(stripes__of_ranges)
{
	struct rlv_kv_value value = { .size = sizeof(value), .ptr = back, .room = sizeof(back) };
	struct rlv_kv_value theirs = RLV_KV_VALUE_INIT;
	const size_t len = 9 * SHARE + 17;
	struct scene s;
	struct rng rng;

	scene_open(&s, 32 << 20);
	put(s.kv, "a", 3, len, 1);
	rng_seed(&rng, 5, 0);
	for (uint32_t i = 0; i < 300; i++) {
		uint64_t at = rng_uniform_u64(&rng, len + 100),
			 n = rng_uniform_u64(&rng, 3 * SHARE);
		uint64_t want = at >= len ? 0 : n < len - at ? n : len - at;

		must(rlv_kv_get_range(i % 2 ? s.kv : s.other, text("a"), at, n, &value), "range");
		assert_int_equal(value.len, want);
		assert_true(memcmp(back, bytes + at, want) == 0);
		must(rlv_kv_get_range(s.kv, text("a"), at, n, &theirs), "range");
		assert_int_equal(theirs.len, want);
		assert_true(want == 0 || memcmp(theirs.ptr, bytes + at, want) == 0);
	}
	must(rlv_kv_get_range(s.kv, text("a"), SHARE - 1, UINT64_MAX, &value), "range");
	assert_int_equal(value.len, len - SHARE + 1);
	value.room = 10;
	expect(rlv_kv_get_range(s.kv, text("a"), 5, 11, &value), -ERANGE);
	assert_int_equal(value.len, 11);
	expect(rlv_kv_get(s.kv, text("a"), &value), -ERANGE);
	assert_int_equal(value.len, len);
	assert_int_equal(value.version, 1);
	scene_close(&s);
}

TEST(stripes__beside_small_values_in_calls_of_many)
{
	static uint8_t memory[3][3 * SHARE];
	struct rlv_kv_item items[6], puts[3];
	const char *const keys[] = { "a", "b", "c", "none", "a", "c" };
	const size_t lens[] = { 3 * SHARE, 5, 2 * SHARE + 1 };
	uint8_t small[10];
	struct scene s;
	uint64_t version;

	scene_open(&s, 32 << 20);
	for (uint32_t i = 0; i < 3; i++) {
		memcpy(memory[i], value_of(i, lens[i]).ptr, lens[i]);
		puts[i] = (struct rlv_kv_item)RLV_KV_ITEM_INIT;
		puts[i].key = text(keys[i]);
		puts[i].ptr = memory[i];
		puts[i].len = lens[i];
	}
	must(rlv_kv_put_many(s.kv, puts, 3), "rlv_kv_put_many");
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(puts[i].status, 0);
		assert_int_equal(puts[i].version, 1);
		memset(memory[i], 0, lens[i]);
	}
	for (uint32_t i = 0; i < 6; i++) {
		items[i] = (struct rlv_kv_item)RLV_KV_ITEM_INIT;
		items[i].key = text(keys[i]);
		items[i].ptr = i < 3 ? memory[i] : small;
		items[i].room = i < 3 ? sizeof(memory[i]) : i == 4 ? 0 : sizeof(small);
	}
	must(rlv_kv_get_many(s.other, items, 6), "rlv_kv_get_many");
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(items[i].status, i < 3 ? 0 : i == 3 ? -ENOENT : -ERANGE);
		if (i < 3)
			assert_true(memcmp(memory[i], value_of(i, lens[i]).ptr, lens[i]) == 0);
		if (i != 3)
			assert_int_equal(items[i].len, lens[i < 3 ? i : i == 4 ? 0 : 2]);
	}
	must(rlv_kv_watch(s.other, text("a"), 0, 0, &version), "rlv_kv_watch");
	assert_int_equal(version, 1);
	scene_close(&s);
}

TEST(stripes__are_no_keys_of_a_walk)
{
	struct rlv_kv_walk walk = RLV_KV_WALK_INIT;
	struct rlv_kv_value value = RLV_KV_VALUE_INIT;
	uint32_t found = 0;
	struct scene s;
	int ret;

	scene_open(&s, 32 << 20);
	put(s.kv, "a", 1, 7 * SHARE, 1);
	put(s.kv, "b", 2, 10, 1);
	while ((ret = rlv_kv_next(s.other, &walk)) == 0) {
		assert_int_equal(walk.key_len, 1);
		assert_int_equal(walk.value_len, *(const char *)walk.key == 'a' ? 7 * SHARE : 10);
		found++;
	}
	assert_int_equal(ret, -ENODATA);
	assert_int_equal(found, 2);
	assert_int_equal(verify(s.kv).keys, 2);
	expect(rlv_kv_put(s.kv, (struct rlv_bytes){ RLV_KV_STRIPE_KEYS, 8 }, text("x"), NULL),
	       -EINVAL);
	expect(rlv_kv_get(s.kv, (struct rlv_bytes){ RLV_KV_STRIPE_KEYS, 8 }, &value), -EINVAL);
	expect(rlv_kv_get(s.kv, (struct rlv_bytes){ RLV_KV_STRIPE_KEYS, 7 }, &value), -ENOENT);
	scene_close(&s);
}

/* Keys can be deleted from a full heap, whatever lies in it. */
TEST(stripes__of_a_full_heap_can_be_deleted)
{
	struct scene s;
	char key[16];
	int n = 0;

	scene_open(&s, 64 * EXTENT);
	for (;; n++) {
		(void)snprintf(key, sizeof(key), "%d", n);
		if (rlv_kv_put(s.kv, text(key), value_of(1, 2 * SHARE), NULL))
			break;
	}
	assert_true(n >= 3);
	for (int i = 0; i < n; i++) {
		(void)snprintf(key, sizeof(key), "%d", i);
		must(rlv_kv_delete(s.kv, text(key), NULL), key);
	}
	(void)verify(s.kv);
	put(s.kv, "a", 1, 3 * SHARE, 1);
	expect_get(s.kv, "a", 1, 3 * SHARE, 1);
	scene_close(&s);
}

TEST(stripes__are_refused_where_they_cannot_be)
{
	struct rlv_store *store = NULL;
	struct rlv_kv *kv = NULL;
	struct rlv_kv_opts opts = opts_of(4 << 20);

	must(rlv_store_open("embed:", NULL, &store), "rlv_store_open");
	opts.stripe_bytes = STRIPE + 1;
	expect(rlv_kv_create(store, "h", &opts, &kv), -EINVAL);
	opts.stripe_bytes = EXTENT / 2;
	expect(rlv_kv_create(store, "h", &opts, &kv), -EINVAL);
	opts.stripe_bytes = UINT64_C(1) << 37;
	expect(rlv_kv_create(store, "h", &opts, &kv), -EINVAL);
	opts.stripe_bytes = STRIPE;
	opts.copies = 2;
	expect(rlv_kv_create(store, "h", &opts, &kv), -EINVAL);
	assert_non_null(strstr(rlv_last_error(), "one writer"));
	opts.copies = 1;
	opts.mode = RLV_KV_DIRECT;
	expect(rlv_kv_create(store, "h", &opts, &kv), -EINVAL);
	must(rlv_store_close(&store), "rlv_store_close");
}

int main(void)
{
	return test_run(NULL, NULL);
}

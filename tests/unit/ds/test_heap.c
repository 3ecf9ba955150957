#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/fake/fault.h"
#include "tests/support/fake/wire_transport.h"
#include "tests/support/must_internal.h"

#include "base/mem/alloc.h"
#include "base/rng.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int heap_delete(struct heap_client *client, const char *text, uint64_t *version_out)
{
	struct chain_key key = chain_key(text, (uint32_t)strlen(text), client->heap->desc.seed);
	struct heap_put put = { .deletes = true, .expected = HEAP_ANY_VERSION };

	return heap_put(&client->acc, &key, &put, version_out);
}

static int heap_put_if(struct heap_client *client, const char *text, uint64_t expected,
		       uint64_t *version_out)
{
	struct chain_key key = chain_key(text, (uint32_t)strlen(text), client->heap->desc.seed);
	struct heap_put put = { .value = "x", .len = 1, .expected = expected };

	return heap_put(&client->acc, &key, &put, version_out);
}

/* A value that says its own length and number. */
static void fill(uint8_t *value, uint64_t len, uint64_t number)
{
	for (uint64_t i = 0; i < len; i++)
		value[i] = (uint8_t)(number * 131 + i * 7 + (i >> 8));
}

static void expect_read(struct heap_client *client, const char *key, uint64_t len, uint64_t number,
			uint64_t version)
{
	uint8_t *want = mem_alloc(len + 1);
	struct heap_value got;

	assert_non_null(want);
	fill(want, len, number);
	assert_int_equal(heap_fixture_get(client, key, &got), version);
	assert_int_equal(got.len, len);
	assert_memory_equal(got.ptr, want, len);
	mem_free(want);
}

/* -------- one client -------- */

TEST(heap_class_of__is_the_smallest_that_fits)
{
	for (uint32_t cls = 1; cls < 64; cls++) {
		uint64_t bytes = heap_class_bytes(cls);

		assert_int_equal(bytes % 64, 0);
		assert_true(heap_class_bytes(cls + 1) > bytes);
		assert_int_equal(heap_class_of(bytes), cls);
		assert_int_equal(heap_class_of(bytes + 1), cls + 1);
	}
	assert_int_equal(heap_class_of(1), 1);
}

TEST(put_and_get__of_all_sizes)
{
	static const uint64_t sizes[] = { 0, 1, 8, 95, 96, 97, 1000, 4096, 40000, 65536 - 64 - 1 };
	uint8_t *value = mem_alloc(65536);
	struct heap_fixture fx;
	struct heap_client a, b;
	struct heap_value got;
	uint64_t version;

	heap_fixture_open(&fx, 100, 30);
	heap_fixture_join(&fx, 1, NULL, &a);
	heap_fixture_join(&fx, 0, NULL, &b);
	assert_int_equal(heap_fixture_get(&b, "k", &got), -ENOENT);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		fill(value, sizes[i], i);
		must(heap_fixture_put(&a, "k", value, sizes[i], &version));
		assert_int_equal(version, i + 1);
		for (int again = 0; again < 2; again++) {
			expect_read(&a, "k", sizes[i], i, version);
			expect_read(&b, "k", sizes[i], i, version);
		}
	}
	assert_int_equal(heap_fixture_put(&b, "k", value, 8, &version), -EACCES);
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	heap_fixture_close(&fx);
	mem_free(value);
}

TEST(versions__are_compared_and_deleted)
{
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_value got;
	struct heap_check_report report;
	uint64_t version = 77;

	heap_fixture_open(&fx, 100, 4);
	heap_fixture_join(&fx, 1, NULL, &a);
	assert_int_equal(heap_delete(&a, "k", &version), -ENOENT);
	assert_int_equal(heap_put_if(&a, "k", 1, &version), -ESTALE);
	assert_int_equal(version, 77);
	must(heap_put_if(&a, "k", 0, &version));
	assert_int_equal(version, 1);
	assert_int_equal(heap_put_if(&a, "k", 0, &version), -ESTALE);
	must(heap_put_if(&a, "k", 1, &version));
	must(heap_delete(&a, "k", &version));
	assert_int_equal(version, 3);
	assert_int_equal(heap_delete(&a, "k", &version), -ENOENT);
	assert_int_equal(heap_fixture_get(&a, "k", &got), -ENOENT);
	assert_true(got.deleted);
	assert_int_equal(got.version, 3);
	assert_int_equal(heap_put_if(&a, "k", 3, &version), -ESTALE);
	must(heap_put_if(&a, "k", 0, &version));
	assert_int_equal(version, 4);
	heap_fixture_expect_sound(&fx, &report);
	assert_int_equal(report.keys, 1);
	assert_int_equal(report.deleted, 0);
	assert_int_equal(report.stale_cells, 0);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

TEST(too_many_keys__are_refused_and_the_others_stay)
{
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_value got;
	char key[24];
	uint64_t version;
	uint32_t n = 0;
	int ret = 0;

	heap_fixture_open(&fx, 100, 10);
	heap_fixture_join(&fx, 1, NULL, &a);
	for (; ret == 0; n++) {
		snprintf(key, sizeof(key), "key-%u", n);
		ret = heap_fixture_put(&a, key, &n, sizeof(n), &version);
	}
	assert_int_equal(ret, -ENOSPC);
	assert_non_null(strstr(error_last(), "bucket"));
	assert_true(n > 150);
	for (uint32_t i = 0; i + 1 < n; i++) {
		snprintf(key, sizeof(key), "key-%u", i);
		assert_int_equal(heap_fixture_get(&a, key, &got), 1);
		assert_memory_equal(got.ptr, &i, sizeof(i));
	}
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

TEST(walk__finds_each_key_once)
{
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_key found;
	bool seen[60] = { false };
	uint32_t bucket = 0, number, n = 0;
	uint64_t version;
	char key[64] = "";
	int ret;

	heap_fixture_open(&fx, 100, 10);
	heap_fixture_join(&fx, 1, NULL, &a);
	for (uint32_t i = 0; i < 60; i++) {
		snprintf(key, sizeof(key), "key-%02u", i);
		must(heap_fixture_put(&a, key, key, i, &version));
	}
	must(heap_delete(&a, "key-07", &version));
	while ((ret = heap_next(&a.acc, &bucket, &found)) == 0) {
		assert_int_equal(found.len, 6);
		snprintf(key, sizeof(key), "%.*s", (int)found.len, (const char *)found.ptr);
		number = (uint32_t)atoi(key + 4);
		assert_true(number < 60 && !seen[number]);
		assert_int_equal(found.value_len, number);
		seen[number] = true;
		n++;
	}
	assert_int_equal(ret, -ENODATA);
	assert_int_equal(n, 59);
	assert_false(seen[7]);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

/* -------- space -------- */

TEST(full_heap__is_refused_readable_and_can_be_emptied)
{
	struct heap_fixture fx;
	struct heap_client a, b;
	uint8_t value[3000];
	char key[24];
	uint64_t version, again;
	uint32_t n = 0;
	int ret = 0;

	heap_fixture_open(&fx, 1000, 4);
	heap_fixture_join(&fx, 1, NULL, &a);
	for (; ret == 0; n += ret == 0) {
		snprintf(key, sizeof(key), "key-%u", n);
		fill(value, sizeof(value), n);
		ret = heap_fixture_put(&a, key, value, sizeof(value), &version);
	}
	assert_int_equal(ret, -ENOSPC);
	assert_non_null(strstr(error_last(), "full"));
	assert_int_equal(n, 4 * (65536 / 3072 / 1));
	for (uint32_t i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "key-%u", i);
		expect_read(&a, key, sizeof(value), i, 1);
	}
	for (uint32_t i = 0; i < n; i += 2) {
		snprintf(key, sizeof(key), "key-%u", i);
		must(heap_delete(&a, key, &version));
	}
	must(heap_fixture_put(&a, "key-1", value, sizeof(value), &again));
	assert_int_equal(again, 2);
	heap_fixture_leave(&a);
	/* Another client takes the orphans over. */
	heap_fixture_join(&fx, 2, NULL, &b);
	for (uint32_t i = 0; i + 2 < n; i += 2) {
		snprintf(key, sizeof(key), "key-%u", i);
		fill(value, sizeof(value), i);
		must(heap_fixture_put(&b, key, value, sizeof(value), &version));
		expect_read(&b, key, sizeof(value), i, 3);
	}
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&b);
	heap_fixture_close(&fx);
}

/* Space is bounded by what lives, however much is put, and ends where it began. */
TEST(replaced_versions__give_their_space_back)
{
	struct heap_fixture fx;
	struct heap_client a, b;
	struct heap_check_report report;
	uint8_t value[900] = { 0 };
	uint64_t version;
	char key[24];

	heap_fixture_open(&fx, 100, 4);
	heap_fixture_join(&fx, 1, NULL, &a);
	heap_fixture_join(&fx, 2, NULL, &b);
	for (uint32_t i = 0; i < 20000; i++) {
		snprintf(key, sizeof(key), "key-%u", i % 40);
		must(heap_fixture_put(i % 3 ? &a : &b, key, value, sizeof(value), &version));
		assert_int_equal(version, i / 40 + 1);
	}
	heap_fixture_expect_sound(&fx, &report);
	assert_int_equal(report.keys, 40);
	assert_int_equal(report.live_bytes, 40 * 1024);
	for (uint32_t i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "key-%u", i);
		must(heap_delete(&a, key, &version));
	}
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	/* Whoever comes next finds room for all of it, beside the small entries of deleted keys. */
	heap_fixture_join(&fx, 3, NULL, &a);
	for (uint32_t i = 0; i < 3 * (65536 / 1024); i++) {
		snprintf(key, sizeof(key), "new-%u", i % 60);
		must(heap_fixture_put(&a, key, value, sizeof(value), &version));
	}
	heap_fixture_expect_sound(&fx, &report);
	assert_int_equal(report.deleted, 40);
	assert_int_equal(report.keys, 60);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

TEST(a_pinned_client__holds_back_what_it_may_read)
{
	struct heap_fixture fx;
	struct heap_client a, b;
	uint8_t value[900] = { 0 };
	uint64_t version;
	int ret = 0;

	heap_fixture_open(&fx, 100, 1);
	heap_fixture_join(&fx, 1, NULL, &a);
	heap_fixture_join(&fx, 2, NULL, &b);
	must(heap_fixture_put(&a, "k", value, sizeof(value), &version));
	/* Stopped inside a call. */
	version = 1;
	must(transport_store(b.heap->tree, heap_pin_off(2), &version, sizeof(version)));
	for (uint32_t i = 0; ret == 0 && i < 1000; i++)
		ret = heap_fixture_put(&a, "k", value, sizeof(value), &version);
	assert_int_equal(ret, -EAGAIN);
	assert_int_equal(version, 64);
	/* It is fenced, and its pin with it. */
	heap_fixture_kill(&b);
	must(heap_fixture_put(&a, "k", value, sizeof(value), &version));
	assert_int_equal(version, 65);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

/* -------- what lies in the regions is input -------- */

/* A cell is a hint: any byte of it may be wrong, and the entry is read instead. */
TEST(damaged_cell__is_not_read)
{
	struct heap_fixture fx;
	struct heap_client a;
	uint64_t version, off = 0, word, bad;

	heap_fixture_open(&fx, 100, 2);
	heap_fixture_join(&fx, 1, NULL, &a);
	must(heap_fixture_put(&a, "k", "zero", 4, &version));
	for (uint32_t i = 0; i < fx.desc.buckets + HEAP_PROBES; i++) {
		must(transport_load(fx.heap->tree, heap_head_off(fx.heap, i), &word));
		off = word ? heap_head_off(fx.heap, i) + HEAP_CELL_OFF : off;
	}
	for (uint32_t at = 0; at < 24; at += 8) {
		must(transport_load(fx.heap->tree, off + at, &word));
		for (uint32_t bit = 0; bit < 64; bit++) {
			uint8_t want[4] = "zero";
			struct heap_value got;

			bad = word ^ UINT64_C(1) << bit;
			must(transport_store(fx.heap->tree, off + at, &bad, sizeof(bad)));
			assert_int_equal(heap_fixture_get(&a, "k", &got), 1);
			assert_int_equal(got.len, 4);
			assert_memory_equal(got.ptr, want, 4);
		}
		must(transport_store(fx.heap->tree, off + at, &word, sizeof(word)));
	}
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

TEST(damaged_entry__is_an_error)
{
	struct heap_fixture fx;
	struct heap_client a, reader;
	struct heap_value got;
	uint8_t value[500] = { 1 };
	uint64_t version, word, off;

	heap_fixture_open(&fx, 100, 2);
	heap_fixture_join(&fx, 1, NULL, &a);
	heap_fixture_join(&fx, 0, NULL, &reader);
	must(heap_fixture_put(&a, "k", value, sizeof(value), &version));
	off = a.acc.guesses[chain_key("k", 1, fx.desc.seed).hash % HEAP_CURSORS];
	off = head_off(off) + 128;
	must(transport_load(fx.heap->rows, off, &word));
	word ^= 1;
	must(transport_store(fx.heap->rows, off, &word, sizeof(word)));
	assert_int_equal(heap_fixture_get(&a, "k", &got), -EBADMSG);
	assert_int_equal(heap_fixture_get(&reader, "k", &got), -EAGAIN);
	/* It can be replaced. */
	must(heap_fixture_put(&a, "k", value, sizeof(value), &version));
	assert_int_equal(version, 2);
	assert_int_equal(heap_fixture_get(&reader, "k", &got), 2);
	heap_fixture_leave(&a);
	heap_fixture_leave(&reader);
	heap_fixture_close(&fx);
}

/* Whatever a guess says of the distance, the key is found, and no second bucket is taken for it. */
TEST(wrong_guess__costs_no_more_than_time)
{
	struct heap_fixture fx;
	struct heap_client a;
	struct chain_key key;
	struct heap_value got;
	uint8_t value[500] = { 1 };
	uint64_t version, keys, *guess;

	heap_fixture_open(&fx, 100, 2);
	heap_fixture_join(&fx, 1, NULL, &a);
	must(heap_fixture_put(&a, "k", value, sizeof(value), &version));
	key = chain_key("k", 1, fx.desc.seed);
	guess = &a.acc.guesses[key.hash % HEAP_CURSORS];
	for (uint64_t distance = 0; distance < HEAP_PROBES; distance++) {
		uint64_t version_bits = distance * 2 * HEAP_PREFETCH_LINES + HEAP_PREFETCH_LINES;

		*guess = head_make(version_bits, head_off(*guess), chain_head_tag(&key));
		assert_int_equal(heap_fixture_get(&a, "k", &got), 2 * distance + 1);
		*guess = head_make(version_bits, 0, chain_head_tag(&key));
		assert_int_equal(heap_fixture_get(&a, "k", &got), 2 * distance + 1);
		for (uint64_t i = 0; i < 2; i++) {
			*guess = head_make(version_bits, head_off(*guess), chain_head_tag(&key));
			must(heap_fixture_put(&a, "k", value, sizeof(value), &version));
			assert_int_equal(version, 2 * distance + 2 + i);
		}
	}
	must(heap_keys(fx.heap, &keys));
	assert_int_equal(keys, 1);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

/* Extent words that no client can have written: they are left alone. */
TEST(damaged_extent_words__are_not_taken)
{
	struct heap_fixture fx;
	struct heap_client a;
	uint64_t version, word;
	uint32_t n = 0;
	char key[24];
	int ret = 0;

	heap_fixture_open(&fx, 1000, 4);
	heap_fixture_join(&fx, 1, NULL, &a);
	for (uint32_t i = 0; i < 2; i++) {
		word = extent_make(0, i ? 200 : 60,
				   7); /* of no class, and of one with slots of 5 MiB */
		must(transport_store(fx.heap->tree, heap_extent_off(fx.heap, i), &word,
				     sizeof(word)));
	}
	for (; ret == 0; n += ret == 0) {
		snprintf(key, sizeof(key), "key-%u", n);
		ret = heap_fixture_put(&a, key, fx.desc.name, sizeof(fx.desc.name), &version);
	}
	assert_int_equal(ret, -ENOSPC);
	assert_int_equal(n, 2 * (65536 / 192)); /* the third is kept for deletes */
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

/* Random words anywhere behind the descriptor: calls end, and touch nothing outside. */
TEST(noise__never_crashes_or_hangs)
{
	struct rng rng;
	struct heap_fixture fx;
	struct heap_client a, b;
	struct heap_check_report report;
	uint64_t seed = test_seed("heap noise", 5), version;
	uint8_t value[2000] = { 0 };
	struct heap_value got;
	struct heap_key key;
	char text[16];
	uint32_t walk;
	int ret;

	for (uint32_t round = 0; round < 60; round++) {
		uint64_t tree;

		rng_seed(&rng, seed, round);
		heap_fixture_open(&fx, 40, 3);
		heap_fixture_join(&fx, 1, NULL, &a);
		heap_fixture_join(&fx, 2, NULL, &b);
		for (uint32_t i = 0; i < 400; i++) {
			uint64_t from = HEAP_WORDS_OFF, noise = rng_next_u64(&rng), off, bucket;
			struct region *region = rng_uniform_u64(&rng, 4) ? fx.heap->tree
									 : fx.heap->rows;

			tree = fx.heap->tree->size - from;
			off = from + (rng_uniform_u64(&rng, tree) & ~UINT64_C(7));
			if (region == fx.heap->rows)
				off = HEAP_ROWS_OFF + (rng_uniform_u64(&rng, 65536) & ~UINT64_C(7));
			if (rng_uniform_u64(&rng, 3) == 0) { /* a head that looks right */
				bucket = rng_uniform_u64(&rng, fx.desc.buckets + HEAP_PROBES);
				region = fx.heap->tree;
				off = heap_head_off(fx.heap, (uint32_t)bucket);
				noise = head_make(1,
						  rng_uniform_u64(&rng, 5 * 65536) & ~UINT64_C(63),
						  (uint32_t)noise);
			}
			must(transport_store(region, off, &noise, sizeof(noise)));
			snprintf(text, sizeof(text), "key-%u", (uint32_t)rng_uniform_u64(&rng, 40));
			(void)heap_fixture_put(i % 2 ? &a : &b, text, value,
					       rng_uniform_u64(&rng, sizeof(value)), &version);
			(void)heap_fixture_get(i % 2 ? &b : &a, text, &got);
			walk = (uint32_t)rng_uniform_u64(&rng, fx.desc.buckets);
			ret = heap_next(&a.acc, &walk, &key);
			assert_true(ret == 0 || ret == -ENODATA || ret == -EAGAIN ||
				    ret == -EBADMSG);
		}
		must(heap_check(fx.heap, &report));
		assert_true(report.problems > 0);
		heap_fixture_leave(&a);
		heap_fixture_leave(&b);
		heap_fixture_close(&fx);
	}
}

/* What heap_look says, and from what; in place and over a wire. */
static void looks(struct transport *(*wrap)(struct transport *inner), uint32_t owner)
{
	static uint8_t value[70000];
	static const uint64_t lens[] = { 0, 96, 97, 3000, 5000, 65000, sizeof(value) };
	const struct chain_key key = chain_key("k", 1, 0);
	struct heap_put striped = { .value = value,
				    .expected = HEAP_ANY_VERSION,
				    .striped = 12345 };
	struct heap_fixture fx;
	struct heap_client writer, reader;
	struct chain_key of;
	struct heap_value got;
	uint64_t version = 0;

	heap_fixture_open(&fx, 100, 12);
	heap_fixture_join(&fx, 1, NULL, &writer);
	heap_fixture_join(&fx, owner, wrap, &reader);
	of = chain_key(key.ptr, 1, fx.desc.seed);
	memset(value, 7, sizeof(value));
	assert_int_equal(heap_look(&reader.acc, &of, &got), -ENOENT);
	assert_int_equal(got.version, 0);
	for (uint64_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		must(heap_fixture_put(&writer, "k", value, lens[i], &version));
		for (uint32_t again = 0; again < 2; again++) {
			must(heap_look(&reader.acc, &of, &got));
			assert_int_equal(got.version, version);
			assert_false(got.striped);
		}
	}
	for (striped.len = 128; striped.len < 40000; striped.len *= 3) {
		must(heap_put(&writer.acc, &of, &striped, &version));
		for (uint32_t again = 0; again < 2; again++) {
			must(heap_look(&reader.acc, &of, &got));
			assert_int_equal(got.version, version);
			assert_true(got.striped);
			assert_int_equal(got.len, striped.len);
			assert_memory_equal(got.ptr, value, got.len);
		}
	}
	must(heap_delete(&writer, "k", &version));
	assert_int_equal(heap_look(&reader.acc, &of, &got), -ENOENT);
	assert_int_equal(got.version, version);
	assert_false(got.striped);
	heap_fixture_leave(&reader);
	heap_fixture_leave(&writer);
	heap_fixture_close(&fx);
}

TEST(heap_look__in_place)
{
	looks(NULL, 2);
	looks(NULL, 0);
}

TEST(heap_look__over_a_wire)
{
	looks(wire_wrap, 2);
	looks(wire_wrap, 0);
}

int main(void)
{
	return test_run(NULL, NULL);
}

/* Values that are longer than an extent (64 KiB here): in chunks, which a manifest names. */
#include "tests/support/fixture/heap_fixture.h"
#include "tests/support/fake/wire_transport.h"
#include "tests/support/must_internal.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <string.h>

#define EXTENT 65536u
#define SHARE (EXTENT - 64u)
#define ENTRY_MOST (EXTENT - 64u - 1u) /* of a key of one byte */
#define BUFFER (12u * EXTENT)

static uint8_t value[BUFFER], want[BUFFER], memory[BUFFER + 64];

static void fill(uint8_t *bytes, uint64_t len, uint64_t number)
{
	uint64_t word = number * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (uint64_t i = 0; i < len; i++) {
		bytes[i] = (uint8_t)(word >> 56);
		word = word * 6364136223846793005u + 1442695040888963407u;
	}
}

static int put(struct heap_client *client, const char *key, uint64_t len, uint64_t number,
	       uint64_t *version_out)
{
	fill(value, len, number);
	return heap_fixture_put(client, key, value, len, version_out);
}

/* Reads into memory of the access, and into memory of the caller that is not aligned. */
static void expect_large(struct heap_client *client, const char *text, uint64_t len,
			 uint64_t number, uint64_t version)
{
	const struct chain_key key =
		chain_key(text, (uint32_t)strlen(text), client->heap->desc.seed);
	struct heap_room room = { memory + 3, len };
	struct heap_value got;

	fill(want, len, number);
	assert_int_equal(heap_fixture_get(client, text, &got), version);
	assert_int_equal(got.len, len);
	assert_memory_equal(got.ptr, want, len);
	memset(memory, 0xa5, sizeof(memory));
	must(heap_get(&client->acc, &key, &room, &got));
	assert_int_equal(got.len, len);
	assert_memory_equal(got.ptr, want, len);
	if (got.ptr == room.ptr)
		assert_int_equal(memory[3 + len], 0xa5);
}

static int delete_key(struct heap_client *client, const char *text)
{
	const struct chain_key key =
		chain_key(text, (uint32_t)strlen(text), client->heap->desc.seed);
	const struct heap_put put = { .deletes = true, .expected = HEAP_ANY_VERSION };
	uint64_t version;

	return heap_put(&client->acc, &key, &put, &version);
}

static void all_sizes(struct transport *(*wrap)(struct transport *inner))
{
	static const uint64_t sizes[] = { ENTRY_MOST, ENTRY_MOST + 1, SHARE,        SHARE + 1,
					  5,          2 * SHARE - 1,  2 * SHARE,    2 * SHARE + 1,
					  0,          BUFFER - 64,    9 * SHARE + 8 };
	struct heap_fixture fx;
	struct heap_client a, b, reader;
	struct heap_value got;
	uint64_t version;

	heap_fixture_open(&fx, 100, 40);
	heap_fixture_join(&fx, 1, wrap, &a);
	heap_fixture_join(&fx, 2, wrap, &b);
	heap_fixture_join(&fx, 0, wrap, &reader);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		/* The fake wire ends the pin of a get with the client's next call. */
		while (put(i % 2 ? &a : &b, "k", sizes[i], i, &version) == -EAGAIN) {
			assert_in_range(heap_fixture_get(&a, "k", &got), 1, i);
			assert_int_equal(heap_fixture_get(&b, "none", &got), -ENOENT);
			assert_int_equal(heap_fixture_get(&a, "none", &got), -ENOENT);
		}
		assert_int_equal(version, i + 1);
		expect_large(&a, "k", sizes[i], i, version);
		expect_large(&b, "k", sizes[i], i, version);
		expect_large(&reader, "k", sizes[i], i, version);
		heap_fixture_expect_sound(&fx, NULL);
	}
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	heap_fixture_leave(&reader);
	heap_fixture_close(&fx);
}

TEST(large_values__of_all_sizes_in_place)
{
	all_sizes(NULL);
}

TEST(large_values__of_all_sizes_over_a_wire)
{
	all_sizes(wire_wrap);
}

/* A value in runs of 1, 3, 9, .. bytes. */
static void in_runs(struct transport *(*wrap)(struct transport *inner))
{
	struct heap_fixture fx;
	struct heap_client client;
	struct chain_key key;
	struct heap_run runs[12];
	uint64_t at = 0, version;

	heap_fixture_open(&fx, 100, 40);
	heap_fixture_join(&fx, 1, wrap, &client);
	fill(value, BUFFER - 64, 7);
	for (uint64_t i = 0, n = 1; i < 12; at += n, n *= 3, i++) {
		if (i == 11)
			n = BUFFER - 64 - at;
		runs[i] = (struct heap_run){ value + at, n };
	}
	key = chain_key("k", 1, client.heap->desc.seed);
	must(heap_put(&client.acc, &key,
		      &(struct heap_put){
			      .runs = runs, .n_runs = 12, .len = at, .expected = HEAP_ANY_VERSION },
		      &version));
	expect_large(&client, "k", BUFFER - 64, 7, 1);
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&client);
	heap_fixture_close(&fx);
}

TEST(large_values__of_several_runs_in_place)
{
	in_runs(NULL);
}

TEST(large_values__of_several_runs_over_a_wire)
{
	in_runs(wire_wrap);
}

/* Chunks | head | headers | CAS; and head and entry | the same behind the pin | chunks. */
TEST(large_values__put_costs_4_round_trips_get_3)
{
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_value got;
	uint64_t version, before;

	heap_fixture_open(&fx, 100, 40);
	heap_fixture_join(&fx, 1, wire_wrap, &a);
	for (uint64_t i = 0; i < 2; i++)
		must(put(&a, i ? "k" : "first", 2 * SHARE, i, &version));
	before = a.tr->stats.phases;
	must(put(&a, "k", 2 * SHARE, 3, &version));
	assert_int_equal(a.tr->stats.phases - before, 4);
	before = a.tr->stats.phases;
	assert_int_equal(heap_fixture_get(&a, "k", &got), 2);
	assert_int_equal(a.tr->stats.phases - before, 3);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

/* Into memory of the access, then into memory of the caller that is not aligned and has no byte too much. */
static void expect_range(struct heap_client *client, uint64_t len, const struct heap_range *range,
			 uint64_t version)
{
	const struct chain_key key = chain_key("k", 1, client->heap->desc.seed);
	uint64_t n = range->offset < len ? len - range->offset : 0;
	struct heap_room room = { NULL, 0 };
	struct heap_value got;

	n = range->len < n ? range->len : n;
	for (int i = 0; i < 2; i++) {
		memset(memory, 0xa5, sizeof(memory));
		must(heap_get_range(&client->acc, &key, range, &room, &got));
		assert_int_equal(got.len, n);
		assert_int_equal(got.version, version);
		if (n)
			assert_memory_equal(got.ptr, want + range->offset, n);
		if (got.ptr == memory + 3)
			assert_int_equal(memory[3 + n], 0xa5);
		room = (struct heap_room){ memory + 3, n };
	}
}

static void all_ranges(struct transport *(*wrap)(struct transport *inner))
{
	static const uint64_t sizes[] = { 5, ENTRY_MOST, ENTRY_MOST + 1, 3 * SHARE,
					  5 * SHARE + 100 };
	static const uint64_t lens[] = {
		0, 1, 3, SHARE - 1, SHARE, SHARE + 2, 3 * SHARE, UINT64_MAX
	};
	struct heap_fixture fx;
	struct heap_client a, reader;
	uint64_t version;

	heap_fixture_open(&fx, 100, 40);
	heap_fixture_join(&fx, 1, wrap, &a);
	heap_fixture_join(&fx, 0, wrap, &reader);
	a.acc.window_bytes = 2 * EXTENT;
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		const uint64_t len = sizes[s];
		const uint64_t offsets[] = { 0,       2,         SHARE - 1,
					     SHARE,   SHARE + 1, 3 * SHARE - 5,
					     len - 1, len,       UINT64_MAX };

		must(put(&a, "k", len, s, &version));
		fill(want, len, s);
		for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
			for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
				const struct heap_range range = { offsets[i], lens[k] };

				expect_range(&a, len, &range, version);
				expect_range(&reader, len, &range, version);
			}
	}
	heap_fixture_leave(&a);
	heap_fixture_leave(&reader);
	heap_fixture_close(&fx);
}

TEST(ranges__of_all_places_in_place)
{
	all_ranges(NULL);
}

TEST(ranges__of_all_places_over_a_wire)
{
	all_ranges(wire_wrap);
}

/* Pin, entry and head | the chunks that the range is in, two at a time; those that were read last are there. */
TEST(a_range__reads_its_chunks_alone)
{
	const uint64_t entry = 64 + 8 + 128 + 6 * 8; /* with the padded key and the manifest */
	static const struct {
		struct heap_range range;
		uint64_t round_trips, shares, rest; /* whole shares, and bytes of the last one */
	} cases[] = {
		{ { SHARE + 5, 10 }, 2, 1, 0 },
		{ { SHARE - 1, 2 }, 2, 1, 0 },
		{ { SHARE, SHARE }, 1, 0, 0 },
		{ { SHARE, SHARE + 1 }, 2, 1, 0 },
		{ { 2 * SHARE, UINT64_MAX }, 3, 2, 104 },
		{ { 0, 4 * SHARE + 1 }, 4, 5, 0 },
		{ { 5 * SHARE + 99, 5 }, 2, 0, 104 },
		{ { 5 * SHARE + 100, 1 }, 1, 0, 0 },
	};
	const struct heap_room room = { memory, BUFFER };
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_value got;
	struct chain_key key;
	uint64_t version;

	heap_fixture_open(&fx, 100, 40);
	heap_fixture_join(&fx, 1, wire_wrap, &a);
	a.acc.window_bytes = 2 * EXTENT;
	key = chain_key("k", 1, fx.desc.seed);
	must(put(&a, "k", 5 * SHARE + 100, 1, &version));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct transport_stats before = a.tr->stats;

		must(heap_get_range(&a.acc, &key, &cases[i].range, &room, &got));
		assert_int_equal(a.tr->stats.phases - before.phases, cases[i].round_trips);
		assert_int_equal(a.tr->stats.read_bytes - before.read_bytes,
				 8 + 128 + entry + cases[i].shares * SHARE + cases[i].rest);
	}
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

TEST(a_large_value__needs_as_much_room)
{
	const uint64_t len = 3 * SHARE;
	struct heap_room room = { memory, len - 1 };
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_ask ask;
	struct heap_value got;
	uint64_t version;

	heap_fixture_open(&fx, 100, 40);
	heap_fixture_join(&fx, 1, NULL, &a);
	must(put(&a, "k", len, 1, &version));
	ask = (struct heap_ask){ .key = chain_key("k", 1, fx.desc.seed), .room = room };
	must(heap_get(&a.acc, &ask.key, &room, &got));
	assert_int_equal(got.len, len);
	assert_null(got.ptr);
	must(heap_get_many(&a.acc, &ask, 1));
	assert_int_equal(ask.status, -ERANGE);
	ask.room.bytes = len;
	must(heap_get_many(&a.acc, &ask, 1));
	assert_int_equal(ask.status, 0);
	assert_memory_equal(memory, value, len);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

/* Many more versions than fit at a time; then the heap is as empty as before. */
TEST(replaced_chunks__are_collected)
{
	struct heap_fixture fx;
	struct heap_client a, b;
	struct heap_check_report report;
	uint64_t version;

	heap_fixture_open(&fx, 100, 12);
	heap_fixture_join(&fx, 1, NULL, &a);
	heap_fixture_join(&fx, 2, NULL, &b);
	for (uint64_t i = 0; i < 60; i++) {
		must(put(&a, "k", 4 * SHARE, i, &version));
		if (i % 7 == 0)
			expect_large(&b, "k", 4 * SHARE, i, version);
	}
	must(put(&b, "k", 10, 0, &version));
	must(put(&a, "other", 8 * SHARE, 7, &version));
	expect_large(&b, "other", 8 * SHARE, 7, 1);
	must(delete_key(&a, "other"));
	must(put(&a, "other", 8 * SHARE, 8, &version));
	heap_fixture_expect_sound(&fx, &report);
	assert_int_equal(report.keys, 2);
	assert_in_range(report.live_bytes, 8 * EXTENT, 8 * EXTENT + 2048);
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	heap_fixture_close(&fx);
}

TEST(full_heap__refuses_and_keeps_what_it_has)
{
	struct heap_fixture fx;
	struct heap_client a;
	const struct chain_key key = chain_key("k", 1, 7);
	struct heap_put late = { .value = value, .len = 2 * SHARE, .expected = 9 };
	uint64_t version;

	heap_fixture_open(&fx, 100, 12);
	heap_fixture_join(&fx, 1, NULL, &a);
	must(put(&a, "k", 6 * SHARE, 1, &version));
	assert_int_equal(put(&a, "k", 9 * SHARE, 2, &version), -ENOSPC);
	expect_large(&a, "k", 6 * SHARE, 1, 1);
	assert_int_equal(heap_put(&a.acc, &key, &late, &version), -ESTALE);
	/* What the refused ones had taken is free again. */
	for (uint64_t i = 0; i < 8; i++)
		must(put(&a, "k", 5 * SHARE, i, &version));
	expect_large(&a, "k", 5 * SHARE, 7, 9);
	heap_fixture_expect_sound(&fx, NULL);
	/* The manifest must fit into an extent: 8 bytes for each chunk. */
	late = (struct heap_put){ .value = value, .len = (uint64_t)EXTENT * SHARE };
	assert_int_equal(heap_put(&a.acc, &key, &late, &version), -ERANGE);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

/* Shares of values that are to be mapped begin pages. */
static void of_pages(struct transport *(*wrap)(struct transport *inner))
{
	const uint64_t share = EXTENT - HEAP_PAGE;
	const uint64_t sizes[] = { ENTRY_MOST, EXTENT, 3 * share, 3 * share + 1, 5 * share + 100 };
	const struct chain_key key = chain_key("k", 1, 7);
	const struct heap_range range = { share - 5, share };
	const struct heap_room room = { memory, BUFFER };
	struct heap_client a, b;
	struct heap_fixture fx;
	struct heap_value got;
	struct heap_hold held;
	uint64_t version;

	heap_fixture_open(&fx, 100, 40);
	heap_fixture_join(&fx, 1, wrap, &a);
	heap_fixture_join(&fx, 2, NULL, &b);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const struct heap_put paged = {
			.value = value, .len = sizes[i], .expected = HEAP_ANY_VERSION, .paged = true
		};

		fill(value, sizes[i], i);
		must(heap_put(&a.acc, &key, &paged, &version));
		expect_large(&a, "k", sizes[i], i, version);
		expect_large(&b, "k", sizes[i], i, version);
		must(heap_get_range(&a.acc, &key, &range, &room, &got));
		assert_int_equal(got.len, heap_range_in(&range, sizes[i]));
		assert_memory_equal(got.ptr, value + range.offset, got.len);
		must(heap_hold(&b.acc, &key, &held));
		assert_int_equal(held.manifest != NULL, sizes[i] > ENTRY_MOST);
		for (uint32_t k = 0; held.manifest && k < held.manifest->n; k++)
			assert_int_equal(heap_share_off(held.manifest, k) % HEAP_PAGE, 0);
		heap_hold_end((const void *)(b.heap->tree->base + heap_pin_off(b.owner)), &held);
		mem_free((void *)held.manifest);
		heap_fixture_expect_sound(&fx, NULL);
	}
	heap_fixture_leave(&a);
	heap_fixture_leave(&b);
	heap_fixture_close(&fx);
}

TEST(large_values__of_pages_in_place)
{
	of_pages(NULL);
}

TEST(large_values__of_pages_over_a_wire)
{
	of_pages(wire_wrap);
}

TEST(a_manifest__whose_lead_lies_is_damaged)
{
	const struct heap_desc desc = { .extents = 4, .extent_bytes = EXTENT };
	struct {
		struct heap_manifest head;
		struct heap_piece piece;
	} manifest = { { .n = 1, .lead = 4032, .share = EXTENT - 4096 },
		       { .place = (HEAP_ROWS_OFF + 3 * EXTENT) / 64 } };

	assert_true(heap_manifest_check(&desc, &manifest, sizeof(manifest), EXTENT - 4096));
	manifest.head.lead = 4096; /* the share would end behind the extent */
	assert_false(heap_manifest_check(&desc, &manifest, sizeof(manifest), EXTENT - 4096));
	manifest.head.lead = UINT32_MAX;
	assert_false(heap_manifest_check(&desc, &manifest, sizeof(manifest), EXTENT - 4096));
	manifest.head = (struct heap_manifest){ .n = 1, .lead = 4032, .share = EXTENT - 64 };
	assert_false(heap_manifest_check(&desc, &manifest, sizeof(manifest), EXTENT - 64));
	manifest.head.share = 1000; /* fits an extent, but not from there on */
	manifest.piece.place += (EXTENT - 4096) / 64;
	assert_false(heap_manifest_check(&desc, &manifest, sizeof(manifest), 1000));
}

/* Who takes over the extents of a dead client keeps the chunks that are in use, and no others. */
TEST(orphans__keep_the_chunks_in_use)
{
	struct heap_fixture fx;
	struct heap_client a, b;
	uint64_t version;

	heap_fixture_open(&fx, 100, 14);
	heap_fixture_join(&fx, 1, NULL, &a);
	must(put(&a, "kept", 3 * SHARE, 1, &version));
	must(put(&a, "k", 2 * SHARE, 2, &version));
	must(put(&a, "k", 2 * SHARE, 3, &version));
	heap_fixture_kill(&a);
	heap_fixture_join(&fx, 2, NULL, &b);
	for (uint64_t i = 0; i < 20; i++) {
		must(put(&b, "k", 3 * SHARE, i, &version));
		expect_large(&b, "kept", 3 * SHARE, 1, 1);
		expect_large(&b, "k", 3 * SHARE, i, version);
	}
	heap_fixture_expect_sound(&fx, NULL);
	heap_fixture_leave(&b);
	heap_fixture_close(&fx);
}

TEST(a_damaged_chunk__is_an_error)
{
	struct heap_fixture fx;
	struct heap_client a;
	struct heap_check_report report;
	const struct chain_key key = chain_key("k", 1, 7);
	const struct heap_room room = { memory, BUFFER };
	struct heap_value got;
	uint64_t version, off = 0, damaged = 0;

	heap_fixture_open(&fx, 100, 14);
	heap_fixture_join(&fx, 1, NULL, &a);
	must(put(&a, "k", 3 * SHARE, 1, &version));
	for (uint64_t at = HEAP_ROWS_OFF; at < fx.heap->rows->size; at += EXTENT) {
		struct heap_entry header;

		memcpy(&header, fx.heap->rows->base + at, sizeof(header));
		if (header.magic == ENTRY_MAGIC && header.flags == ENTRY_CHUNK)
			off = at;
	}
	assert_true(off > 0);
	fx.heap->rows->base[off + 64 + 1234] ^= 4;
	assert_int_equal(heap_fixture_get(&a, "k", &got), -EBADMSG);
	/* Of ranges only that of its chunk, though it does not have the damaged bit. */
	for (uint64_t i = 0; i < 3; i++) {
		const struct heap_range range = { i * SHARE + 10, 20 };

		damaged += heap_get_range(&a.acc, &key, &range, &room, &got) == -EBADMSG;
	}
	assert_int_equal(damaged, 1);
	must(heap_check(fx.heap, &report));
	assert_int_equal(report.problems, 1);
	assert_non_null(strstr(report.text[0], "chunk"));
	must(put(&a, "k", 3 * SHARE, 2, &version));
	expect_large(&a, "k", 3 * SHARE, 2, 2);
	heap_fixture_leave(&a);
	heap_fixture_close(&fx);
}

int main(void)
{
	return test_run(NULL, NULL);
}

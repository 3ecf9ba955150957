/* Tables, anchors and deltas of weights, as bytes. */
#include "tests/support/must_internal.h"

#include "ds/weights/changes.h"
#include "ds/weights/table.h"

#include "base/mem/alloc.h"
#include "base/rng.h"

#include <errno.h>
#include <string.h>

/* -------- tables -------- */

static void table_begin(struct weights_table *table, uint32_t keep)
{
	memset(table, 0, sizeof(*table));
	table->magic = WEIGHTS_TABLE_MAGIC;
	table->keep = keep;
	table->anchor_every = 64;
}

enum has { ANCHOR = 1, DELTA = 2, BOTH = 3 };

static uint32_t table_push(struct weights_table *table, enum has has)
{
	const struct weights_gen *newest = &table->gens[0];
	struct weights_gen gen = { .seq = table->n ? newest->seq + 1 : 1,
				   .version = table->n ? newest->version + 3 : 5,
				   .owner = 1 };
	uint32_t dropped;

	if (has & ANCHOR)
		gen.anchor = (struct weights_place){ 1, 1000 };
	if (has & DELTA)
		gen.delta = (struct weights_place){ 1, 300 };
	gen.anchor_index = weights_table_free(table, 1, 0);
	gen.delta_index = weights_table_free(table, 1, (uint16_t)(gen.anchor_index + 1));
	weights_table_add(table, &gen, &dropped);
	return dropped;
}

/* Whatever is published: `keep` generations stay and can be read, no entry is named twice, none is left over. */
TEST(table__keeps_what_the_last_generations_need)
{
	for (uint32_t keep = 1; keep <= WEIGHTS_KEEP_MAX; keep++) {
		struct weights_table table, checked;
		uint32_t named = 0, since = 0;
		struct rng rng;

		rng_seed(&rng, keep, 0);
		table_begin(&table, keep);
		for (uint32_t i = 0; i < 500; i++) {
			bool anchor = since == 0 || since == 63 || rng_uniform_u64(&rng, 40) == 0;

			since = anchor ? 1 : since + 1;
			named += 1 - table_push(&table, !anchor ? DELTA : i % 2 ? BOTH : ANCHOR);
			assert_int_equal(table.n, named);
			assert_true(table.n >= (i + 1 < keep ? i + 1 : keep));
			must(weights_table_check(&table, weights_table_bytes(table.n), &checked));
			assert_true(table.gens[0].delta_index < 2 * WEIGHTS_GENS_MAX);
			assert_false(weights_table_names(&table, 1, 2 * WEIGHTS_GENS_MAX));
		}
	}
}

static void expect_way(const struct weights_table *table, uint32_t target, uint64_t seq,
		       struct weights_way want)
{
	struct weights_way way = weights_table_way(table, target, seq);

	assert_int_equal(way.begin, want.begin);
	assert_int_equal(way.anchor, want.anchor);
	assert_int_equal(way.bytes, want.bytes);
}

TEST(table__leads_a_reader_by_the_fewest_bytes)
{
	const struct weights_way anchor = { 3, true, 1000 + 3 * 300 };
	struct weights_table table;

	table_begin(&table, 4);
	for (uint32_t i = 1; i <= 8; i++)
		(void)table_push(&table, i % 4 == 1 ? ANCHOR : DELTA);
	/* Newest first: 8 7 6 5 */
	expect_way(&table, 0, 0, anchor);
	expect_way(&table, 0, 4, anchor);
	expect_way(&table, 0, 5, (struct weights_way){ 2, false, 3 * 300 });
	expect_way(&table, 0, 7, (struct weights_way){ 0, false, 300 });
	expect_way(&table, 0, 9, anchor);
	expect_way(&table, 1, 7, (struct weights_way){ 3, true, 1000 + 2 * 300 });
	expect_way(&table, 3, 0, (struct weights_way){ 3, true, 1000 });
}

/* Over a generation that has both, deltas lead on; but not if they have more bytes than its anchor. */
TEST(table__leads_over_anchors)
{
	struct weights_table table;

	table_begin(&table, 6);
	for (uint32_t i = 1; i <= 6; i++)
		(void)table_push(&table, i == 1 ? ANCHOR : i == 5 ? BOTH : DELTA);
	expect_way(&table, 0, 5, (struct weights_way){ 0, false, 300 });
	expect_way(&table, 0, 4, (struct weights_way){ 1, false, 2 * 300 });
	expect_way(&table, 0, 2, (struct weights_way){ 3, false, 4 * 300 });
	expect_way(&table, 0, 1, (struct weights_way){ 1, true, 1000 + 300 });
	expect_way(&table, 1, 1, (struct weights_way){ 1, true, 1000 });
}

TEST(table__damaged)
{
	struct weights_table table, bad, out;

	table_begin(&table, 4);
	for (uint32_t i = 0; i < 3; i++)
		(void)table_push(&table, i == 0 ? ANCHOR : DELTA);
	assert_int_equal(weights_table_check(&table, WEIGHTS_TABLE_HEAD - 1, &out), -EBADMSG);
	assert_int_equal(weights_table_check(&table, weights_table_bytes(2), &out), -EBADMSG);
	assert_int_equal(weights_table_check(&table, sizeof(table) + 1, &out), -EBADMSG);
#define BAD(field, value) \
	bad = table; \
	bad.field = (value); \
	assert_int_equal(weights_table_check(&bad, weights_table_bytes(3), &out), -EBADMSG)
	BAD(magic, 0);
	BAD(n, UINT32_MAX);
	BAD(keep, 0);
	BAD(keep, WEIGHTS_KEEP_MAX + 1);
	BAD(anchor_every, 0);
	BAD(anchor_every, WEIGHTS_ANCHOR_MAX + 1);
	BAD(gens[0].delta.entry, 0);
	BAD(gens[0].delta.bytes, 0);
	BAD(gens[0].delta.bytes, UINT64_MAX);
	BAD(gens[2].anchor.bytes, UINT64_MAX);
	BAD(gens[1].payload, UINT64_MAX);
	BAD(gens[1].payload, 5);
	BAD(gens[1].tree, 5);
	BAD(gens[1].seq, 1);
	BAD(gens[1].version, table.gens[0].version);
	BAD(gens[2].anchor.entry, 0);
	BAD(gens[2].payload, 2000);
#undef BAD
	must(weights_table_check(&table, weights_table_bytes(3), &out));
}

/* -------- entries -------- */

#define ELEMENTS 1000u

/* An anchor of two tensors: "a", f32, and "bc", bf16. */
struct anchor {
	struct weights_entry entry;
	struct weights_tensor tensors[2];
	char names[64];
	float a[ELEMENTS];
	char pad[32];
	uint16_t b[ELEMENTS];
	char pad_too[48];
};

static const struct anchor good = {
	.entry = { WEIGHTS_ENTRY_MAGIC, 2, 7, 256, 6080, { 0 } },
	.tensors = { { .bytes = 4000,
		       .shape = { 10, 100 },
		       .name_off = 192,
		       .name_len = 1,
		       .dtype = 11,
		       .n_dims = 2 },
		     { .off = 4032,
		       .bytes = 2000,
		       .shape = { 1000 },
		       .name_off = 194,
		       .name_len = 2,
		       .dtype = 13,
		       .n_dims = 1 } },
	.names = "a\0bc",
};

TEST(anchor__damaged)
{
	struct anchor bad;

	must(weights_anchor_check(&good, sizeof(good), 7));
	assert_int_equal(weights_anchor_check(&good, sizeof(good), 8), -EBADMSG);
	assert_int_equal(weights_anchor_check(&good, sizeof(good) - 1, 7), -EBADMSG);
	assert_int_equal(weights_anchor_check(&good, 63, 7), -EBADMSG);
#define BAD(field, value) \
	bad = good; \
	bad.field = (value); \
	assert_int_equal(weights_anchor_check(&bad, sizeof(bad), 7), -EBADMSG)
	BAD(entry.magic, 1);
	BAD(entry.n, 3);
	BAD(entry.n, UINT32_MAX);
	BAD(entry.head_bytes, UINT64_MAX);
	BAD(entry.head_bytes, 128);
	BAD(entry.payload, UINT64_MAX);
	BAD(tensors[0].off, 1);
	BAD(tensors[0].off, 4096);
	BAD(tensors[1].off, UINT64_MAX - 63);
	BAD(tensors[1].bytes, 4000);
	BAD(tensors[1].shape[0], UINT64_MAX);
	BAD(tensors[1].dtype, 0);
	BAD(tensors[1].dtype, 200);
	BAD(tensors[0].n_dims, 9);
	BAD(tensors[0].name_off, 0);
	BAD(tensors[0].name_off, UINT32_MAX);
	BAD(tensors[1].name_len, 0);
	BAD(tensors[1].name_len, 3);
	BAD(tensors[1].name_len, WEIGHTS_NAME_MAX + 1);
	BAD(names[1], 'x');
	BAD(names[2], 0);
#undef BAD
}

struct side {
	struct anchor anchor;
	uint64_t sums[2];
};

static struct weights_copy copy_of(struct side *side)
{
	return (struct weights_copy){ .head = &side->anchor.entry,
				      .payload = (uint8_t *)side->anchor.a,
				      .sums = side->sums };
}

/* Changes about one of `rare` elements of b; and one of a. */
static void change(struct anchor *anchor, struct rng *rng, uint64_t rare)
{
	for (uint32_t i = 0; i < ELEMENTS; i++)
		if (rng_uniform_u64(rng, rare) == 0)
			anchor->b[i] ^= (uint16_t)(1 + rng_uniform_u64(rng, 65535));
	anchor->a[rng_uniform_u64(rng, ELEMENTS)] += 1;
}

static uint64_t make(struct side *publisher, struct anchor *now, uint8_t *out, size_t room,
		     struct weights_gen *gen)
{
	struct weights_copy copy = copy_of(publisher);
	struct weights_entry *entry = (void *)out;

	must(weights_changes_make(&copy, (const void *[]){ now->a, now->b }, entry, room));
	entry->seq = ++gen->seq;
	gen->sum = weights_copy_sum(&copy);
	return sizeof(*entry) + entry->head_bytes;
}

static int apply(struct weights_copy *copy, const struct weights_gen *gen, const void *entry,
		 uint64_t n)
{
	return weights_changes_apply(copy, &(struct weights_delta){ gen, entry, n }, 1);
}

TEST(changes__lead_to_the_same_bytes)
{
	static _Alignas(64) uint8_t entry[1 << 15];
	struct side publisher = { .anchor = good }, reader = publisher;
	struct weights_copy copy = copy_of(&reader);
	struct weights_gen gen = { .seq = 7 };
	struct anchor now = good;
	uint64_t bytes;
	struct rng rng;

	rng_seed(&rng, 1, 0);
	for (uint32_t i = 0; i < 50; i++) {
		if (i != 20) /* nothing changes */
			change(&now, &rng, i % 3 ? 100 : 2);
		bytes = make(&publisher, &now, entry, sizeof(entry), &gen);
		must(apply(&copy, &gen, entry, bytes));
		assert_memory_equal(&reader.anchor, &now, sizeof(now));
		if (i == 20)
			assert_int_equal(bytes, sizeof(struct weights_entry));
	}
}

/* Up to DELTA_CHAIN at once, some of which change nothing, or one tensor only. */
TEST(changes__together)
{
	static _Alignas(64) uint8_t entries[DELTA_CHAIN][1 << 14];
	struct side publisher = { .anchor = good }, reader = publisher;
	struct weights_copy copy = copy_of(&reader);
	struct weights_delta deltas[DELTA_CHAIN];
	struct weights_gen gens[DELTA_CHAIN + 1] = { { .seq = 7 } };
	struct anchor now = good;
	struct rng rng;

	rng_seed(&rng, 4, 0);
	for (uint32_t n = 1; n <= DELTA_CHAIN; n++) {
		for (uint32_t k = 0; k < n; k++) {
			if (k % 3 == 0)
				change(&now, &rng, 50);
			else if (k % 3 == 1)
				now.b[k] ^= 1;
			gens[k + 1] = gens[k];
			deltas[k] = (struct weights_delta){
				&gens[k + 1], entries[k],
				make(&publisher, &now, entries[k], sizeof(entries[k]), &gens[k + 1])
			};
		}
		if (n > 1) { /* one is left out */
			struct side other = reader;
			struct weights_copy wrong = copy_of(&other);

			assert_int_equal(weights_changes_apply(&wrong, deltas + 1, n - 1),
					 -EBADMSG);
		}
		must(weights_changes_apply(&copy, deltas, n));
		assert_memory_equal(&reader.anchor, &now, sizeof(now));
		gens[0] = gens[n];
	}
	gens[0].anchor.entry = 1; /* sums begin again */
	deltas[0] = (struct weights_delta){ &gens[0], entries[0],
					    make(&publisher, &now, entries[0], sizeof(entries[0]),
						 &gens[0]) };
	must(weights_changes_apply(&copy, deltas, 1));
	assert_int_equal(weights_copy_sum(&copy), 0);
}

TEST(changes__without_room)
{
	static _Alignas(64) uint8_t entry[1 << 15];
	struct side publisher = { .anchor = good };
	struct weights_copy copy = copy_of(&publisher);
	struct anchor now = good;
	struct rng rng;

	rng_seed(&rng, 2, 0);
	for (size_t room = sizeof(struct weights_entry); room < 1000; room += 13) {
		change(&now, &rng, 2);
		assert_int_equal(weights_changes_make(&copy, (const void *[]){ now.a, now.b },
						      (void *)entry, room),
				 -ENOSPC);
		assert_memory_equal(&publisher.anchor, &now, sizeof(now));
		assert_int_equal(weights_copy_sum(&copy), 0);
	}
}

/* One byte after the other is another one: never a wrong result without an error. */
TEST(changes__damaged)
{
	static _Alignas(64) uint8_t entry[1 << 15], bad[1 << 15];
	struct side publisher = { .anchor = good };
	struct weights_gen gen = { .seq = 7 };
	struct anchor now = good;
	uint64_t bytes;
	struct rng rng;

	rng_seed(&rng, 3, 0);
	change(&now, &rng, 100);
	bytes = make(&publisher, &now, entry, sizeof(entry), &gen);
	for (uint64_t i = 0; i <= bytes; i++) {
		uint8_t *exact =
			mem_aligned(64, bytes); /* so that ASan sees what is read behind it */
		struct side reader = { .anchor = good };
		struct weights_copy copy = copy_of(&reader);
		int ret;

		memcpy(bad, entry, bytes);
		if (i < bytes)
			bad[i] ^= (uint8_t)(1 + rng_uniform_u64(&rng, 255));
		memcpy(exact, bad, bytes);
		ret = apply(&copy, &gen, exact, i < bytes ? bytes : bytes - 8);
		if (ret)
			assert_int_equal(ret, -EBADMSG);
		else
			assert_memory_equal(&reader.anchor, &now, sizeof(now));
		mem_free(exact);
	}
}

/* A reader whose copy is not what the delta changes. */
TEST(changes__to_another_payload)
{
	static _Alignas(64) uint8_t entry[1 << 15];
	struct side publisher = { .anchor = good }, reader = publisher;
	struct weights_copy copy = copy_of(&reader);
	struct weights_gen gen = { .seq = 7 };
	struct anchor now = good;
	uint64_t bytes;

	now.b[500] = 77;
	bytes = make(&publisher, &now, entry, sizeof(entry), &gen);
	reader.anchor.b[500] = 1;
	assert_int_equal(apply(&copy, &gen, entry, bytes), -EBADMSG);
}

int main(void)
{
	return test_run(NULL, NULL);
}

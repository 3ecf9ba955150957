/* The layout of weights and deltas: see test_layouts.c. */
#include "tests/golden/golden.h"
#include "tests/support/test.h"

#include <string.h>

#include "ds/weights/changes.h"
#include "ds/weights/table.h"

static void put_weights_structs(FILE *out)
{
	STRUCT(weights_place);
	FIELD(weights_place, entry);
	FIELD(weights_place, bytes);
	STRUCT(weights_gen);
	FIELD(weights_gen, version);
	FIELD(weights_gen, seq);
	FIELD(weights_gen, sum);
	FIELD(weights_gen, tree);
	FIELD(weights_gen, payload);
	FIELD(weights_gen, anchor);
	FIELD(weights_gen, delta);
	FIELD(weights_gen, owner);
	FIELD(weights_gen, anchor_index);
	FIELD(weights_gen, delta_index);
	STRUCT(weights_table);
	FIELD(weights_table, magic);
	FIELD(weights_table, n);
	FIELD(weights_table, keep);
	FIELD(weights_table, anchor_every);
	FIELD(weights_table, most);
	FIELD(weights_table, reserved);
	FIELD(weights_table, gens);
	STRUCT(weights_entry);
	FIELD(weights_entry, magic);
	FIELD(weights_entry, n);
	FIELD(weights_entry, seq);
	FIELD(weights_entry, head_bytes);
	FIELD(weights_entry, payload);
	FIELD(weights_entry, reserved);
	STRUCT(weights_tensor);
	FIELD(weights_tensor, off);
	FIELD(weights_tensor, bytes);
	FIELD(weights_tensor, shape);
	FIELD(weights_tensor, name_off);
	FIELD(weights_tensor, name_len);
	FIELD(weights_tensor, dtype);
	FIELD(weights_tensor, n_dims);
	FIELD(weights_tensor, reserved);
	STRUCT(weights_change);
	FIELD(weights_change, tensor);
	FIELD(weights_change, reserved);
	FIELD(weights_change, bytes);
	STRUCT(delta_head);
	FIELD(delta_head, magic);
	FIELD(delta_head, element_bytes);
	FIELD(delta_head, elements);
	FIELD(delta_head, changed);
	FIELD(delta_head, bytes);
	FIELD(delta_head, before);
	FIELD(delta_head, after);
}

/* Two tensors of three elements: "a", bf16, and "b/c", f64. */
struct anchor {
	struct weights_entry entry;
	struct weights_tensor tensors[2];
	char names[64];
	uint16_t a[32];
	double b[8];
};

static const struct anchor example = {
	.entry = { WEIGHTS_ENTRY_MAGIC, 2, 7, 256, 128, { 0 } },
	.tensors = { { .bytes = 6,
		       .shape = { 3 },
		       .name_off = 192,
		       .name_len = 1,
		       .dtype = 13,
		       .n_dims = 1 },
		     { .off = 64,
		       .bytes = 24,
		       .shape = { 3, 1 },
		       .name_off = 194,
		       .name_len = 3,
		       .dtype = 12,
		       .n_dims = 2 } },
	.names = "a\0b/c",
	.a = { 1, 2, 3 },
	.b = { 1.0, -2.0, 0.5 },
};

static void put_weights(FILE *out)
{
	static _Alignas(8) uint8_t delta[1 << 15];
	struct anchor copy = example;
	struct weights_table table = {
		.magic = WEIGHTS_TABLE_MAGIC, .keep = 2, .anchor_every = 8, .most = 4096
	};
	struct weights_gen gen = { .version = 70,
				   .seq = 7,
				   .tree = weights_tree_hash(&example.entry),
				   .payload = 128,
				   .anchor = { 1, sizeof(example) },
				   .owner = 5 };
	uint64_t sums[2] = { 0, 0 };
	struct weights_copy of = { .head = &copy.entry,
				   .payload = (uint8_t *)copy.a,
				   .sums = sums };
	struct weights_entry *entry = (void *)delta;
	uint32_t dropped;

	put_weights_structs(out);
	assert_int_equal(weights_anchor_check(&example, sizeof(example), 7), 0);
	put_bytes(out, "anchor", &example, sizeof(example));
	weights_table_add(&table, &gen, &dropped);

	assert_int_equal(weights_changes_make(&of,
					      (const void *[]){ (uint16_t[]){ 1, 9, 3 },
								(double[]){ 1.0, -2.0, 0.25 } },
					      entry, sizeof(delta)),
			 0);
	entry->seq = ++gen.seq;
	gen.version = 71;
	gen.sum = weights_copy_sum(&of);
	gen.delta = (struct weights_place){ 3, sizeof(*entry) + entry->head_bytes };
	gen.anchor.entry = 2;
	gen.anchor_index = 1;
	gen.delta_index = 2;
	put_bytes(out, "delta", delta, gen.delta.bytes);
	weights_table_add(&table, &gen, &dropped);
	put_bytes(out, "table", &table, weights_table_bytes(table.n));
}

TEST(layout__of_weights)
{
	check_golden("weights-v2", put_weights);
}

int main(void)
{
	return test_run(NULL, NULL);
}

/*
 * Fuzzes what a reader of weights takes from the heap. The first byte says what the rest is: a table, an
 * anchor, or the delta of a generation to a small anchor, once alone and once twice in a row. Magic numbers and
 * lengths are put right where its bit 2 says so, or little but noise in them would be seen.
 */
#include "ds/weights/changes.h"
#include "ds/weights/table.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One tensor, "a", of 100 elements of 2 bytes. */
struct anchor {
	struct weights_entry entry;
	struct weights_tensor tensor;
	char names[32];
	uint16_t elements[128];
};

static const struct anchor example = {
	.entry = { WEIGHTS_ENTRY_MAGIC, 1, 7, 128, 256, { 0 } },
	.tensor = { .bytes = 200,
		    .shape = { 100 },
		    .name_off = 96,
		    .name_len = 1,
		    .dtype = 13,
		    .n_dims = 1 },
	.names = "a",
};

static void fuzz_table(uint8_t *bytes, size_t size, bool repair)
{
	struct weights_table table;

	if (repair && size >= WEIGHTS_TABLE_HEAD) {
		uint32_t head[4] = {
			WEIGHTS_TABLE_MAGIC,
			(uint32_t)((size - WEIGHTS_TABLE_HEAD) / sizeof(struct weights_gen)),
			1 + bytes[8] % WEIGHTS_KEEP_MAX, 1 + bytes[12] % WEIGHTS_ANCHOR_MAX
		};

		memcpy(bytes, head, sizeof(head));
		size -= (size - WEIGHTS_TABLE_HEAD) % sizeof(struct weights_gen);
	}
	if (weights_table_check(bytes, size, &table))
		return;
	for (uint32_t target = 0; target < table.n; target++) {
		struct weights_way way =
			weights_table_way(&table, target, table.gens[table.n - 1].seq);

		if (way.begin >= table.n || way.begin < target ||
		    (way.anchor && !table.gens[way.begin].anchor.entry))
			abort();
	}
}

static void fuzz_anchor(uint8_t *bytes, size_t size, bool repair)
{
	struct weights_entry *entry = (void *)bytes;
	uint64_t seen = 0;

	if (repair && size >= sizeof(*entry)) {
		entry->magic = WEIGHTS_ENTRY_MAGIC;
		entry->seq = 7;
		entry->head_bytes = (size - sizeof(*entry)) / WEIGHTS_ALIGN * WEIGHTS_ALIGN;
		entry->payload = size - weights_payload_off(entry);
	}
	if (weights_anchor_check(bytes, size, 7))
		return;
	for (uint32_t i = 0; i < entry->n; i++) {
		const struct weights_tensor *tensor = &weights_tensors(entry)[i];
		const uint8_t *payload = bytes + weights_payload_off(entry) + tensor->off;

		seen += strlen(weights_name(entry, tensor));
		for (uint64_t k = 0; k < tensor->bytes; k++)
			seen += payload[k];
	}
	if (seen + weights_tree_hash(entry) == 1)
		abort(); /* so that it is read */
}

/* Of the sum in the head of the first delta. */
#define OFF_AFTER \
	(sizeof(struct weights_entry) + sizeof(struct weights_change) + \
	 offsetof(struct delta_head, after))

static void fuzz_delta(uint8_t *bytes, size_t size, bool repair)
{
	struct weights_entry *entry = (void *)bytes;
	struct anchor copy = example;
	uint64_t sum = 0;
	struct weights_copy of = { .head = &copy.entry,
				   .payload = (uint8_t *)copy.elements,
				   .sums = &sum };
	struct weights_gen gens[2] = { { .seq = 8 }, { .seq = 8 } };
	struct weights_delta deltas[2] = { { &gens[0], bytes, size }, { &gens[1], bytes, size } };
	struct delta_array array = { .elements = 100, .element_bytes = 2 };

	if (repair && size >= sizeof(*entry)) {
		entry->magic = WEIGHTS_ENTRY_MAGIC;
		entry->seq = 8;
		entry->head_bytes = size - sizeof(*entry);
		entry->payload = copy.entry.payload;
		if (size >= OFF_AFTER + sizeof(sum)) /* as the table would say */
			memcpy(&gens[0].sum, bytes + OFF_AFTER, sizeof(sum));
	}
	if (weights_changes_apply(&of, deltas, 1) == 0 &&
	    sum != delta_sum(&array, 0, copy.elements, copy.tensor.bytes))
		abort();
	copy = example;
	sum = 0;
	(void)!weights_changes_apply(&of, deltas, 2);
	if (memcmp(copy.elements + 100, example.elements + 100, 56) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const targets[])(uint8_t *, size_t, bool) = { fuzz_table, fuzz_anchor,
								    fuzz_delta, fuzz_delta };
	uint8_t *bytes;

	if (size == 0)
		return 0;
	/* Exactly as long as what it holds, so that a sanitizer sees a byte more. */
	bytes = malloc(size - 1 ? size - 1 : 1);
	if (!bytes)
		return 0;
	memcpy(bytes, data + 1, size - 1);
	targets[data[0] % 4](bytes, size - 1, data[0] & 4);
	free(bytes);
	return 0;
}

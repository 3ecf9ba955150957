/*
 * Fuzzes delta_apply: the first byte gives the size of elements, the next two how many there are; the rest is
 * a delta. Its head is put right where bits 2 and 3 of the first byte say so, or little but noise in the head
 * would be seen.
 */
#include "ds/weights/delta.h"

#include <stdlib.h>
#include <string.h>

#define MOST_ELEMENTS 200000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void repair(const struct delta_array *array, uint8_t *delta, size_t size)
{
	struct delta_head head;

	if (size < sizeof(head))
		return;
	memcpy(&head, delta, sizeof(head));
	head.magic = DELTA_MAGIC;
	head.element_bytes = array->element_bytes;
	head.elements = array->elements;
	head.bytes = size;
	head.before = 0;
	memcpy(delta, &head, sizeof(head));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct delta_array array = { .key = 1 };
	struct delta_copy copy = { .sum = 0 };
	uint8_t *delta;

	if (size < 3)
		return 0;
	array.element_bytes = 1u << data[0] % 4;
	array.elements = (data[1] | (uint64_t)data[2] << 8) * 3 % MOST_ELEMENTS;
	/* Exactly as long as what it holds, so that a sanitizer sees a byte more. */
	delta = malloc(size - 3 ? size - 3 : 1);
	copy.bytes = calloc(array.elements ? array.elements : 1, array.element_bytes);
	if (delta && copy.bytes) {
		memcpy(delta, data + 3, size - 3);
		if (data[0] & 4)
			repair(&array, delta, size - 3);
		if (delta_apply(&array, &copy, delta, size - 3) == 0 &&
		    copy.sum !=
			    delta_sum(&array, 0, copy.bytes, array.elements * array.element_bytes))
			abort();
	}
	free(delta);
	free(copy.bytes);
	return 0;
}

/* apply.c - delta_apply. What a delta says is read once, and checked where it is used. */
#include "ds/weights/delta.h"

#include "ds/weights/array.h"
#include "ds/weights/kernel.h"

#define AHEAD 32u /* elements that are prefetched */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct block {
	uint8_t *at;             /* in the copy */
	const uint64_t *run_key; /* of each of its runs */
	const volatile uint16_t *places;
	const uint8_t *values;
	uint64_t elements, count; /* of them change */
};

/* How much the sum grows when the word at an offset in the block grows by that. */
ALWAYS_INLINE uint64_t growth(const struct block *b, uint64_t off, uint64_t by)
{
	return by * delta_keys[off % DELTA_RUN / 4] * b->run_key[off / DELTA_RUN];
}

/* Sets the element at an offset. Returns how much the sum grows. */
ALWAYS_INLINE uint64_t set_element(const struct block *b, uint64_t off, const uint8_t *value,
				   uint32_t element_bytes)
{
	uint64_t old = 0, now = 0;

	memcpy(&old, b->at + off, element_bytes);
	memcpy(&now, value, element_bytes);
	memcpy(b->at + off, &now, element_bytes);
	if (element_bytes == 8)
		return growth(b, off, (now & UINT32_MAX) - (old & UINT32_MAX)) +
		       growth(b, off + 4, (now >> 32) - (old >> 32));
	return growth(b, off, (now - old) << off % 4 * 8);
}

/* Applies a block; false: a place is behind its end. */
ALWAYS_INLINE bool apply_elements(const struct block *b, uint32_t element_bytes, uint64_t *sum)
{
	uint64_t grows = 0;

	for (uint64_t i = 0; i < b->count; i++) {
		uint64_t place = b->places[i];

		if (place >= b->elements)
			return false;
		if (i + AHEAD < b->count)
			__builtin_prefetch(b->at + (uint64_t)b->places[i + AHEAD] * element_bytes,
					   1);
		grows += set_element(b, place * element_bytes, b->values + i * element_bytes,
				     element_bytes);
	}
	*sum += grows;
	return true;
}

static bool apply_block(const struct block *b, uint32_t element_bytes, uint64_t *sum)
{
	switch (element_bytes) {
	case 1:
		return apply_elements(b, 1, sum);
	case 2:
		return apply_elements(b, 2, sum);
	case 4:
		return apply_elements(b, 4, sum);
	default:
		return apply_elements(b, 8, sum);
	}
}

/* Applies the blocks, which have counts, left bytes in all; false: they are no such. */
static bool apply_blocks(const struct delta_array *array, struct delta_copy *copy,
			 const uint8_t *delta, uint64_t left)
{
	const volatile uint32_t *counts = (const uint32_t *)(const void *)delta;
	uint64_t blocks = array_blocks(array), run_key[DELTA_BLOCK * 8 / DELTA_RUN];
	uint32_t runs = DELTA_BLOCK * array->element_bytes / DELTA_RUN;

	if (left < counts_bytes(blocks))
		return false;
	left -= counts_bytes(blocks);
	delta += counts_bytes(blocks);
	for (uint64_t i = 0; i < blocks; i++) {
		struct block b = {
			.at = (uint8_t *)copy->bytes + i * DELTA_BLOCK * array->element_bytes,
			.run_key = run_key,
			.elements = min_u64(DELTA_BLOCK, array->elements - i * DELTA_BLOCK),
			.count = counts[i]
		};
		uint64_t bytes = places_bytes(b.count) + values_bytes(array, b.count);

		if (b.count > b.elements || bytes > left)
			return false;
		b.places = (const uint16_t *)(const void *)delta;
		b.values = delta + places_bytes(b.count);
		for (uint32_t run = 0; b.count && run < runs; run++)
			run_key[run] = delta_run_key(array->key, i * runs + run);
		if (!apply_block(&b, array->element_bytes, &copy->sum))
			return false;
		delta += bytes;
		left -= bytes;
	}
	return left == 0;
}

int delta_apply(const struct delta_array *array, struct delta_copy *copy, const void *delta,
		uint64_t n)
{
	struct delta_head head;
	int ret = array_check(array, delta);

	if (ret)
		return ret;
	if (n < sizeof(head))
		return error_set(-EBADMSG, "delta of %llu bytes: too few", (unsigned long long)n);
	memcpy(&head, delta, sizeof(head));
	if (head.magic != DELTA_MAGIC || head.element_bytes != array->element_bytes ||
	    head.elements != array->elements || head.bytes != n)
		return error_set(-EBADMSG,
				 "delta of %llu bytes: it is none of %llu elements of %u bytes",
				 (unsigned long long)n, (unsigned long long)array->elements,
				 array->element_bytes);
	if (head.before != copy->sum)
		return error_set(-ESTALE, "delta of %llu elements: it changes another version",
				 (unsigned long long)array->elements);
	if (!apply_blocks(array, copy, (const uint8_t *)delta + sizeof(head), n - sizeof(head)) ||
	    copy->sum != head.after)
		return error_set(-EBADMSG, "delta of %llu elements: the result has another sum",
				 (unsigned long long)array->elements);
	return 0;
}

/*
 * apply.c - delta_apply_chain. What a delta says is read once, and checked where it is used; counts
 * also for a hint, unchecked.
 */
#include "ds/weights/delta.h"

#include "ds/weights/array.h"
#include "ds/weights/kernel.h"

#define AHEAD 32u /* elements that are prefetched */
#define DENSE 4u  /* a block is read whole where one line of so many changes, or more */
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

/* A delta as far as it was applied. */
struct cursor {
	struct delta_head head;
	const volatile uint32_t *counts;
	const uint8_t *at; /* the next block's places */
	uint64_t left;     /* bytes from there on */
	uint64_t grows;    /* the sum, so far */
};

/* Reads the head of a delta to an array of that sum. */
static int cursor_open(struct cursor *c, const struct delta_array *array,
		       const struct delta_in *delta, uint64_t sum)
{
	uint64_t heads = sizeof(c->head) + counts_bytes(array_blocks(array));
	int ret = array_check(array, delta->at);

	if (ret)
		return ret;
	if (delta->bytes < heads)
		return error_set(-EBADMSG, "delta of %llu bytes: too few",
				 (unsigned long long)delta->bytes);
	memcpy(&c->head, delta->at, sizeof(c->head));
	if (c->head.magic != DELTA_MAGIC || c->head.element_bytes != array->element_bytes ||
	    c->head.elements != array->elements || c->head.bytes != delta->bytes)
		return error_set(-EBADMSG,
				 "delta of %llu bytes: it is none of %llu elements of %u bytes",
				 (unsigned long long)delta->bytes,
				 (unsigned long long)array->elements, array->element_bytes);
	if (c->head.before != sum)
		return error_set(-ESTALE, "delta of %llu elements: it changes another version",
				 (unsigned long long)array->elements);
	c->counts = (const uint32_t *)(const void *)((const uint8_t *)delta->at + sizeof(c->head));
	c->at = (const uint8_t *)delta->at + heads;
	c->left = delta->bytes - heads;
	c->grows = 0;
	return 0;
}

/* Applies the cursor's next block, of that number, to a block of the copy. */
static bool cursor_apply(struct cursor *c, uint64_t number, const struct delta_array *array,
			 struct block *b)
{
	uint64_t bytes;

	b->count = c->counts[number];
	bytes = places_bytes(b->count) + values_bytes(array, b->count);
	if (b->count > b->elements || bytes > c->left)
		return false;
	b->places = (const uint16_t *)(const void *)c->at;
	b->values = c->at + places_bytes(b->count);
	c->at += bytes;
	c->left -= bytes;
	return apply_block(b, array->element_bytes, &c->grows);
}

/*
 * Brings a block of which many lines change into the cache, in the order of memory: the CPU's own prefetcher
 * is then faster than a request for each line that changes.
 */
static void block_read(const struct block *b, uint64_t bytes, const struct cursor *cursors,
		       uint64_t number, uint32_t n)
{
	const volatile uint8_t *at = b->at;
	uint64_t changes = 0;

	for (uint32_t k = 0; k < n; k++)
		changes += cursors[k].counts[number];
	if (changes * CACHE_LINE * DENSE <= bytes)
		return;
	for (uint64_t off = 0; off < bytes; off += CACHE_LINE)
		(void)at[off];
}

/* Applies n deltas side by side, so that each block of the copy comes into the cache once. */
static bool apply_together(const struct delta_array *array, uint8_t *copy, struct cursor *cursors,
			   uint32_t n)
{
	uint64_t run_key[DELTA_BLOCK * 8 / DELTA_RUN];
	uint32_t runs = DELTA_BLOCK * array->element_bytes / DELTA_RUN;
	bool good = true;

	for (uint64_t i = 0; i < array_blocks(array); i++) {
		struct block b = { .at = copy + i * DELTA_BLOCK * array->element_bytes,
				   .run_key = run_key,
				   .elements = min_u64(DELTA_BLOCK,
						       array->elements - i * DELTA_BLOCK) };

		for (uint32_t run = 0; run < runs; run++)
			run_key[run] = delta_run_key(array->key, i * runs + run);
		block_read(&b, b.elements * array->element_bytes, cursors, i, n);
		for (uint32_t k = 0; k < n; k++)
			if (!cursor_apply(&cursors[k], i, array, &b))
				return false;
	}
	for (uint32_t k = 0; k < n; k++)
		good &= cursors[k].left == 0 &&
			cursors[k].head.before + cursors[k].grows == cursors[k].head.after;
	return good;
}

int delta_apply_chain(const struct delta_array *array, struct delta_copy *copy,
		      const struct delta_in *deltas, uint32_t n)
{
	struct cursor cursors[DELTA_CHAIN];
	uint64_t sum = copy->sum;

	if (n > DELTA_CHAIN)
		return error_set(-EINVAL, "%u deltas: at most %u", n, DELTA_CHAIN);
	for (uint32_t k = 0; k < n; k++) {
		int ret = cursor_open(&cursors[k], array, &deltas[k], sum);

		if (ret)
			return ret;
		sum = cursors[k].head.after;
	}
	if (!apply_together(array, copy->bytes, cursors, n))
		return error_set(-EBADMSG, "deltas of %llu elements: the result has another sum",
				 (unsigned long long)array->elements);
	copy->sum = sum;
	return 0;
}

int delta_apply(const struct delta_array *array, struct delta_copy *copy, const void *delta,
		uint64_t n)
{
	const struct delta_in in = { delta, n };

	return delta_apply_chain(array, copy, &in, 1);
}

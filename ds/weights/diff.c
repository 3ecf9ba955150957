/*
 * diff.c - delta_diff. A run is compared as a whole; then the lines that differ are looked at again
 * while they are in the cache: places of elements are written, and the lines copied. The values follow
 * when a block's places are known.
 */
#include "ds/weights/delta.h"

#include "ds/weights/array.h"
#include "ds/weights/kernel.h"

struct diff {
	const struct delta_array *array;
	const struct delta_kernel *kernel;
	uint8_t *copy;
	const uint8_t *now;
	uint64_t grows; /* of the sum */
	uint8_t *at;    /* next places */
	uint8_t *end;   /* of the room */
	bool full;      /* no room: the copy is all there is to do */
};

/* Writes the places of elements, the first of the line being `first`, of which bytes differ. */
static uint16_t *put_places(uint16_t *to, uint64_t differ, uint32_t first, uint32_t log2)
{
	static const uint64_t starts[] = { UINT64_MAX, UINT64_C(0x5555555555555555),
					   UINT64_C(0x1111111111111111),
					   UINT64_C(0x0101010101010101) };

	for (uint32_t i = 0; i < log2; i++)
		differ |= differ >> (1u << i);
	for (differ &= starts[log2]; differ; differ &= differ - 1)
		*to++ = (uint16_t)(first + (bits_ctz(differ) >> log2));
	return to;
}

/* One run, whose first element has that place in its block. */
static uint16_t *diff_run(struct diff *d, uint8_t *old, const uint8_t *now, uint64_t run,
			  uint16_t *to)
{
	uint32_t log2 = bits_ctz(d->array->element_bytes);
	uint32_t first = (uint32_t)((run * DELTA_RUN >> log2) % DELTA_BLOCK);
	uint64_t differ[DELTA_LINES], lines = d->kernel->compare(old, now, differ);

	if (!lines)
		return to;
	if (!d->full && (uint64_t)(d->end - (uint8_t *)to) < 2 * (DELTA_RUN >> log2))
		d->full = true;
	for (uint64_t rest = d->full ? 0 : lines; rest; rest &= rest - 1) {
		uint32_t line = bits_ctz(rest);

		to = put_places(to, differ[line], first + (line * CACHE_LINE >> log2), log2);
	}
	d->grows += d->kernel->copy(old, now, lines) * delta_run_key(d->array->key, run);
	return to;
}

/* The last run, which is not whole. */
static uint16_t *diff_last(struct diff *d, uint64_t at, uint64_t n, uint16_t *to)
{
	uint8_t old[DELTA_RUN] = { 0 }, now[DELTA_RUN] = { 0 };

	memcpy(old, d->copy + at, n);
	memcpy(now, d->now + at, n);
	to = diff_run(d, old, now, at / DELTA_RUN, to);
	memcpy(d->copy + at, old, n);
	return to;
}

#define PUT_VALUES(type) \
	for (uint64_t i = 0; i < count; i++) \
	memcpy(to + i * sizeof(type), block + places[i] * sizeof(type), sizeof(type))

static void put_values(uint8_t *to, const uint8_t *block, const uint16_t *places, uint64_t count,
		       uint32_t element_bytes)
{
	switch (element_bytes) {
	case 1:
		PUT_VALUES(uint8_t);
		break;
	case 2:
		PUT_VALUES(uint16_t);
		break;
	case 4:
		PUT_VALUES(uint32_t);
		break;
	default:
		PUT_VALUES(uint64_t);
	}
}

/* Compares a block; returns the number of its elements that changed. */
static uint32_t diff_block(struct diff *d, uint64_t start, uint64_t end)
{
	uint16_t *places = (uint16_t *)(void *)d->at, *to = places;
	uint64_t at = start, count, bytes;

	for (; at + DELTA_RUN <= end; at += DELTA_RUN)
		to = diff_run(d, d->copy + at, d->now + at, at / DELTA_RUN, to);
	if (at < end)
		to = diff_last(d, at, end - at, to);
	if (d->full || to == places)
		return 0;
	count = (uint64_t)(to - places);
	bytes = places_bytes(count) + values_bytes(d->array, count);
	if (bytes > (uint64_t)(d->end - d->at)) {
		d->full = true;
		return 0;
	}
	memset(to, 0, places_bytes(count) - count * sizeof(*to));
	memset(d->at + bytes - 8, 0, 8);
	put_values(d->at + places_bytes(count), d->copy + start, places, count,
		   d->array->element_bytes);
	d->at += bytes;
	return (uint32_t)count;
}

int delta_diff(const struct delta_array *array, struct delta_copy *copy, const void *now,
	       struct delta_out *out)
{
	struct delta_head head = {
		DELTA_MAGIC, array->element_bytes, array->elements, 0, 0, copy->sum, 0
	};
	struct diff d = { array, delta_kernel_get(), copy->bytes, now, 0, out->at, out->at, true };
	uint64_t blocks = array_blocks(array), step = (uint64_t)DELTA_BLOCK * array->element_bytes;
	uint32_t *counts = NULL;
	int ret = array_check(array, out->at);

	if (ret)
		return ret;
	if (out->room >= sizeof(head) + counts_bytes(blocks)) {
		counts = (uint32_t *)(void *)((uint8_t *)out->at + sizeof(head));
		memset(counts, 0, counts_bytes(blocks));
		d.at = (uint8_t *)counts + counts_bytes(blocks);
		d.end = (uint8_t *)out->at + out->room;
		d.full = false;
	}
	for (uint64_t i = 0; i < blocks; i++) {
		uint32_t count =
			diff_block(&d, i * step, min_u64((i + 1) * step, array_bytes(array)));

		if (counts)
			counts[i] = count;
		head.changed += count;
	}
	copy->sum += d.grows;
	head.after = copy->sum;
	out->changed = head.changed;
	out->bytes = 0;
	if (d.full)
		return error_set(
			-ENOSPC, "delta of %llu elements: room for %llu bytes is too little",
			(unsigned long long)array->elements, (unsigned long long)out->room);
	out->bytes = head.bytes = (uint64_t)(d.at - (uint8_t *)out->at);
	memcpy(out->at, &head, sizeof(head));
	return 0;
}

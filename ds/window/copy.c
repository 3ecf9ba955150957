/* copy.c - copies and computes the outputs of a lot whose plan is made. */
#include "ds/window/copy.h"

#include "transport/barrier.h"

#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* -------- small columns, one at a time -------- */

/* Source of item i: windows[i] + base, k[i] rows later if by_k. */
struct source {
	size_t base;
	bool by_k;
};

ALWAYS_INLINE void copy_items(const struct window_lot *lot, const struct window_output *o,
			      struct source from, size_t bytes)
{
	/* Locals: stores through dst may alias anything read through lot. */
	const uint8_t *const *windows = lot->windows;
	uint64_t item_bytes = o->item_bytes;
	uint8_t *dst = o->out + lot->at[0] * item_bytes;
	size_t row_bytes = lot->plan->row_bytes;

	for (uint32_t i = 0, n = lot->n; i < n; i++, dst += item_bytes) {
		const uint8_t *src = windows[i] + from.base;

		if (from.by_k)
			src += lot->k[i] * row_bytes;
		transport_copy_racy_bytes(dst, src, bytes);
	}
}

ALWAYS_INLINE void copy_sized(const struct window_lot *lot, const struct window_output *o,
			      struct source from, size_t bytes)
{
	/* Two instances of the loop: the usual one does not read k. */
	if (from.by_k)
		copy_items(lot, o, (struct source){ from.base, true }, bytes);
	else
		copy_items(lot, o, (struct source){ from.base, false }, bytes);
}

static void copy_column(const struct window_lot *lot, const struct window_output *o,
			struct source from, size_t bytes)
{
	/* Redrawn items are few and lie anywhere in the batch. */
	for (uint32_t i = 0; !lot->in_order && i < lot->n; i++) {
		size_t later = from.by_k ? lot->k[i] : 0;

		transport_copy_racy_bytes(
			o->out + lot->at[i] * o->item_bytes,
			lot->windows[i] + from.base + later * lot->plan->row_bytes, bytes);
	}
	if (!lot->in_order)
		return;
	switch (bytes) {
	case 1:
		copy_sized(lot, o, from, 1);
		break;
	case 2:
		copy_sized(lot, o, from, 2);
		break;
	case 4:
		copy_sized(lot, o, from, 4);
		break;
	case 8:
		copy_sized(lot, o, from, 8);
		break;
	case 16:
		copy_sized(lot, o, from, 16);
		break;
	case 32:
		copy_sized(lot, o, from, 32);
		break;
	default:
		copy_sized(lot, o, from, bytes);
	}
}

/* -------- item by item -------- */

/* Copies one value of at least 32 bytes. */
ALWAYS_INLINE void copy_long(uint8_t *dst, const uint8_t *src, size_t bytes)
{
	size_t done = 0;

	for (; bytes - done >= 32; done += 32)
		transport_copy_racy_bytes(dst + done, src + done, 32);
	if (done < bytes) /* some bytes again */
		transport_copy_racy_bytes(dst + bytes - 32, src + bytes - 32, 32);
}

ALWAYS_INLINE void copy_rows_sized(uint8_t *dst, const uint8_t *src, size_t stride, size_t bytes,
				   uint32_t n)
{
	for (uint32_t i = 0; i < n; i++, dst += bytes, src += stride)
		transport_copy_racy_bytes(dst, src, bytes);
}

/* Copies n values of `bytes` each, `stride` bytes apart, to where they lie packed. */
static void copy_rows(uint8_t *dst, const uint8_t *src, size_t stride, size_t bytes, uint32_t n)
{
	switch (bytes) {
	case 1:
		copy_rows_sized(dst, src, stride, 1, n);
		break;
	case 4:
		copy_rows_sized(dst, src, stride, 4, n);
		break;
	case 8:
		copy_rows_sized(dst, src, stride, 8, n);
		break;
	case 16:
		copy_rows_sized(dst, src, stride, 16, n);
		break;
	default:
		for (uint32_t i = 0; i < n; i++, dst += bytes, src += stride)
			if (bytes >= 32)
				copy_long(dst, src, bytes);
			else
				transport_copy_racy_bytes(dst, src, bytes);
	}
}

/* A copy of large values that is made when the source of the next one is known. */
struct pending {
	window_copy_fn copy;
	uint8_t *dst;
	const uint8_t *src;
	size_t bytes; /* 0 = none */
};

static void pending_copy(struct pending *pending, uint8_t *dst, const uint8_t *src, size_t bytes)
{
	if (pending->bytes)
		pending->copy(pending->dst, pending->src, pending->bytes, src);
	pending->dst = dst;
	pending->src = src;
	pending->bytes = bytes;
}

/* One output of one item. */
struct item {
	const uint8_t *values; /* of the output's column, in row 0 of the window */
	size_t row_bytes, bytes;
	uint32_t first; /* row where the anchor's episode begins */
	uint8_t *dst;   /* of the next value */
	struct pending *pending;
};

static void copy_values(struct item *item, uint32_t row, size_t stride, uint32_t n)
{
	const uint8_t *src = item->values + row * item->row_bytes;
	bool large = item->bytes >= WINDOW_LARGE;

	if (!large)
		copy_rows(item->dst, src, stride, item->bytes, n);
	for (uint32_t i = 0; large && i < n; i++)
		pending_copy(item->pending, item->dst + i * item->bytes, src + i * stride,
			     item->bytes);
	item->dst += n * item->bytes;
}

/* Copies the values of the rows [row, row + n); a row before the anchor's episode is replaced by the
   episode's first. */
static void copy_run(struct item *item, uint32_t row, uint32_t n)
{
	uint32_t padded = row < item->first ? item->first - row : 0;

	padded = padded < n ? padded : n;
	copy_values(item, item->first, 0, padded);
	copy_values(item, row + padded, item->row_bytes, n - padded);
}

static void copy_item(const struct window_lot *lot, const struct window_output *o, uint32_t i,
		      struct pending *pending)
{
	const struct window_plan *plan = lot->plan;
	uint32_t next_at = window_next_at(plan->stack, plan->n_step), k = lot->k[i];
	struct item item = { .values = lot->windows[i] + o->offset,
			     .row_bytes = plan->row_bytes,
			     .bytes = o->bytes,
			     .first = lot->first[i],
			     .dst = o->out + lot->at[i] * o->item_bytes,
			     .pending = pending };

	switch (o->kind) {
	case WINDOW_STACK:
		copy_run(&item, 0, plan->stack);
		break;
	case WINDOW_NEXT:
		copy_run(&item, k, plan->stack);
		break;
	case WINDOW_ALL:
		copy_run(&item, 0, next_at);
		copy_run(&item, k, window_all_rows(plan->stack, plan->n_step) - next_at);
		break;
	default:
		copy_run(&item, plan->stack - 1, 1);
	}
}

/* Fetches the column of a small output in all rows of a window. */
static void prefetch_column(const struct window_plan *plan, const struct window_output *o,
			    const uint8_t *window)
{
	const uint8_t *values = window + o->offset;

	for (uint32_t row = 0; row < plan->stack + plan->future; row++, values += plan->row_bytes)
		for (uint32_t at = 0; at < o->bytes; at += WIRE_LINE)
			__builtin_prefetch(values + at, 0, WINDOW_TO_L2);
}

/* -------- what is computed -------- */

static void sum_rewards(const struct window_lot *lot, const struct window_output *o)
{
	const struct window_plan *plan = lot->plan;

	for (uint32_t i = 0; i < lot->n; i++) {
		const uint8_t *src =
			lot->windows[i] + o->offset + (size_t)(plan->stack - 1) * plan->row_bytes;
		uint8_t *dst = o->out + lot->at[i] * o->item_bytes;
		double sum = 0, factor = 1, full;
		float single;

		for (uint32_t j = 0; j < lot->k[i]; j++, src += plan->row_bytes) {
			if (o->dtype == DTYPE_F64) {
				transport_copy_racy_bytes(&full, src, sizeof(full));
			} else {
				transport_copy_racy_bytes(&single, src, sizeof(single));
				full = (double)single;
			}
			sum += factor * full;
			factor *= plan->gamma;
		}
		single = (float)sum;
		if (o->dtype == DTYPE_F64)
			memcpy(dst, &sum, sizeof(sum));
		else
			memcpy(dst, &single, sizeof(single));
	}
}

static void store_words(const struct window_lot *lot, const struct window_output *o,
			const void *words)
{
	const uint8_t *src = words;

	if (lot->in_order && o->item_bytes == sizeof(uint32_t)) {
		memcpy(o->out + lot->at[0] * sizeof(uint32_t), src, lot->n * sizeof(uint32_t));
		return;
	}
	for (uint32_t i = 0; i < lot->n; i++)
		memcpy(o->out + lot->at[i] * o->item_bytes, src + i * sizeof(uint32_t),
		       sizeof(uint32_t));
}

/* -------- a lot -------- */

void window_copy_small(const struct window_lot *lot, const struct window_output *o)
{
	const struct window_plan *plan = lot->plan;
	size_t row = plan->row_bytes;
	bool same_k = plan->n_step == 1;
	struct source anchor = { (plan->stack - 1) * row + o->offset, false };
	struct source next = { anchor.base + (same_k ? row : 0), !same_k };
	struct source last = { anchor.base - (same_k ? 0 : row), !same_k };

	switch (o->kind) {
	case WINDOW_ANCHOR:
	case WINDOW_STACK: /* of one row */
		copy_column(lot, o, anchor, o->bytes);
		break;
	case WINDOW_NEXT:
		copy_column(lot, o, next, o->bytes);
		break;
	case WINDOW_ALL: /* by item */
		break;
	case WINDOW_RETURN:
		if (same_k)
			copy_column(lot, o, anchor, o->bytes);
		else
			sum_rewards(lot, o);
		break;
	case WINDOW_LAST:
		copy_column(lot, o, last, o->bytes);
		break;
	case WINDOW_DISCOUNT:
		store_words(lot, o, lot->discount);
		break;
	case WINDOW_STEPS:
		store_words(lot, o, lot->k);
		break;
	case WINDOW_VERSION:
		anchor.base = (plan->stack - 1) * row + plan->tail_off +
			      offsetof(struct row_tail, policy_version);
		copy_column(lot, o, anchor, sizeof(uint32_t));
		break;
	}
}

void window_copy_by_item(const struct window_lot *lot, bool stream, bool prefetch)
{
	const struct window_plan *plan = lot->plan;
	struct pending pending = { .copy = window_copy_of(stream) };

	for (uint32_t i = 0; i < lot->n; i++)
		for (uint32_t c = 0; c < plan->n_outputs; c++) {
			const struct window_output *o = &plan->outputs[c];

			if (!window_is_by_item(plan, o))
				continue;
			if (prefetch && o->bytes < WINDOW_LARGE && i + 1 < lot->n)
				prefetch_column(plan, o, lot->windows[i + 1]);
			copy_item(lot, o, i, &pending);
		}
	pending_copy(&pending, NULL, pending.src, 0);
}

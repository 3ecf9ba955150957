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

/*
 * Returns the row of item i's window that row p of an output of several rows takes; a row before
 * the anchor's episode is replaced by the episode's first.
 */
ALWAYS_INLINE uint32_t source_row(const struct window_lot *lot, enum window_kind kind, uint32_t i,
				  uint32_t p)
{
	const struct window_plan *plan = lot->plan;
	uint32_t next_at = window_next_at(plan->stack, plan->n_step);
	uint32_t row = p;

	if (kind == WINDOW_NEXT)
		row = p + lot->k[i];
	else if (kind == WINDOW_ALL && p >= next_at)
		row = p - next_at + lot->k[i];
	return row < lot->first[i] ? lot->first[i] : row;
}

ALWAYS_INLINE void copy_item_rows(const struct window_lot *lot, const struct window_output *o,
				  uint32_t i, window_copy_fn copy)
{
	const struct window_plan *plan = lot->plan;
	uint32_t rows = o->kind == WINDOW_STACK || o->kind == WINDOW_NEXT ? plan->stack : 1;
	uint8_t *dst = o->out + lot->at[i] * o->item_bytes;

	if (o->kind == WINDOW_ALL)
		rows = window_all_rows(plan->stack, plan->n_step);
	for (uint32_t p = 0; p < rows; p++, dst += o->bytes) {
		uint32_t row = source_row(lot, o->kind, i, p);

		copy(dst, lot->windows[i] + (size_t)row * plan->row_bytes + o->offset, o->bytes);
	}
}

static void copy_plain(uint8_t *dst, const uint8_t *src, size_t n)
{
	transport_copy_racy_bytes(dst, src, n);
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
		copy_column(lot, o, anchor, o->bytes);
		break;
	case WINDOW_STACK:
	case WINDOW_NEXT:
	case WINDOW_ALL:
		if (o->kind == WINDOW_ALL || plan->stack > 1)
			for (uint32_t i = 0; i < lot->n; i++)
				copy_item_rows(lot, o, i, copy_plain);
		else
			copy_column(lot, o, o->kind == WINDOW_STACK ? anchor : next, o->bytes);
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

void window_copy_large(const struct window_lot *lot, bool stream)
{
	const struct window_plan *plan = lot->plan;
	window_copy_fn copy = stream ? window_stream_copy() : copy_plain;

	for (uint32_t i = 0; i < lot->n; i++)
		for (uint32_t c = 0; c < plan->n_outputs; c++)
			if (window_is_large(&plan->outputs[c]))
				copy_item_rows(lot, &plan->outputs[c], i, copy);
}

/*
 * The hot path of sampling. The row tails give, per item, the steps of the return and the first
 * row of the episode. Then each small column is copied in a loop specialised for its size, and
 * large columns (frames) item by item, so that rows shared by two arrays are cached for the
 * second copy.
 */
#include "ds/window/window.h"

#include "ds/window/stream.h"

#include "transport/barrier.h"

#include "base/bits.h"

#include <math.h>
#include <string.h>

#define LOT 32            /* items per lot: their rows stay in the L1 cache and TLB */
#define LARGE_BYTES 512   /* columns of at least this size are copied item by item */
#define SMALL_WINDOW 1024 /* windows up to this size are prefetched whole */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

struct lot {
	const struct window_plan *plan;
	const uint8_t *const *windows;
	const uint32_t *at;
	uint32_t n;
	bool in_order;       /* at[i] = at[0] + i */
	uint32_t k[LOT];     /* steps of the return */
	uint32_t first[LOT]; /* row of the window where the anchor's episode begins, or 0 */
	float discount[LOT];
};

/* -------- tails -------- */

static uint64_t tail_word(const struct window_plan *plan, const uint8_t *window, uint32_t row,
			  size_t member)
{
	const uint8_t *tail = window + (size_t)row * plan->row_bytes + plan->tail_off;

	return rword64_load_relaxed((const void *)(tail + member));
}

static uint32_t row_flags(const struct window_plan *plan, const uint8_t *window, uint32_t row)
{
	return (uint32_t)(tail_word(plan, window, row, 8) >> 16) & 0xffffu;
}

static uint32_t row_step(const struct window_plan *plan, const uint8_t *window, uint32_t row)
{
	return (uint32_t)(tail_word(plan, window, row, 0) >> 32);
}

/* How a return continues after a row with `flags` followed by a row with `next`. */
enum ending { GOES_ON, ENDS_HERE, ENDS_BEFORE, TERMINATES };

static enum ending step_ending(const struct window_plan *plan, uint32_t flags, uint32_t next)
{
	if (flags & ROW_TERMINATED)
		return TERMINATES;
	if (next & ROW_FINAL)
		return ENDS_HERE;
	if (flags & ROW_TRUNCATED || next & WINDOW_STOPS)
		return plan->has_obs ? ENDS_BEFORE : ENDS_HERE;
	return GOES_ON;
}

/* Counts the steps of the return; *terminated_out: it ends in a terminated step. */
static uint32_t count_steps(const struct window_plan *plan, const uint8_t *window,
			    bool *terminated_out)
{
	uint32_t anchor = plan->stack - 1;
	uint32_t flags = row_flags(plan, window, anchor);

	*terminated_out = false;
	for (uint32_t i = 0; i < plan->n_step; i++) {
		bool behind = i < plan->future;
		uint32_t next = behind ? row_flags(plan, window, anchor + i + 1) : 0;
		enum ending ending = step_ending(plan, flags, next);

		*terminated_out = ending == TERMINATES;
		if (ending == ENDS_BEFORE)
			return i ? i : 1; /* 0: rows of no item: torn or overwritten */
		if (ending != GOES_ON)
			return i + 1;
		flags = next;
	}
	return plan->n_step;
}

/* n_step 1: the return of an item has exactly one step. */
static void judge_single(struct lot *lot)
{
	const struct window_plan *plan = lot->plan;
	float gamma = (float)plan->gamma;

	for (uint32_t i = 0; i < lot->n; i++) {
		uint32_t flags = row_flags(plan, lot->windows[i], plan->stack - 1);

		lot->k[i] = 1;
		lot->discount[i] = flags & ROW_TERMINATED ? 0 : gamma;
	}
}

static void judge_returns(struct lot *lot)
{
	const struct window_plan *plan = lot->plan;

	for (uint32_t i = 0; i < lot->n; i++) {
		bool terminated;

		lot->k[i] = count_steps(plan, lot->windows[i], &terminated);
		lot->discount[i] = terminated ? 0 : (float)pow(plan->gamma, lot->k[i]);
	}
}

static void judge(struct lot *lot)
{
	const struct window_plan *plan = lot->plan;
	uint32_t past = plan->stack - 1;

	if (plan->n_step == 1)
		judge_single(lot);
	else
		judge_returns(lot);
	for (uint32_t i = 0; i < lot->n; i++) {
		uint32_t step = past ? row_step(plan, lot->windows[i], past) : 0;

		lot->first[i] = step < past ? past - step : 0;
	}
}

/* -------- small columns, one at a time -------- */

/* Source of item i: windows[i] + base, k[i] rows later if by_k. */
struct source {
	size_t base;
	bool by_k;
};

ALWAYS_INLINE void copy_items(const struct lot *lot, const struct window_output *o,
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

/* Redrawn items are few and lie anywhere in the batch. */
static void copy_scattered(const struct lot *lot, const struct window_output *o, struct source from,
			   size_t bytes)
{
	for (uint32_t i = 0; i < lot->n; i++) {
		uint32_t later = from.by_k ? lot->k[i] : 0;
		const uint8_t *src = lot->windows[i] + from.base;

		transport_copy_racy_bytes(o->out + lot->at[i] * o->item_bytes,
					  src + (size_t)later * lot->plan->row_bytes, bytes);
	}
}

ALWAYS_INLINE void copy_sized(const struct lot *lot, const struct window_output *o,
			      struct source from, size_t bytes)
{
	/* Two instances of the loop: the usual one does not read k. */
	if (from.by_k)
		copy_items(lot, o, (struct source){ from.base, true }, bytes);
	else
		copy_items(lot, o, (struct source){ from.base, false }, bytes);
}

static void copy_column(const struct lot *lot, const struct window_output *o, struct source from,
			size_t bytes)
{
	if (!lot->in_order) {
		copy_scattered(lot, o, from, bytes);
		return;
	}
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

/* Row of the window for place p of an output of several rows. */
ALWAYS_INLINE uint32_t source_row(const struct lot *lot, enum window_kind kind, uint32_t i,
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

static uint32_t output_rows(const struct window_plan *plan, enum window_kind kind)
{
	if (kind == WINDOW_ALL)
		return window_all_rows(plan->stack, plan->n_step);
	return kind == WINDOW_STACK || kind == WINDOW_NEXT ? plan->stack : 1;
}

ALWAYS_INLINE void copy_item_rows(const struct lot *lot, const struct window_output *o, uint32_t i,
				  window_copy_fn copy)
{
	uint32_t rows = output_rows(lot->plan, o->kind);
	uint8_t *dst = o->out + lot->at[i] * o->item_bytes;

	for (uint32_t p = 0; p < rows; p++, dst += o->bytes) {
		uint32_t row = source_row(lot, o->kind, i, p);

		copy(dst, lot->windows[i] + (size_t)row * lot->plan->row_bytes + o->offset,
		     o->bytes);
	}
}

static void copy_plain(uint8_t *dst, const uint8_t *src, size_t n)
{
	transport_copy_racy_bytes(dst, src, n);
}

static void copy_rows(const struct lot *lot, const struct window_output *o)
{
	for (uint32_t i = 0; i < lot->n; i++)
		copy_item_rows(lot, o, i, copy_plain);
}

/* -------- what is computed -------- */

static double reward_at(const struct window_output *o, const uint8_t *src)
{
	float single;
	double full;

	if (o->dtype == DTYPE_F64) {
		transport_copy_racy_bytes(&full, src, sizeof(full));
		return full;
	}
	transport_copy_racy_bytes(&single, src, sizeof(single));
	return (double)single;
}

static void sum_rewards(const struct lot *lot, const struct window_output *o)
{
	const struct window_plan *plan = lot->plan;

	for (uint32_t i = 0; i < lot->n; i++) {
		const uint8_t *src =
			lot->windows[i] + o->offset + (size_t)(plan->stack - 1) * plan->row_bytes;
		uint8_t *dst = o->out + lot->at[i] * o->item_bytes;
		double sum = 0, factor = 1;
		float single;

		for (uint32_t j = 0; j < lot->k[i]; j++, src += plan->row_bytes) {
			sum += factor * reward_at(o, src);
			factor *= plan->gamma;
		}
		single = (float)sum;
		if (o->dtype == DTYPE_F64)
			memcpy(dst, &sum, sizeof(sum));
		else
			memcpy(dst, &single, sizeof(single));
	}
}

static void store_words(const struct lot *lot, const struct window_output *o, const void *words)
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

/* -------- a batch -------- */

static bool is_large(const struct window_output *o)
{
	return o->bytes >= LARGE_BYTES && o->kind <= WINDOW_ALL;
}

static void gather_small(const struct lot *lot, const struct window_output *o)
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
			copy_rows(lot, o);
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

static void gather_large(const struct lot *lot, window_copy_fn copy)
{
	const struct window_plan *plan = lot->plan;

	for (uint32_t i = 0; i < lot->n; i++)
		for (uint32_t c = 0; c < plan->n_outputs; c++)
			if (is_large(&plan->outputs[c]))
				copy_item_rows(lot, &plan->outputs[c], i, copy);
}

/* Byte range of a window that the outputs need. */
static void needed_bytes(const struct window_plan *plan, size_t *first_out, size_t *end_out)
{
	size_t anchor = (plan->stack - 1) * (size_t)plan->row_bytes;
	size_t last = anchor + plan->n_step * (size_t)plan->row_bytes;
	size_t first = anchor + plan->tail_off, end = first + sizeof(uint64_t[2]);

	if (plan->n_step > 1) /* the flags of every row of the return */
		end = anchor + plan->tail_off + plan->future * (size_t)plan->row_bytes + 16;
	for (uint32_t c = 0; c < plan->n_outputs; c++) {
		const struct window_output *o = &plan->outputs[c];
		size_t from = o->kind == WINDOW_STACK || o->kind == WINDOW_ALL ? 0 : anchor;
		bool next = o->kind == WINDOW_NEXT || o->kind == WINDOW_ALL;
		size_t to = next ? last : last - plan->row_bytes;

		if (o->kind > WINDOW_LAST)
			continue;
		first = min_u64(first, from + o->offset);
		end = max_u64(end, to + o->offset + o->bytes);
	}
	*first_out = first;
	*end_out = end;
}

static void prefetch_lines(const uint8_t *from, const uint8_t *end)
{
	for (from -= (uintptr_t)from & (WIRE_LINE - 1); from < end; from += WIRE_LINE)
		__builtin_prefetch(from);
}

/* Byte range to prefetch of a window, and whether it has large columns. */
struct reach {
	size_t first, end;
	bool whole, has_large;
};

static struct reach find_reach(const struct window_plan *plan, size_t n)
{
	struct reach r = { .has_large = false };

	if (n > 1) /* a single window is copied before a prefetch could help */
		needed_bytes(plan, &r.first, &r.end);
	r.whole = r.end - r.first <= SMALL_WINDOW;
	for (uint32_t c = 0; c < plan->n_outputs; c++)
		r.has_large |= is_large(&plan->outputs[c]);
	return r;
}

/* The hardware prefetcher streams long rows, but not their tails. */
static void prefetch_tails(const struct window_plan *plan, const uint8_t *window)
{
	for (uint32_t row = plan->stack - 1; row < plan->stack + plan->future; row++)
		__builtin_prefetch(window + (size_t)row * plan->row_bytes + plan->tail_off);
}

static void prefetch_windows(const struct window_plan *plan, const struct reach *reach,
			     const uint8_t *const *windows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (reach->whole)
			prefetch_lines(windows[i] + reach->first, windows[i] + reach->end);
		else
			prefetch_tails(plan, windows[i]);
	}
}

void window_prefetch(const struct window_plan *plan, const uint8_t *const *windows, size_t n)
{
	struct reach reach = find_reach(plan, n);

	prefetch_windows(plan, &reach, windows, n);
}

static bool is_in_order(const uint32_t *at, uint32_t n)
{
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < n; i++)
		wrong |= at[i] ^ (at[0] + i);
	return wrong == 0;
}

/*
 * Gathers a lot and prefetches the windows of the next one, some after each column: the few line
 * fill buffers of a core refill while it copies cached rows.
 */
static void gather_lot(struct lot *lot, const struct reach *reach, size_t ahead,
		       window_copy_fn large)
{
	const struct window_plan *plan = lot->plan;
	const uint8_t *const *next = lot->windows + lot->n;
	size_t part = div_up(ahead, plan->n_outputs);

	lot->in_order = is_in_order(lot->at, lot->n);
	judge(lot);
	for (uint32_t c = 0; c < plan->n_outputs; c++) {
		size_t now = min_u64(part, ahead);

		prefetch_windows(plan, reach, next, now);
		next += now;
		ahead -= now;
		if (!is_large(&plan->outputs[c]))
			gather_small(lot, &plan->outputs[c]);
	}
	if (reach->has_large)
		gather_large(lot, large);
}

void window_gather(const struct window_plan *plan, const uint8_t *const *windows,
		   const uint32_t *at, size_t n)
{
	window_copy_fn large = plan->stream_stores ? window_stream_copy() : copy_plain;
	struct reach reach = find_reach(plan, n);
	struct lot lot;

	lot.plan = plan; /* the other members are set for each lot */
	prefetch_windows(plan, &reach, windows, min_u64(n, LOT));
	for (size_t done = 0; done < n; done += lot.n) {
		lot.windows = windows + done;
		lot.at = at + done;
		lot.n = (uint32_t)min_u64(n - done, LOT);
		gather_lot(&lot, &reach, min_u64(n - done - lot.n, LOT), large);
	}
	if (plan->stream_stores)
		window_stream_end();
}

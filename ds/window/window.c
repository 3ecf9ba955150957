/*
 * The hot path of sampling: lot by lot, plans what each output takes from which row
 * (ds/window/plan.h), then copies (ds/window/copy.h), while the rows of the next lot are prefetched.
 */
#include "ds/window/window.h"

#include "ds/window/copy.h"
#include "ds/window/plan.h"

#include "base/bits.h"

enum { SMALL_WINDOW = 1024 }; /* windows up to this size are prefetched whole */

/* *first_out, *end_out: the byte range of a window that its outputs, and the plan, need. */
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

/* Byte range to prefetch of a window, and whether it has outputs that are copied item by item. */
struct reach {
	size_t first, end;
	bool whole, by_item;
};

static struct reach find_reach(const struct window_plan *plan, size_t n)
{
	struct reach r = { .by_item = false };

	if (n > 1) /* a single window is copied before a prefetch could help */
		needed_bytes(plan, &r.first, &r.end);
	r.whole = r.end - r.first <= SMALL_WINDOW;
	for (uint32_t c = 0; c < plan->n_outputs; c++)
		r.by_item |= window_is_by_item(plan, &plan->outputs[c]);
	return r;
}

static void prefetch_windows(const struct window_plan *plan, const struct reach *reach,
			     const uint8_t *const *windows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const uint8_t *at = windows[i] + reach->first;

		for (at -= (uintptr_t)at & (WIRE_LINE - 1);
		     reach->whole && at < windows[i] + reach->end; at += WIRE_LINE)
			__builtin_prefetch(at, 0, WINDOW_TO_L2);
		/* The hardware prefetcher streams long rows, but not their tails. */
		for (uint32_t row = plan->stack - 1;
		     !reach->whole && row < plan->stack + plan->future; row++)
			__builtin_prefetch(windows[i] + (size_t)row * plan->row_bytes +
					   plan->tail_off);
	}
}

void window_prefetch(const struct window_plan *plan, const uint8_t *const *windows, size_t n)
{
	struct reach reach = find_reach(plan, n);

	prefetch_windows(plan, &reach, windows, n);
}

/*
 * Plans a lot and copies its outputs. Meanwhile prefetches the next `ahead` windows, some before
 * each column, while it copies cached rows.
 */
static void gather_lot(struct window_lot *lot, const struct reach *reach, size_t ahead)
{
	const struct window_plan *plan = lot->plan;
	const uint8_t *const *next = lot->windows + lot->n;
	size_t part = div_up(ahead, plan->n_outputs);

	window_plan_lot(lot);
	for (uint32_t c = 0; c < plan->n_outputs; c++) {
		size_t now = min_u64(part, ahead);

		prefetch_windows(plan, reach, next, now);
		next += now;
		ahead -= now;
		if (!window_is_by_item(plan, &plan->outputs[c]))
			window_copy_small(lot, &plan->outputs[c]);
	}
	if (reach->by_item)
		window_copy_by_item(lot, plan->stream_stores, !reach->whole);
}

void window_gather(const struct window_plan *plan, const uint8_t *const *windows,
		   const uint32_t *at, size_t n)
{
	struct reach reach = find_reach(plan, n);
	size_t most = reach.whole ? WINDOW_LOT : WINDOW_LOT_LONG;
	struct window_lot lot;

	lot.plan = plan; /* the other members are set for each lot */
	prefetch_windows(plan, &reach, windows, min_u64(n, most));
	for (size_t done = 0; done < n; done += lot.n) {
		lot.windows = windows + done;
		lot.at = at + done;
		lot.n = (uint32_t)min_u64(n - done, most);
		gather_lot(&lot, &reach, min_u64(n - done - lot.n, most));
	}
	if (plan->stream_stores)
		window_stream_end();
}

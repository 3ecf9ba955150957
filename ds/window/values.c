#include "ds/window/values.h"

#include "ds/window/copy.h"
#include "ds/window/plan.h"

#include "base/bits.h"

bool window_is_listed(const struct window_output *o)
{
	return o->bytes >= WINDOW_LARGE && (o->kind <= WINDOW_ALL || o->kind == WINDOW_LAST);
}

uint32_t window_values_of(const struct window_plan *plan, const struct window_output *o)
{
	switch (o->kind) {
	case WINDOW_STACK:
	case WINDOW_NEXT:
		return plan->stack;
	case WINDOW_ALL:
		return window_all_rows(plan->stack, plan->n_step);
	default:
		return 1;
	}
}

/* The row of the window from which value p of an item comes, unless it is before the anchor's episode. */
static uint32_t value_row(const struct window_plan *plan, enum window_kind kind, uint32_t k,
			  uint32_t p)
{
	uint32_t next_at = window_next_at(plan->stack, plan->n_step);

	switch (kind) {
	case WINDOW_STACK:
		return p;
	case WINDOW_NEXT:
		return k + p;
	case WINDOW_ALL:
		return p < next_at ? p : k + p - next_at;
	case WINDOW_LAST:
		return plan->stack + k - 2;
	default:
		return plan->stack - 1;
	}
}

static void list_item(const struct window_lot *lot, const struct window_output *o, uint32_t i,
		      struct window_value *out)
{
	const struct window_plan *plan = lot->plan;
	uint32_t n = window_values_of(plan, o);
	const uint8_t *values = lot->windows[i] + o->offset;
	uint8_t *dst = o->out + lot->at[i] * o->item_bytes;

	for (uint32_t p = 0; p < n; p++, dst += o->bytes) {
		uint64_t row = max_u64(value_row(plan, o->kind, lot->k[i], p), lot->first[i]);

		out[p] = (struct window_value){
			(uint64_t)(uintptr_t)(values + row * plan->row_bytes),
			(uint64_t)(uintptr_t)dst,
		};
	}
}

void window_list_values(const struct window_plan *plan, const uint8_t *const *windows,
			const uint32_t *at, size_t n, struct window_value *const *lists)
{
	struct window_lot lot;

	lot.plan = plan; /* the other members are set for each lot */
	for (size_t done = 0; done < n; done += lot.n) {
		lot.windows = windows + done;
		lot.at = at + done;
		lot.n = (uint32_t)min_u64(n - done, WINDOW_LOT);
		window_prefetch(plan, lot.windows, lot.n);
		window_plan_lot(&lot);
		for (uint32_t c = 0; c < plan->n_outputs; c++) {
			const struct window_output *o = &plan->outputs[c];
			uint32_t each = window_values_of(plan, o);

			for (uint32_t i = 0; i < lot.n; i++)
				list_item(&lot, o, i, lists[c] + (done + i) * each);
		}
	}
}

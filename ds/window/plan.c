/* plan.c - reads the row tails of a lot: steps of the returns, and where episodes begin. */
#include "ds/window/plan.h"

#include "transport/barrier.h"

#include <math.h>

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

/*
 * Returns the steps of the window's return: n_step, or fewer where the episode ends.
 * *terminated_out: it ends in a terminated step.
 */
static uint32_t count_steps(const struct window_plan *plan, const uint8_t *window,
			    bool *terminated_out)
{
	uint32_t anchor = plan->stack - 1;
	uint32_t flags = row_flags(plan, window, anchor);

	*terminated_out = false;
	for (uint32_t i = 0; i < plan->n_step; i++) {
		uint32_t next = i < plan->future ? row_flags(plan, window, anchor + i + 1) : 0;

		*terminated_out = (flags & ROW_TERMINATED) != 0;
		if (*terminated_out || next & ROW_FINAL)
			return i + 1;
		if (flags & ROW_TRUNCATED || next & WINDOW_STOPS) {
			/* It ends one step before if a later row has to be the next observation. 0: rows
			   of no item: torn or overwritten. */
			if (plan->has_obs)
				return i ? i : 1;
			return i + 1;
		}
		flags = next;
	}
	return plan->n_step;
}

void window_plan_lot(struct window_lot *lot)
{
	const struct window_plan *plan = lot->plan;
	/* Locals: stores to the lot may alias anything read through plan. */
	uint32_t past = plan->stack - 1, n = lot->n, wrong = 0;
	bool single = plan->n_step == 1; /* its return has one step always */
	float gamma = (float)plan->gamma;

	for (uint32_t i = 0; i < n; i++)
		wrong |= lot->at[i] ^ (lot->at[0] + i);
	lot->in_order = wrong == 0;
	for (uint32_t i = 0; single && i < n; i++) {
		uint32_t flags = row_flags(plan, lot->windows[i], past);

		lot->k[i] = 1;
		lot->discount[i] = flags & ROW_TERMINATED ? 0 : gamma;
	}
	for (uint32_t i = 0; !single && i < n; i++) {
		bool terminated;

		lot->k[i] = count_steps(plan, lot->windows[i], &terminated);
		lot->discount[i] = terminated ? 0 : (float)pow(plan->gamma, lot->k[i]);
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t step = past ? (uint32_t)(tail_word(plan, lot->windows[i], past, 0) >> 32)
				     : 0;

		lot->first[i] = step < past ? past - step : 0;
	}
}

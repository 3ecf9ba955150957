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
static void judge_single(struct window_lot *lot)
{
	const struct window_plan *plan = lot->plan;
	float gamma = (float)plan->gamma;

	for (uint32_t i = 0; i < lot->n; i++) {
		uint32_t flags = row_flags(plan, lot->windows[i], plan->stack - 1);

		lot->k[i] = 1;
		lot->discount[i] = flags & ROW_TERMINATED ? 0 : gamma;
	}
}

static void judge_returns(struct window_lot *lot)
{
	const struct window_plan *plan = lot->plan;

	for (uint32_t i = 0; i < lot->n; i++) {
		bool terminated;

		lot->k[i] = count_steps(plan, lot->windows[i], &terminated);
		lot->discount[i] = terminated ? 0 : (float)pow(plan->gamma, lot->k[i]);
	}
}

static bool is_in_order(const uint32_t *at, uint32_t n)
{
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < n; i++)
		wrong |= at[i] ^ (at[0] + i);
	return wrong == 0;
}

void window_plan_lot(struct window_lot *lot)
{
	const struct window_plan *plan = lot->plan;
	uint32_t past = plan->stack - 1;

	lot->in_order = is_in_order(lot->at, lot->n);
	if (plan->n_step == 1)
		judge_single(lot);
	else
		judge_returns(lot);
	for (uint32_t i = 0; i < lot->n; i++) {
		uint32_t step = past ? row_step(plan, lot->windows[i], past) : 0;

		lot->first[i] = step < past ? past - step : 0;
	}
}

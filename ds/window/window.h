/*
 * Window: gathers the columns of a batch from the rows of its items.
 *
 *   rows of an item:   [ past = stack-1 | anchor | future ]      (wire/table_layout.h)
 *
 *   PLAIN     the column of the anchor
 *   OBS       `stack` rows that end at the anchor; rows before the first step of the episode are
 *             replaced by that first step; next_<name>: the same k steps later
 *   REWARD    sum of gamma^i r_i over the k steps of the return
 *   NEXT      the column stored with the last step of the return
 *   discount  gamma^k, or 0 if the return ended in a terminated step
 *
 * k = n_step, or fewer where the episode ends:
 *
 *   terminated                         includes the last reward; later rows do not count
 *   truncated, then a ROW_FINAL        includes the last reward; bootstraps from that observation
 *   truncated without one, or the      next observations are rows: ends one step earlier, and
 *   rows just stop (filler, ROW_FIRST) bootstraps from the observation of the last step;
 *                                      next observations are stored: includes the last reward
 *
 * Rows may be overwritten during the copy. All reads go through transport/barrier.h. Any value
 * read selects only among rows of the same window, and the caller discards the item unless its
 * leaf is unchanged afterwards (rule 5).
 */
#ifndef RLV_DS_WINDOW_WINDOW_H
#define RLV_DS_WINDOW_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/table_layout.h"

#include "base/error.h"

enum window_kind {
	WINDOW_ANCHOR,   /* out[i] = column of the anchor */
	WINDOW_STACK,    /* out[i][s] = stack at the anchor */
	WINDOW_NEXT,     /* out[i][s] = stack k steps later */
	WINDOW_ALL,      /* out[i][w] = stack at rows 0.., next stack at rows window_next_at().. */
	WINDOW_RETURN,   /* out[i] = n-step return, in the column's dtype (f32, f64) */
	WINDOW_LAST,     /* out[i] = column of the return's last step */
	WINDOW_DISCOUNT, /* out[i] = f32 */
	WINDOW_STEPS,    /* out[i] = u32 k */
	WINDOW_VERSION,  /* out[i] = u32 policy version of the anchor */
};

/* One output array: item i starts at out + i * item_bytes. */
struct window_output {
	enum window_kind kind;
	uint32_t offset; /* of the column in the row */
	uint32_t bytes;  /* of one step of the column */
	uint16_t dtype;
	uint8_t *out;
	uint64_t item_bytes;
};

struct window_plan {
	uint32_t row_bytes, tail_off;
	uint32_t stack, future; /* of the view: anchor is row stack-1 of the window */
	uint32_t n_step;        /* of the sampler: at most the view's */
	bool has_obs;           /* next observations come from later rows: future >= n_step */
	bool stream_stores;     /* batch exceeds the L2 cache: use non-temporal stores */
	double gamma;
	uint32_t n_outputs;
	const struct window_output *outputs;
};

/*
 * Returns at which row of a WINDOW_ALL item its next stack begins, of window_all_rows() in all. The
 * two stacks share rows if every return has the same length or they do not overlap anyway.
 */
static inline uint32_t window_next_at(uint32_t stack, uint32_t n_step)
{
	return n_step == 1 || n_step >= stack ? n_step : stack;
}

static inline uint32_t window_all_rows(uint32_t stack, uint32_t n_step)
{
	return window_next_at(stack, n_step) + stack;
}

/*
 * Prefetches the rows of n windows. window_gather prefetches the windows of the next lot itself; a
 * caller with other work in between may call this first. Cost: local. Thread: any.
 */
void window_prefetch(const struct window_plan *plan, const uint8_t *const *windows, size_t n);

/*
 * Gathers items [0, n): windows[i] points to the first row of window i (in the pool or in a
 * buffer, 8-aligned), at[i] is its index in the output arrays. Cost: local. Thread: any.
 */
void window_gather(const struct window_plan *plan, const uint8_t *const *windows,
		   const uint32_t *at, size_t n);

#define WINDOW_STOPS (ROW_FIRST | ROW_FILLER) /* rows before it end without a final row */

/*
 * True if the step of row_flags[0] has a return, so that it can be an item; reads the next row's
 * flags, too. has_next: a column is OBS.
 */
static inline bool window_has_return(const uint16_t *row_flags, bool has_next)
{
	if (row_flags[0] & (ROW_FINAL | ROW_FILLER))
		return false;
	if (!has_next || row_flags[0] & ROW_TERMINATED || row_flags[1] & ROW_FINAL)
		return true;
	return !(row_flags[0] & ROW_TRUNCATED) && !(row_flags[1] & WINDOW_STOPS);
}

/*
 * True if the step of row_flags[0], which has a return, is the last step of its episode that has
 * one; reads the flags of two more rows. has_next: a column is OBS.
 */
static inline bool window_is_last(const uint16_t *row_flags, bool has_next)
{
	if (row_flags[0] & (ROW_TERMINATED | ROW_TRUNCATED))
		return true;
	if (row_flags[1] & (ROW_FINAL | WINDOW_STOPS))
		return true;
	return !window_has_return(row_flags + 1, has_next);
}

/*
 * True if the window that ends at a new row is an item of the view. For the writer at publish.
 * With a period the items of an episode are the windows that begin at a multiple of it, and one
 * that ends with the episode:
 *
 *   stack 8, period 4    step  0   4   8   12  16
 *                              |------|
 *                                  |------|
 *                                      |------|
 *                                         |------|    ends with the last step, 18
 *
 * An episode shorter than the stack has only the last one, which begins with padding. has_next:
 * some column has role OBS. Thread: any.
 */
struct window_flags {
	const uint16_t *flags; /* row flags of the window, oldest first */
	const uint32_t *steps; /* step in the episode of each row */
};

static inline bool window_is_item(const struct view_desc *view, const struct window_flags *rows,
				  bool has_next)
{
	uint32_t anchor = view->window - 1 - view->future;
	uint32_t past = view->stack - 1u;

	if (rows->flags[view->window - 1] & ROW_REPEATED ||
	    !window_has_return(rows->flags + anchor, has_next))
		return false;
	if (view->period <= 1 || window_is_last(rows->flags + anchor, has_next))
		return true;
	return rows->steps[anchor] >= past &&
	       (rows->steps[anchor] - past) % view->period == 0; /* one division per step */
}

#endif

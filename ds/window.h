/*
 * Window: columns of a batch from the rows of its items.
 *
 *   rows of an item:   [ past = stack-1 | anchor | future ]      (wire/table_layout.h)
 *
 *   RLV_PLAIN   the anchor's
 *   RLV_OBS     `stack` rows that end at the anchor; rows before the episode's first step are
 *               replaced by that first step's; and next_<name>: the same k steps later
 *   RLV_REWARD  sum of gamma^i r_i over the k steps of the return
 *   RLV_NEXT    the one stored with the last step of the return
 *   discount    gamma^k, or 0 when the return ended in a terminated step
 *
 * k = n_step, or fewer where the episode ends: at a terminated step (its reward is in), at a truncated
 * step followed by its ROW_FINAL observation (reward in, bootstraps from it), or before a truncated step without one
 * (bootstraps from its own observation).
 *
 * Rows may be overwritten while they are copied. All reads go through transport_copy_racy; what is read
 * chooses only among rows of the same window, and the caller throws the item away unless its leaf is
 * unchanged afterwards (rule 5).
 */
#ifndef RLV_DS_WINDOW_H
#define RLV_DS_WINDOW_H

#include "wire/table_layout.h"

#include "base/error.h"

enum window_kind {
	WINDOW_ANCHOR,   /* out[i] = column of the anchor */
	WINDOW_STACK,    /* out[i][s] = stack at the anchor */
	WINDOW_NEXT,     /* out[i][s] = stack k steps later */
	WINDOW_ALL,      /* out[i][w] = every row of the window */
	WINDOW_RETURN,   /* out[i] = n-step return, in the column's dtype */
	WINDOW_LAST,     /* out[i] = column of the return's last step */
	WINDOW_DISCOUNT, /* out[i] = f32 */
	WINDOW_STEPS,    /* out[i] = u32 k */
	WINDOW_VERSION,  /* out[i] = u32 policy version of the anchor */
};

/* One output array: item i's part is at out + i * item_bytes. */
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
	uint32_t n_step;
	bool has_obs; /* some output is WINDOW_NEXT or WINDOW_ALL: the return needs a next row */
	bool stream_stores; /* batch exceeds the L2 cache: use non-temporal stores */
	double gamma;
	uint32_t n_outputs;
	const struct window_output *outputs;
};

/*
 * Gathers items [0, n): windows[i] points to the first row of item i's window (in the pool or in a
 * buffer), at[i] is its index in the output arrays. gen: where not NULL, ok_out[i] = all row trailers carry gen[i].
 * Prefetches across the batch. Cost: local.
 */
void window_gather(const struct window_plan *plan, const uint8_t *const *windows,
		   const uint32_t *at, size_t n);

/* Does the anchor of this window stand for an item of the view? Used by the writer at publish. */
struct window_flags {
	const uint16_t *flags; /* row flags of the window, oldest first */
	const uint32_t *steps; /* step in the episode of each row */
};
bool window_is_item(const struct view_desc *view, const struct window_flags *rows, bool has_next);

#endif

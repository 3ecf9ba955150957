/*
 * Table descriptor, the two halves of a plan: checks the user's wishes, and lays out the fields
 * derived from the wishes and the block size. Private to ds/replay/table_*.c; see also
 * ds/replay/shard.h.
 */
#ifndef RLV_DS_REPLAY_TABLE_DESC_H
#define RLV_DS_REPLAY_TABLE_DESC_H

#include "wire/table_layout.h"

#include "base/error.h"

/*
 * Returns the rows of an item of the view: its stack, and the later rows that n_step, next
 * observations and a period need.
 */
uint32_t table_view_window(const struct table_desc *desc, const struct view_desc *view);

/* Checks the wishes: name, counts, columns, views, limits. -EINVAL names the field. */
RLV_MUST_CHECK int table_wishes_check(const struct table_desc *desc);

/*
 * Sets the fields that follow from the wishes alone: the row, the windows. -EINVAL: a row or an
 * item is too large.
 */
RLV_MUST_CHECK int table_layout_row(struct table_desc *desc);

/*
 * Sets the offsets and sizes of the regions, which follow from the wishes, slots, blocks and tree.
 */
void table_layout_regions(struct table_desc *desc);

/* Returns the smallest block that the views allow: two windows, rounded up to whole leaf groups. */
uint64_t table_block_min(const struct table_desc *desc, uint32_t group);

/* Returns the steps that a block of `block` rows holds: without its repeated head rows. */
static inline uint64_t table_block_steps(const struct table_desc *desc, uint64_t block)
{
	return block - (desc->window_max - 1);
}

#endif

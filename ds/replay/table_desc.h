/*
 * Table descriptor, the two halves of a plan: checks the user's wishes, and lays out the fields
 * derived from the wishes and the block size. Private to ds/replay/table_*.c; see also
 * ds/replay/shard.h.
 */
#ifndef RLV_DS_REPLAY_TABLE_DESC_H
#define RLV_DS_REPLAY_TABLE_DESC_H

#include "wire/table_layout.h"

#include "base/error.h"

/* Rows of an item of the view, from its stack and n_step. */
uint32_t table_view_window(const struct table_desc *desc, const struct view_desc *view);

/* Checks the wishes: name, counts, columns, views, limits. -EINVAL names the field. */
RLV_MUST_CHECK int table_wishes_check(const struct table_desc *desc);

/* Fields derived from the wishes alone: windows, the row. -EINVAL: an item is too large. */
RLV_MUST_CHECK int table_layout_row(struct table_desc *desc);

/* Fields derived from the sizes, too (slots, blocks, tree): offsets and sizes of the regions. */
void table_layout_regions(struct table_desc *desc);

/* The smallest block that the views allow: two windows, in whole leaf groups. */
uint64_t table_block_min(const struct table_desc *desc, uint32_t group);

/* Steps of a block without its repeated head rows. */
static inline uint64_t table_block_steps(const struct table_desc *desc, uint64_t block)
{
	return block - (desc->window_max - 1);
}

#endif

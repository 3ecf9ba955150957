/*
 * Row scan: reads the tails of the rows of a block, to check or recover a whole shard. Private
 * to ds/replay/recover.c and ds/replay/shard_check.c.
 */
#ifndef RLV_DS_RING_ROW_SCAN_H
#define RLV_DS_RING_ROW_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/replay/shard.h"

#include "base/error.h"

struct row_info {
	uint32_t gen;
	uint32_t step;
	uint16_t flags;
	bool torn; /* its crc does not match; false if it was not checked or rows have none */
};

/*
 * Reads the rows of one block; infos_out has desc.block entries. crc: check the crc if rows have
 * one.
 * Cost: small rows, and rows with a crc check, are read whole: 1 phase and one READ for each
 * MiB; of other rows only the tails: 1 phase for each 256.
 */
RLV_MUST_CHECK int row_scan_block(struct shard *shard, uint32_t block, bool crc,
				  struct row_info *infos_out);

/*
 * True if all rows of the window that ends at row i of the block belong to generation gen, and none
 * is torn. false also if the window would begin before the block.
 */
bool row_scan_is_whole(const struct row_info *infos, uint32_t i, uint32_t window, uint32_t gen);

/*
 * True if the view's window that ends at row i is whole (row_scan_is_whole) and its anchor is a
 * real step (not ROW_FINAL or ROW_FILLER).
 */
bool row_scan_is_item(const struct row_info *infos, uint32_t i, const struct view_desc *view,
		      uint32_t gen);

#endif

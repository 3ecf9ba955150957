#include "ds/ring/row_scan.h"

#include "transport/transport.h"

#include "wire/ring_layout.h"

#include "base/bits.h"
#include "base/crc32c.h"

#include <stddef.h>
#include <string.h>

static bool row_scan_is_ranged(const struct table_desc *desc, bool crc)
{
	return crc || desc->row_bytes <= 256;
}

/*
 * Reads n rows: small ones, and those with a crc to check, as one range; of others the tails. The crc
 * covers the row up to its own field; a crc of 0 is valid.
 */
static int scan_rows(struct shard *shard, uint32_t first, uint32_t n, bool crc,
		     struct row_info *infos_out)
{
	const struct table_desc *desc = &shard->desc;
	bool whole = row_scan_is_ranged(desc, crc);
	struct transport_view views[TRANSPORT_VECTOR];
	int rc;

	for (uint32_t i = 0; i < (whole ? 1 : n); i++)
		views[i] = (struct transport_view){
			.region = shard->rows,
			.off = shard_row_off(shard, first + i) + (whole ? 0 : desc->tail_off),
			.len = whole ? n * desc->row_bytes : (uint32_t)sizeof(struct row_tail),
		};
	rc = transport_view(shard->rows->tr, views, whole ? 1 : n);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *row = views[0].ptr;
		struct row_tail tail;

		row += (size_t)i * desc->row_bytes;
		memcpy(&tail, whole ? row + desc->tail_off : views[i].ptr, sizeof(tail));
		infos_out[i] = (struct row_info){
			.gen = tail.gen,
			.step = tail.step,
			.flags = tail.flags,
			.torn = crc &&
				tail.crc != crc32c(0, row,
						   desc->tail_off + offsetof(struct row_tail, crc)),
		};
	}
	transport_view_end(shard->rows->tr);
	return 0;
}

int row_scan_block(struct shard *shard, uint32_t block, bool crc, struct row_info *infos_out)
{
	uint32_t rows = shard->desc.block, at_once = TRANSPORT_VECTOR;
	int rc = 0;

	crc = crc && (shard->desc.flags & TABLE_ROW_CRC);
	if (row_scan_is_ranged(&shard->desc, crc)) /* up to 1 MiB */
		at_once = (uint32_t)max_u64(1, ((uint64_t)1 << 20) / shard->desc.row_bytes);
	for (uint32_t i = 0; rc == 0 && i < rows; i += at_once)
		rc = scan_rows(shard, block * rows + i, (uint32_t)min_u64(at_once, rows - i), crc,
			       infos_out + i);
	return rc;
}

bool row_scan_is_item(const struct row_info *infos, uint32_t i, const struct view_desc *view,
		      uint32_t gen)
{
	return row_scan_is_whole(infos, i, view->window, gen) &&
	       !(infos[i - view->future].flags & (ROW_FINAL | ROW_FILLER));
}

bool row_scan_is_whole(const struct row_info *infos, uint32_t i, uint32_t window, uint32_t gen)
{
	if (i + 1 < window)
		return false;
	for (uint32_t k = i + 1 - window; k <= i; k++)
		if (infos[k].gen != gen || infos[k].torn)
			return false;
	return true;
}

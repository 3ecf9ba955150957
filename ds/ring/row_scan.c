#include "ds/ring/row_scan.h"

#include "transport/transport.h"

#include "wire/ring_layout.h"

#include "base/bits.h"
#include "base/crc32c.h"

#include <stddef.h>
#include <string.h>

/*
 * Rows of up to 256 bytes, and rows with a crc to check, are read whole, up to 1 MiB as one range;
 * of other rows only the tails are read. The crc covers the row up to its own field; a crc of 0 is
 * valid.
 */
int row_scan_block(struct shard *shard, uint32_t block, bool crc, struct row_info *infos_out)
{
	const struct table_desc *desc = &shard->desc;
	bool sealed = crc && (desc->flags & TABLE_ROW_CRC),
	     whole = sealed || desc->row_bytes <= 256;
	uint64_t most = whole ? max_u64(1, ((uint64_t)1 << 20) / desc->row_bytes)
			      : TRANSPORT_VECTOR;
	struct transport_view views[TRANSPORT_VECTOR];

	for (uint32_t first = 0, n; first < desc->block; first += n) {
		uint64_t off = shard_row_off(shard, block * desc->block + first);
		int rc;

		n = (uint32_t)min_u64(most, desc->block - first);
		views[0] = (struct transport_view){ .region = shard->rows,
						    .off = off,
						    .len = n * desc->row_bytes };
		for (uint32_t i = 0; !whole && i < n; i++)
			views[i] = (struct transport_view){
				.region = shard->rows,
				.off = off + (uint64_t)i * desc->row_bytes + desc->tail_off,
				.len = (uint32_t)sizeof(struct row_tail),
			};
		rc = transport_view(shard->rows->tr, views, whole ? 1 : n);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < n; i++) {
			const uint8_t *row = views[0].ptr;
			struct row_tail tail;

			row += whole ? (size_t)i * desc->row_bytes : 0;
			memcpy(&tail, whole ? row + desc->tail_off : views[i].ptr, sizeof(tail));
			infos_out[first + i] = (struct row_info){
				.gen = tail.gen,
				.step = tail.step,
				.flags = tail.flags,
				.torn = sealed &&
					tail.crc != crc32c(0, row,
							   desc->tail_off +
								   (uint32_t)offsetof(
									   struct row_tail, crc)),
			};
		}
		transport_view_end(shard->rows->tr);
	}
	return 0;
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

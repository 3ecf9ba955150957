#include "ds/ring/row_scan.h"

#include "transport/transport.h"

#include "wire/ring_layout.h"

#include "base/bits.h"
#include "base/crc32c.h"

#include <stddef.h>
#include <string.h>

static struct row_info info_of(const struct row_tail *tail)
{
	return (struct row_info){ .gen = tail->gen, .step = tail->step, .flags = tail->flags };
}

/* Reads consecutive rows as one range. */
static int scan_rows(struct shard *shard, uint32_t first, uint32_t n, bool crc,
		     struct row_info *infos_out)
{
	struct transport_view view = { .region = shard->rows,
				       .off = shard_row_off(shard, first),
				       .len = n * shard->desc.row_bytes };
	uint32_t sealed = shard->desc.tail_off + (uint32_t)offsetof(struct row_tail, crc);
	int rc = transport_view(shard->rows->tr, &view, 1);

	if (rc)
		return rc;
	/* The crc covers the row up to its own field; a crc of 0 is valid. */
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *row = (const uint8_t *)view.ptr + (size_t)i * shard->desc.row_bytes;
		struct row_tail tail;

		memcpy(&tail, row + shard->desc.tail_off, sizeof(tail));
		infos_out[i] = info_of(&tail);
		infos_out[i].torn = crc && tail.crc != crc32c(0, row, sealed);
	}
	transport_view_end(shard->rows->tr);
	return 0;
}

static int scan_tails(struct shard *shard, uint32_t first, uint32_t n, struct row_info *infos_out)
{
	struct transport_view views[TRANSPORT_VECTOR];
	int rc;

	for (uint32_t i = 0; i < n; i++)
		views[i] = (struct transport_view){
			.region = shard->rows,
			.off = shard_row_off(shard, first + i) + shard->desc.tail_off,
			.len = (uint32_t)sizeof(struct row_tail),
		};
	rc = transport_view(shard->rows->tr, views, n);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < n; i++) {
		struct row_tail tail;

		memcpy(&tail, views[i].ptr, sizeof(tail));
		infos_out[i] = info_of(&tail);
	}
	transport_view_end(shard->rows->tr);
	return 0;
}

int row_scan_block(struct shard *shard, uint32_t block, bool crc, struct row_info *infos_out)
{
	uint32_t rows = shard->desc.block, at_once = TRANSPORT_VECTOR;
	bool sealed = crc && (shard->desc.flags & TABLE_ROW_CRC);
	/* Small rows are read whole, up to 1 MiB: one range instead of a tail of each row. */
	bool whole = sealed || shard->desc.row_bytes <= 256;

	if (whole)
		at_once = (uint32_t)max_u64(1, ((uint64_t)1 << 20) / shard->desc.row_bytes);
	for (uint32_t i = 0; i < rows; i += at_once) {
		uint32_t n = rows - i < at_once ? rows - i : at_once, first = block * rows + i;
		int rc = whole ? scan_rows(shard, first, n, sealed, infos_out + i)
			       : scan_tails(shard, first, n, infos_out + i);

		if (rc)
			return rc;
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

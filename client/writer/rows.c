/*
 * Rows of a call into their block: columns, then the tail of each row.
 */
#include "client/writer/append.h"

#include "ds/window/stream.h"

#include <string.h>

static inline void column_scatter_each(uint8_t *dst, size_t stride, const uint8_t *src,
				       size_t bytes, uint32_t n)
{
#pragma GCC unroll 4
	for (uint32_t i = 0; i < n; i++, dst += stride, src += bytes)
		memcpy(dst, src, bytes);
}

/* Copies n large values as column_scatter: whole lines past the cache, where only a random draw will
   read them again, which is twice as fast as first loading each line to be written. */
static void column_stream(uint8_t *dst, size_t stride, const uint8_t *src, uint32_t bytes,
			  uint32_t n)
{
	window_copy_fn copy = window_copy_of(true);

	for (uint32_t i = 0; i < n; i++, dst += stride, src += bytes) {
		size_t head = window_line_head(dst, bytes);
		size_t lines = (bytes - head) & ~(size_t)(WIRE_LINE - 1), done = head + lines;

		memcpy(dst, src, head);
		copy(dst + head, src + head, lines, src + head);
		memcpy(dst + done, src + done, bytes - done);
	}
	window_stream_end();
}

/* Copies n elements of `bytes` each from a packed column to rows `stride` bytes apart. */
static void column_scatter(uint8_t *dst, size_t stride, const uint8_t *src, uint32_t bytes,
			   uint32_t n)
{
	switch (bytes) {
	case 1:
		column_scatter_each(dst, stride, src, 1, n);
		break;
	case 4:
		column_scatter_each(dst, stride, src, 4, n);
		break;
	case 8:
		column_scatter_each(dst, stride, src, 8, n);
		break;
	case 16:
		column_scatter_each(dst, stride, src, 16, n);
		break;
	default:
		column_scatter_each(dst, stride, src, bytes, n);
	}
}

int writer_write_rows(struct rlv_writer *w, struct stream *st, const struct source *src)
{
	const struct table_desc *desc = w->h.desc;
	const struct shard *shard = st->blk.acc->shard;
	const uint16_t *flags = st->meta.flags + head_rows(w);
	const uint32_t *steps = st->meta.steps + head_rows(w);
	uint64_t version = src->steps ? src->steps->policy_version : 0;
	uint64_t stream = (uint16_t)(st - w->streams), gen = st->blk.gen;
	size_t row_bytes = desc->row_bytes;
	uint32_t n = src->n; /* rows that are written do not change it */
	uint8_t *rows = st->direct ? ring_row(&st->blk, st->blk.used)
				   : w->stage.ptr + st->staged * row_bytes;
	/* A crc reads them now. */
	uint32_t past_cache = st->direct && !(desc->flags & TABLE_ROW_CRC) ? WRITER_STREAM_LEAST
									   : UINT32_MAX;
	uint8_t *to;

	meta_progress_newest(&w->h.watch.progress, version);
	for (uint32_t c = 0; src->steps && c < desc->n_columns; c++) {
		const struct column_desc *col = &desc->columns[c];
		const uint8_t *from =
			(const uint8_t *)src->steps->columns[c] + (size_t)src->first * col->bytes;

		if (col->bytes >= past_cache)
			column_stream(rows + col->offset, row_bytes, from, col->bytes, n);
		else
			column_scatter(rows + col->offset, row_bytes, from, col->bytes, n);
	}
	for (uint32_t i = 0; !src->steps && i < n; i++)
		memset(rows + i * row_bytes, 0, desc->tail_off);
	/* In whole words, each from a register: a tail put together in memory would wait for its parts. */
	to = rows + desc->tail_off;
	static_assert(sizeof(struct row_tail) == 3 * sizeof(uint64_t), "a tail is three words");
	for (uint32_t i = 0; i < n; i++, to += row_bytes) {
		uint64_t version_step = (uint64_t)steps[i] << 32 | version;
		uint64_t stream_flags = (uint64_t)flags[i] << 16 | stream;

		memcpy(to, &version_step, 8);
		memcpy(to + 8, &stream_flags, 8);
		memcpy(to + 16, &gen, 8);
	}
	for (uint32_t i = 0; desc->flags & TABLE_ROW_CRC && i < n; i++)
		writer_seal_row(desc, rows + i * row_bytes);
	if (st->direct)
		return 0;
	if (!st->blk.acc->chained)
		return ring_write(&st->blk, st->blk.used, rows, n);
	w->rows[w->n_rows++] = (struct transport_io){
		.region = shard->rows,
		.off = shard_row_off(shard, st->blk.first + st->blk.used),
		.src = rows,
		.mem = &w->stage,
		.len = n * desc->row_bytes,
	};
	return 0;
}

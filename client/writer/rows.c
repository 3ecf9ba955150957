/*
 * Rows of a call into their block: columns, then the tail of each row.
 */
#include "client/writer/append.h"

#include "ds/window/stream.h"

#include <string.h>

/* Rows of a call that are built together: n of one stream, which lie side by side from at[0] on, or one of
   each stream, at[i]. */
struct row_run {
	uint8_t *const *at;
	size_t stride; /* from row to row of one stream; 0: of n streams */
	uint32_t n;
	bool past_cache; /* no one reads them soon */
};

static inline uint8_t *run_row(const struct row_run *run, uint32_t i)
{
	return run->stride ? run->at[0] + i * run->stride : run->at[i];
}

static inline void column_scatter_each(const struct row_run *run, uint32_t offset,
				       const uint8_t *src, size_t bytes)
{
	size_t stride = run->stride;
	uint32_t n = run->n; /* values that are written do not change it */
	uint8_t *dst = run->at[0] + offset;

	if (stride == 0) {
#pragma GCC unroll 4
		for (uint32_t i = 0; i < n; i++, src += bytes)
			memcpy(run->at[i] + offset, src, bytes);
		return;
	}
#pragma GCC unroll 4
	for (uint32_t i = 0; i < n; i++, dst += stride, src += bytes)
		memcpy(dst, src, bytes);
}

/* Copies large values as column_scatter: whole lines past the cache, where only a random draw will
   read them again, which is twice as fast as first loading each line to be written. */
static void column_stream(const struct row_run *run, uint32_t offset, const uint8_t *src,
			  uint32_t bytes)
{
	window_copy_fn copy = window_copy_of(true);

	for (uint32_t i = 0; i < run->n; i++, src += bytes) {
		uint8_t *dst = run_row(run, i) + offset;
		size_t head = window_line_head(dst, bytes);
		size_t lines = (bytes - head) & ~(size_t)(WIRE_LINE - 1), done = head + lines;

		memcpy(dst, src, head);
		copy(dst + head, src + head, lines, src + head);
		memcpy(dst + done, src + done, bytes - done);
	}
	window_stream_end();
}

/* Copies the elements of a packed column, of `bytes` each, to their rows. */
static void column_scatter(const struct row_run *run, uint32_t offset, const uint8_t *src,
			   uint32_t bytes)
{
	switch (bytes) {
	case 1:
		column_scatter_each(run, offset, src, 1);
		break;
	case 4:
		column_scatter_each(run, offset, src, 4);
		break;
	case 8:
		column_scatter_each(run, offset, src, 8);
		break;
	case 16:
		column_scatter_each(run, offset, src, 16);
		break;
	case 24:
		column_scatter_each(run, offset, src, 24);
		break;
	default:
		column_scatter_each(run, offset, src, bytes);
	}
}

/* Writes a row's tail in whole words, each from a register: one put together in memory would wait for its
   parts. */
static inline void write_tail(uint8_t *to, uint64_t version_step, uint64_t stream_flags,
			      uint64_t gen)
{
	static_assert(sizeof(struct row_tail) == 3 * sizeof(uint64_t), "a tail is three words");
	memcpy(to, &version_step, 8);
	memcpy(to + 8, &stream_flags, 8);
	memcpy(to + 16, &gen, 8);
}

/* Writes the tails of a stream's planned rows. */
static inline void stream_write_tails(const struct rlv_writer *w, const struct stream *st,
				      uint64_t version, uint8_t *rows)
{
	const uint16_t *flags = stream_meta(st).flags + head_rows(w);
	const uint32_t *steps = stream_meta(st).steps + head_rows(w);
	uint64_t stream = (uint16_t)(st - w->streams), gen = st->blk.gen;
	uint8_t *to = rows + w->h.desc->tail_off;
	size_t row_bytes = w->h.desc->row_bytes;
	uint32_t n = st->planned; /* rows that are written do not change it */

	for (uint32_t i = 0; i < n; i++, to += row_bytes)
		write_tail(to, (uint64_t)steps[i] << 32 | version,
			   (uint64_t)flags[i] << 16 | stream, gen);
}

/* Writes the tail of the only planned row of each of the put's streams [from, to). */
static void streams_write_tail(const struct rlv_writer *w, const struct append_batch *put,
			       uint32_t from, uint32_t to, uint64_t version)
{
	const uint32_t tail_off = w->h.desc->tail_off, head = head_rows(w);
	const struct stream *st = &put->streams[from];
	uint16_t stream = (uint16_t)(st - w->streams);

	for (uint32_t i = 0; i < to - from; i++, st++, stream++) {
		uint32_t at = st->past + head;

		write_tail(w->at[i] + tail_off, (uint64_t)st->meta.steps[at] << 32 | version,
			   (uint64_t)st->meta.flags[at] << 16 | stream, st->blk.gen);
	}
}

/* Column by column over all streams: what is to be known of a column is found once. A row's tail comes
   last, so that a row with the generation of its block is whole. */
void writer_build_rows(struct rlv_writer *w, const struct append_batch *put, uint32_t from,
		       uint32_t to)
{
	const struct table_desc *desc = w->h.desc;
	const struct rlv_steps *steps = put->src.steps;
	const struct stream *streams = put->streams;
	bool crc = desc->flags & TABLE_ROW_CRC; /* which reads the rows now */
	struct row_run run = { .at = w->at, .past_cache = streams[from].next && !crc };
	size_t first = put->src.first + from;
	uint64_t version = steps ? steps->policy_version : 0;

	meta_progress_newest(&w->h.watch.progress, version);
	for (uint32_t i = from; i < to; i++)
		w->at[i - from] = stream_rows(w, &streams[i]);
	run.stride = to - from == 1 ? desc->row_bytes : 0;
	run.n = run.stride ? streams[from].planned : to - from;
	for (uint32_t c = 0; steps && c < desc->n_columns; c++) {
		const struct column_desc *col = &desc->columns[c];
		const uint8_t *src = (const uint8_t *)steps->columns[c] + first * col->bytes;

		if (run.past_cache && col->bytes >= WRITER_STREAM_LEAST)
			column_stream(&run, col->offset, src, col->bytes);
		else
			column_scatter(&run, col->offset, src, col->bytes);
	}
	for (uint32_t i = 0; !steps && i < run.n; i++)
		memset(run_row(&run, i), 0, desc->tail_off);
	if (run.stride)
		stream_write_tails(w, &streams[from], version, w->at[0]);
	else
		streams_write_tail(w, put, from, to, version);
	for (uint32_t i = 0; crc && i < run.n; i++)
		writer_seal_row(desc, run_row(&run, i));
}

int writer_send_rows(struct rlv_writer *w, const struct stream *st)
{
	const struct shard *shard = st->blk.acc->shard;
	const uint8_t *rows = stream_rows(w, st);

	if (!st->blk.acc->chained)
		return ring_write(&st->blk, st->blk.used, rows, st->planned);
	w->rows[w->n_rows++] = (struct transport_io){
		.region = shard->rows,
		.off = shard_row_off(shard, st->blk.first + st->blk.used),
		.src = rows,
		.mem = &w->stage,
		.len = st->planned * w->h.desc->row_bytes,
	};
	return 0;
}

/*
 * Life of a writer: its streams, the blocks they hold, and their end.
 */
#include "client/append.h"

#include "transport/barrier.h"

#include "base/alloc.h"
#include "base/chunk.h"
#include "base/crc32c.h"

#include <errno.h>
#include <string.h>

#define DEFAULT_TIMEOUT_NS (5 * CLOCK_NS_PER_S)

void writer_seal_row(const struct table_desc *desc, uint8_t *row)
{
	uint32_t covered = desc->row_bytes - (uint32_t)sizeof(uint32_t);
	uint32_t crc = crc32c(0, row, covered);

	memcpy(row + covered, &crc, sizeof(crc));
}

/* -------- head rows of a block -------- */

void writer_keep_head(struct rlv_writer *w, struct stream *st, uint32_t n)
{
	size_t row = w->h.desc->row_bytes;
	size_t head = w->h.desc->window_max - 1;
	size_t fresh = n < head ? n : head;
	const uint8_t *end = w->stage + (st->staged + n) * row;

	memmove(st->head, st->head + fresh * row, (head - fresh) * row);
	memcpy(st->head + (head - fresh) * row, end - fresh * row, fresh * row);
}

/* The stream's last window_max-1 rows, or NULL if it has none yet. */
static const uint8_t *last_rows(const struct rlv_writer *w, const struct stream *st)
{
	if (!st->blk.acc)
		return NULL;
	return w->direct ? ring_row(&st->blk, st->blk.used - (w->h.desc->window_max - 1))
			 : st->head;
}

/* Repeats the stream's last rows at the head of its next block, or fills it: see table_layout.h. */
static int write_head(struct rlv_writer *w, const struct stream *st, const struct block *next)
{
	const struct table_desc *desc = w->h.desc;
	uint32_t head = desc->window_max - 1;
	const uint8_t *from = last_rows(w, st);
	uint8_t *rows = w->direct ? ring_row(next, 0) : w->stage;

	for (uint32_t i = 0; i < head; i++) {
		uint8_t *row = rows + (size_t)i * desc->row_bytes;
		struct row_tail tail = { .flags = ROW_FILLER };

		if (from) {
			const uint8_t *old = from + (size_t)i * desc->row_bytes;

			memcpy(row, old, desc->row_bytes);
			memcpy(&tail, old + desc->tail_off, sizeof(tail));
		} else {
			memset(row, 0, desc->row_bytes);
		}
		tail.flags |= ROW_REPEATED;
		tail.gen = next->gen;
		tail.crc = 0;
		memcpy(row + desc->tail_off, &tail, sizeof(tail));
		if (desc->flags & TABLE_ROW_CRC)
			writer_seal_row(desc, row);
	}
	w->stats.repeated_rows += from ? head : 0;
	return w->direct || head == 0 ? 0 : ring_write(next, 0, rows, head);
}

/* -------- blocks -------- */

/* One try to give the stream a block in shard s, in exchange for the one it has. */
static int claim_in(struct rlv_writer *w, struct stream *st, uint32_t s)
{
	struct access *acc = &w->h.access[s];
	struct block next = { 0 };
	int claimed;
	int ret;

	ret = access_enter(acc);
	if (ret)
		return ret;
	claimed = ring_claim(acc, &next, &w->ring);
	ret = access_leave(acc);
	if (claimed || ret)
		return handle_failed(acc, claimed ? claimed : ret);
	ret = write_head(w, st, &next);
	next.used = w->h.desc->window_max - 1;
	if (ret == 0 && st->blk.acc)
		ret = ring_close(&st->blk);
	st->blk = next;
	return ret;
}

int writer_room(struct rlv_writer *w, struct stream *st, uint64_t deadline_ns)
{
	uint32_t round = 0;

	while (!st->blk.acc || st->blk.used == w->h.desc->block) {
		int ret = claim_in(w, st, st->next_shard);

		st->next_shard = (st->next_shard + 1) % w->h.n_shards;
		if (ret == -EOWNERDEAD)
			w->dead = true;
		if (ret == 0)
			break;
		if (ret != -EAGAIN)
			return ret;
		if (deadline_expired(w->h.clock, deadline_ns))
			return error_prefix(error_set(-ETIMEDOUT, "%s", error_last()), "append: ");
		handle_backoff(&w->h, &round, deadline_ns);
		ret = handle_check(&w->h);
		if (ret)
			return ret;
	}
	return 0;
}

/* -------- open -------- */

static int check_opts(const struct rlv_table *table, const struct rlv_writer_opts *opts)
{
	const struct table_desc *desc = &table->place.desc;

	if (opts->size < sizeof(*opts))
		return error_set(-EINVAL, "opts.size %u: use RLV_WRITER_OPTS_INIT", opts->size);
	if (opts->streams > desc->max_writers)
		return error_set(
			-ENOSPC,
			"opts.streams %u: table %s was created for %u writers (max_writers)",
			opts->streams, desc->name, desc->max_writers);
	return 0;
}

static int stream_init(const struct rlv_writer *w, struct stream *st, uint32_t index)
{
	const struct table_desc *desc = w->h.desc;
	uint32_t head = desc->window_max - 1;
	size_t metas = head + WRITER_CHUNK;

	st->meta.flags = mem_array(metas, sizeof(*st->meta.flags));
	st->meta.steps = mem_array(metas, sizeof(*st->meta.steps));
	st->meta.td = mem_array(metas, sizeof(*st->meta.td));
	if (!w->direct && head)
		st->head = mem_array(head, desc->row_bytes);
	if (!st->meta.flags || !st->meta.steps || !st->meta.td || (!w->direct && head && !st->head))
		return error_set(-ENOMEM, "stream %u: no memory", index);
	for (uint32_t i = 0; i < head; i++) {
		st->meta.flags[i] = ROW_FILLER;
		st->meta.td[i] = -1;
	}
	st->next_shard = (w->h.owner + index) % w->h.n_shards;
	return 0;
}

static int items_init(struct rlv_writer *w)
{
	uint32_t most = w->n_streams > WRITER_CHUNK ? w->n_streams : WRITER_CHUNK;

	for (uint32_t v = 0; v < w->h.desc->n_views; v++) {
		const struct view_desc *view = &w->h.desc->views[v];

		w->items[v].ops = mem_array(most, sizeof(struct leaf_op));
		w->items[v].shard_end = mem_array(w->h.n_shards, sizeof(uint32_t));
		if (!w->items[v].ops || !w->items[v].shard_end)
			return error_set(-ENOMEM, "writer: no memory");
		limiter_init(&w->limiters[v], w->h.nodes.shards[0], v, w->h.owner);
		if (view->future > w->future_max)
			w->future_max = view->future;
	}
	return 0;
}

static int streams_init(struct rlv_writer *w)
{
	const struct table_desc *desc = w->h.desc;
	int ret = 0;

	w->direct = !BARRIER_TSAN; /* in place the stores race by design */
	for (uint32_t s = 0; s < w->h.n_shards; s++)
		w->direct &= transport_is_addressable(w->h.nodes.shards[s]->rows->tr);
	for (uint32_t c = 0; c < desc->n_columns; c++)
		w->has_obs |= desc->columns[c].role == RLV_OBS;
	if (!w->direct) {
		uint32_t rows = desc->window_max > WRITER_CHUNK ? desc->window_max : WRITER_CHUNK;

		if (rows < w->n_streams)
			rows = w->n_streams;
		w->stage = chunk_array(rows, desc->row_bytes);
		w->stage_bytes = (size_t)rows * desc->row_bytes;
		if (!w->stage)
			return error_set(-ENOMEM, "writer: no memory to stage %u rows", rows);
	}
	w->streams = mem_array(w->n_streams, sizeof(struct stream));
	if (!w->streams)
		return error_set(-ENOMEM, "%u streams: no memory", w->n_streams);
	for (uint32_t i = 0; ret == 0 && i < w->n_streams; i++)
		ret = stream_init(w, &w->streams[i], i);
	return ret;
}

static void writer_free(struct rlv_writer *w)
{
	for (uint32_t i = 0; w->streams && i < w->n_streams; i++) {
		mem_free(w->streams[i].meta.flags);
		mem_free(w->streams[i].meta.steps);
		mem_free(w->streams[i].meta.td);
		mem_free(w->streams[i].head);
	}
	for (uint32_t v = 0; v < RING_MAX_VIEWS; v++) {
		mem_free(w->items[v].ops);
		mem_free(w->items[v].shard_end);
	}
	mem_free(w->streams);
	chunk_free(w->stage, w->stage_bytes);
	mem_free(w);
}

int rlv_writer_open(struct rlv_table *table, const struct rlv_writer_opts *opts,
		    struct rlv_writer **writer_out)
{
	static const struct rlv_writer_opts defaults = RLV_WRITER_OPTS_INIT;
	struct rlv_writer *w;
	int ret;

	if (!table || !writer_out)
		return error_set(-EINVAL, "table or writer_out is NULL");
	if (!opts)
		opts = &defaults;
	if (table->store->read_only)
		return error_set(-EACCES, "store was opened read-only");
	ret = check_opts(table, opts);
	if (ret)
		return ret;
	w = mem_zalloc(sizeof(*w));
	if (!w)
		return error_set(-ENOMEM, "writer: no memory");
	w->n_streams = opts->streams ? opts->streams : 1;
	w->timeout_ns = opts->timeout_ns ? opts->timeout_ns : DEFAULT_TIMEOUT_NS;
	ret = handle_open(&w->h, table, (1u << table->place.desc.n_views) - 1, NULL);
	if (ret)
		goto err_free;
	ret = w->h.n_shards ? streams_init(w) : error_set(-EPROTO, "table: it has no shard");
	if (ret == 0)
		ret = items_init(w);
	if (ret)
		goto err_close_handle;
	*writer_out = w;
	return 0;

err_close_handle:
	if (handle_close(&w->h))
		error_prefix(ret, "writer: ");
err_free:
	writer_free(w);
	return ret;
}

/* -------- end -------- */

/* Completes the windows that wait for later steps. */
static int complete(struct rlv_writer *w, uint32_t stream)
{
	struct stream *st = &w->streams[stream];
	int ret = 0;

	if (st->blk.acc && st->open_window)
		ret = writer_fill(w, stream, w->future_max);
	if (ret == 0) {
		st->open_window = false;
		st->in_episode = false;
	}
	return ret;
}

int rlv_writer_end_episode(struct rlv_writer *writer, uint32_t stream,
			   const struct rlv_steps *final)
{
	static const uint16_t final_flag = RLV_FINAL;
	int ret = 0;

	if (!writer)
		return error_set(-EINVAL, "writer is NULL");
	if (stream >= writer->n_streams)
		return error_set(-EINVAL, "stream %u: the writer has %u", stream,
				 writer->n_streams);
	if (final) {
		struct rlv_steps step = *final;

		if (final->n != 1)
			return error_set(-EINVAL, "final->n %u: want the one last observation",
					 final->n);
		step.flags = &final_flag;
		ret = rlv_writer_append(writer, stream, &step, NULL);
	}
	if (ret == 0)
		ret = handle_check(&writer->h);
	return ret ? ret : complete(writer, stream);
}

static int close_stream(struct rlv_writer *w, uint32_t stream)
{
	struct stream *st = &w->streams[stream];
	int ret = complete(w, stream);
	int closed = st->blk.acc ? ring_close(&st->blk) : 0;

	return ret ? ret : closed;
}

int rlv_writer_close(struct rlv_writer **writer)
{
	struct rlv_writer *w;
	int ret;

	if (!writer || !*writer)
		return 0;
	w = *writer;
	*writer = NULL;
	ret = w->dead ? 0 : handle_check(&w->h);
	for (uint32_t i = 0; ret == 0 && !w->dead && i < w->n_streams; i++)
		ret = close_stream(w, i);
	if (ret == 0)
		ret = handle_close(&w->h);
	else if (handle_close(&w->h))
		error_prefix(ret, "writer: ");
	writer_free(w);
	return ret;
}

int rlv_writer_stats(struct rlv_writer *writer, struct rlv_stats *stats_out)
{
	struct rlv_stats stats;

	if (!writer || !stats_out)
		return error_set(-EINVAL, "writer or stats_out is NULL");
	if (stats_out->size < sizeof(stats))
		return error_set(-EINVAL, "stats_out->size %u: want %zu", stats_out->size,
				 sizeof(stats));
	stats = writer->stats;
	stats.size = (uint32_t)sizeof(stats);
	stats.blocks_claimed = writer->ring.claimed;
	stats.blocks_skipped = writer->ring.skipped;
	handle_stats(&writer->h, &stats);
	*stats_out = stats;
	return 0;
}

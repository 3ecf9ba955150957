/* Opens and closes a writer; its reaction to shards that leave and return. */
#include "client/writer/append.h"

#include "transport/barrier.h"

#include "base/mem/alloc.h"
#include "base/mem/chunk.h"
#include "base/bits.h"

#include <errno.h>
#include <string.h>

/* -------- open -------- */

/* Allocates the streams, and the items of each view; begins admission for each view. -ENOMEM. */
static int writer_streams_init(struct rlv_writer *w)
{
	const struct table_desc *desc = w->h.desc;
	uint32_t most = w->n_streams > WRITER_CHUNK ? w->n_streams : WRITER_CHUNK;
	int ret = 0;

	for (uint32_t c = 0; c < desc->n_columns; c++)
		w->has_obs |= desc->columns[c].role == RLV_OBS;
	w->rows = mem_array(w->n_streams, sizeof(*w->rows));
	w->at = mem_array(most, sizeof(*w->at));
	w->placed = mem_array(w->n_streams, sizeof(struct stream *));
	w->streams = mem_array(w->n_streams, sizeof(struct stream));
	if (!w->streams || !w->rows || !w->at || !w->placed)
		return error_set(-ENOMEM, "writer: cannot allocate memory for %u streams",
				 w->n_streams);
	for (uint32_t i = 0; ret == 0 && i < w->n_streams; i++)
		ret = stream_init(w, &w->streams[i]);
	for (uint32_t v = 0; ret == 0 && v < desc->n_views; v++) {
		w->items[v].ops = mem_array(most, sizeof(struct leaf_op));
		if (!w->items[v].ops)
			return error_set(-ENOMEM, "writer: cannot allocate memory");
		admission_init(&w->admissions[v], &w->h, v);
		if (desc->views[v].future > w->future_max)
			w->future_max = desc->views[v].future;
	}
	return ret;
}

/* -------- shards that come and go -------- */

static void writer_leave_shard(struct handle *h, uint32_t shard)
{
	struct rlv_writer *w = (struct rlv_writer *)h;

	writer_drop_blocks(w, handle_access(h, shard));
	for (uint32_t v = 0; v < h->desc->n_views; v++)
		admission_leave(&w->admissions[v], shard);
}

static int writer_shards_moved(struct handle *h)
{
	struct rlv_writer *w = (struct rlv_writer *)h;
	uint32_t from = w->room, to = h->set.n_parts;
	size_t rows = max_u64(max_u64(h->desc->window_max, WRITER_CHUNK), w->n_streams);
	int ret = 0;

	if (to > from) {
		if (!mem_grow(&w->credit, from, to, sizeof(*w->credit)) ||
		    !mem_grow(&w->published, from, to, sizeof(*w->published)) ||
		    !mem_grow(&w->changes, from, to, sizeof(*w->changes)))
			return error_set(-ENOMEM, "writer: cannot allocate memory for %u shards",
					 to);
		w->room = to;
	}
	/* Rows are staged where they cannot be built in place. */
	if ((!part_set_is_addressable(&h->set) || BARRIER_TSAN) &&
	    !chunk_make_room(&w->stage, rows * h->desc->row_bytes))
		return error_set(-ENOMEM, "writer: cannot allocate memory to stage %zu rows", rows);
	for (uint32_t v = 0; ret == 0 && v < h->desc->n_views; v++)
		ret = admission_follow(&w->admissions[v], h);
	return ret;
}

static const struct handle_user writer_user = { .leave = writer_leave_shard,
						.moved = writer_shards_moved };

static_assert(offsetof(struct rlv_writer, h) == 0, "a writer's handle is the writer");

/* -------- the API -------- */

static void writer_free(struct rlv_writer *w)
{
	for (uint32_t i = 0; w->streams && i < w->n_streams; i++)
		stream_fini(&w->streams[i]);
	for (uint32_t v = 0; v < RING_MAX_VIEWS; v++)
		mem_free(w->items[v].ops);
	mem_free(w->streams);
	mem_free(w->rows);
	mem_free(w->at);
	mem_free(w->placed);
	mem_free(w->changes);
	mem_free(w->credit);
	mem_free(w->published);
	chunk_drop(&w->stage);
	mem_free(w);
}

int rlv_writer_open(struct rlv_table *table, const struct rlv_writer_opts *opts,
		    struct rlv_writer **writer_out)
{
	struct rlv_writer_opts full = RLV_WRITER_OPTS_INIT;
	struct handle_opts how = { .user = &writer_user };
	const struct table_desc *desc;
	struct rlv_writer *w;
	int ret;

	if (!table || !writer_out)
		return error_set(-EINVAL, "table or writer_out is NULL");
	desc = &table->desc;
	ret = opts ? abi_read(&full, sizeof(full), opts, "opts.") : 0;
	if (ret)
		return ret;
	if (table->store->read_only)
		return error_set(-EACCES, "store was opened read-only");
	if (table->store->meta->reader)
		return error_set(-EACCES, "writer: needs a token of role write, the token in use "
					  "has role read");
	if (full.streams > desc->max_writers)
		return error_set(
			-ENOSPC,
			"opts.streams %u: table %s was created for %u writers: create it with "
			"max_writers %u or more",
			full.streams, desc->name, desc->max_writers, full.streams);
	w = mem_zalloc(sizeof(*w));
	if (!w)
		return error_set(-ENOMEM, "writer: cannot allocate memory");
	w->n_streams = full.streams ? full.streams : 1;
	w->timeout_ns = full.timeout_ns ? full.timeout_ns : 5 * CLOCK_NS_PER_S;
	how.view_mask = (1u << desc->n_views) - 1;
	how.streams = w->n_streams;
	ret = handle_open(&w->h, table, &how);
	if (ret)
		goto err_free;
	ret = writer_streams_init(w);
	if (ret == 0)
		ret = writer_shards_moved(&w->h);
	if (ret)
		goto err_close_handle;
	*writer_out = w;
	return 0;

err_close_handle:
	ret = handle_close(&w->h, ret);
err_free:
	writer_free(w);
	return ret;
}

/* -------- end -------- */

/* Appends filler rows to a stream, which complete its windows that wait for later steps; its
   episode ends. */
static int writer_complete(struct rlv_writer *w, uint32_t stream)
{
	struct stream *st = &w->streams[stream];
	uint32_t head = w->h.desc->window_max - 1;
	uint32_t missing = w->future_max;
	int ret = 0;

	if (missing && head && stream_meta(st).flags[head - 1] & ROW_FINAL)
		missing--; /* a final observation is one of the rows they wait for */
	if (st->open_window)
		ret = writer_fill(w, stream, missing);
	if (ret == 0) {
		st->open_window = false;
		st->course.in_episode = false;
	}
	return ret;
}

int rlv_writer_end_episode(struct rlv_writer *writer, uint32_t stream,
			   const struct rlv_steps *final)
{
	static const uint16_t final_flag = RLV_FINAL;
	int ret;

	if (!writer)
		return error_set(-EINVAL, "writer is NULL");
	if (stream >= writer->n_streams)
		return error_set(-EINVAL, "stream %u: the writer has %u", stream,
				 writer->n_streams);
	if (final) {
		struct rlv_steps step;

		ret = abi_read(&step, sizeof(step), final, "final->");
		if (ret)
			return ret;
		if (step.n != 1)
			return error_set(-EINVAL, "final->n %u: want 1, the last observation",
					 step.n);
		step.flags = &final_flag;
		ret = rlv_writer_append(writer, stream, &step, NULL);
	} else {
		ret = handle_begin(&writer->h, writer->timeout_ns);
		if (handle_may_heal(&writer->h, ret))
			ret = 0;
	}
	if (ret)
		return ret;
	return writer_complete(writer, stream);
}

int rlv_writer_close(struct rlv_writer **writer)
{
	struct rlv_writer *w;
	int ret;

	if (!writer || !*writer)
		return 0;
	w = *writer;
	*writer = NULL;
	ret = w->dead ? 0 : handle_begin(&w->h, w->timeout_ns);
	for (uint32_t i = 0; ret == 0 && !w->dead && i < w->n_streams; i++) {
		int closed;

		ret = writer_complete(w, i);
		closed = stream_close_block(&w->streams[i]);
		ret = ret ? ret : closed;
	}
	if (ret == 0 && !w->dead)
		ret = handle_flush(&w->h);
	ret = handle_close(&w->h, ret);
	writer_free(w);
	return ret;
}

int rlv_writer_stats(struct rlv_writer *writer, struct rlv_stats *stats_out)
{
	struct rlv_stats stats;
	uint64_t most; /* items that a shard has room for */
	int ret;

	if (!writer || !stats_out)
		return error_set(-EINVAL, "writer or stats_out is NULL");
	ret = abi_check(stats_out, "stats_out->");
	if (ret)
		return ret;
	stats = writer->stats;
	stats.blocks_claimed = writer->ring.claimed;
	stats.blocks_skipped = writer->ring.skipped;
	stats.items_lost = 0;
	most = (uint64_t)writer->h.desc->slots * writer->h.desc->n_views;
	for (uint32_t s = 0; s < writer->room; s++)
		if (part_set_is_away(&writer->h.set, s))
			stats.items_lost += (int64_t)min_u64(writer->published[s], most);
	handle_stats(&writer->h, &stats);
	abi_write(stats_out, &stats, sizeof(stats));
	return 0;
}

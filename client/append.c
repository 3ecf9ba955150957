/*
 * The actor's path: rows into the stream's block, then the items whose windows they complete.
 *
 *   plan      flags and steps of the new rows; which leaves become items, with which priority
 *   rows      built in place (or staged and written): nobody draws them yet
 *   admit     the limiters, all views or none
 *   publish   CAS {gen, 0} -> {gen, p}; flush; commit
 */
#include "client/append.h"

#include "ds/priority.h"
#include "ds/window.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define PREFETCH_BYTES 4096
#define USER_FLAGS (RLV_TERMINATED | RLV_TRUNCATED | RLV_FINAL)

static_assert((int)RLV_TERMINATED == (int)ROW_TERMINATED &&
		      (int)RLV_TRUNCATED == (int)ROW_TRUNCATED && (int)RLV_FINAL == (int)ROW_FINAL,
	      "step flags are row flags");

/* Steps of a call: source rows [first, first + n) of each stream's. */
struct source {
	const struct rlv_steps *steps; /* NULL = filler rows */
	uint32_t first;
	uint32_t n;
};

static uint32_t head_rows(const struct rlv_writer *w)
{
	return w->h.desc->window_max - 1;
}

/* -------- plan -------- */

static void plan_rows(const struct rlv_writer *w, struct stream *st, const struct source *src)
{
	const struct rlv_steps *steps = src->steps;
	const uint16_t *flags = steps && steps->flags ? steps->flags + src->first : NULL;
	const double *td = steps && steps->td_error ? steps->td_error + src->first : NULL;
	const uint16_t ends = ROW_TERMINATED | ROW_TRUNCATED | ROW_FINAL | ROW_FILLER;
	uint32_t head = head_rows(w);
	uint32_t step = st->step;
	bool in_episode = st->in_episode;

	for (uint32_t i = 0; i < src->n; i++) {
		uint16_t f = steps ? 0 : ROW_FILLER;

		if (flags)
			f |= flags[i];
		if (!in_episode && !(f & (ROW_FINAL | ROW_FILLER))) {
			f |= ROW_FIRST;
			step = 0;
		}
		st->meta.flags[head + i] = f;
		st->meta.steps[head + i] = step;
		st->meta.td[head + i] = td ? td[i] : -1;
		in_episode = !(f & ends);
		step += step < UINT32_MAX;
	}
	st->planned = src->n;
	st->plan_step = step;
	st->plan_in_episode = in_episode;
}

static uint64_t item_quanta(struct rlv_writer *w, uint32_t v, double td)
{
	const struct view_desc *view = &w->h.desc->views[v];

	if (view->selector != RLV_PRIORITIZED)
		return 1;
	if (td < 0)
		return w->default_quanta[v];
	return priority_quanta_one(view, td, &w->stats.clamped);
}

/* Adds the items of view v that the planned rows complete. */
static void collect_items(struct rlv_writer *w, const struct stream *st, uint32_t v)
{
	const struct view_desc *view = &w->h.desc->views[v];
	struct view_items *items = &w->items[v];
	struct leaf_op *op = items->ops + items->n;
	uint32_t anchor = view->window - 1 - view->future;
	uint32_t from = head_rows(w) + 1 - view->window;
	uint32_t slot = st->blk.first + st->blk.used;

	for (uint32_t i = 0; i < st->planned; i++, from++, slot++) {
		const struct window_flags rows = { st->meta.flags + from, st->meta.steps + from };

		if (!window_is_item(view, &rows, w->has_obs))
			continue;
		*op++ = (struct leaf_op){
			.slot = slot,
			.gen = st->blk.gen,
			.priority = item_quanta(w, v, st->meta.td[from + anchor]),
		};
	}
	items->n = (uint32_t)(op - items->ops);
}

static void begin_items(struct rlv_writer *w)
{
	for (uint32_t v = 0; v < w->h.desc->n_views; v++)
		w->items[v].n = 0;
}

static void end_shard_items(struct rlv_writer *w, uint32_t s)
{
	for (uint32_t v = 0; v < w->h.desc->n_views; v++)
		w->items[v].shard_end[s] = w->items[v].n;
}

/* New items take the running maximum of the view over all shards, 1.0 before the first. */
static int read_default_quanta(struct rlv_writer *w)
{
	for (uint32_t v = 0; v < w->h.desc->n_views; v++) {
		const struct view_desc *view = &w->h.desc->views[v];
		uint64_t most = 0;

		for (uint32_t s = 0; s < w->h.n_shards; s++) {
			uint64_t word;
			int ret = priority_max_read(w->h.nodes.shards[s], v, &word);

			if (ret)
				return ret;
			most = word > most ? word : most;
		}
		w->max_quanta[v] = most;
		w->default_quanta[v] = most ? most : view->scale;
	}
	return 0;
}

/* -------- rows -------- */

/* n elements of `bytes` from a packed column to rows `stride` apart. */
static void scatter(uint8_t *dst, size_t stride, const uint8_t *src, uint32_t bytes, uint32_t n)
{
	switch (bytes) {
	case 1:
		for (uint32_t i = 0; i < n; i++)
			dst[i * stride] = src[i];
		break;
	case 4:
		for (uint32_t i = 0; i < n; i++)
			memcpy(dst + i * stride, src + (size_t)i * 4, 4);
		break;
	case 8:
		for (uint32_t i = 0; i < n; i++)
			memcpy(dst + i * stride, src + (size_t)i * 8, 8);
		break;
	case 16:
		for (uint32_t i = 0; i < n; i++)
			memcpy(dst + i * stride, src + (size_t)i * 16, 16);
		break;
	default:
		for (uint32_t i = 0; i < n; i++)
			memcpy(dst + i * stride, src + (size_t)i * bytes, bytes);
	}
}

/* In whole words, each from a register: a tail put together in memory would wait for its parts. */
static inline void store_tail(uint8_t *dst, const struct row_tail *tail)
{
	uint64_t version = (uint64_t)tail->step << 32 | tail->policy_version;
	uint64_t stream = (uint64_t)tail->flags << 16 | tail->stream;
	uint64_t gen = tail->gen;

	static_assert(sizeof(*tail) == 3 * sizeof(uint64_t), "a tail is three words");
	memcpy(dst, &version, 8);
	memcpy(dst + 8, &stream, 8);
	memcpy(dst + 16, &gen, 8);
}

static void write_tails(const struct rlv_writer *w, const struct stream *st, uint8_t *rows,
			const struct source *src)
{
	const struct table_desc *desc = w->h.desc;
	const uint16_t *flags = st->meta.flags + head_rows(w);
	const uint32_t *steps = st->meta.steps + head_rows(w);
	uint32_t version = src->steps ? src->steps->policy_version : 0;
	uint16_t stream = (uint16_t)(st - w->streams);
	uint32_t gen = st->blk.gen;

	for (uint32_t i = 0; i < src->n; i++) {
		uint8_t *row = rows + (size_t)i * desc->row_bytes;
		const struct row_tail tail = { .policy_version = version,
					       .step = steps[i],
					       .stream = stream,
					       .flags = flags[i],
					       .gen = gen };

		store_tail(row + desc->tail_off, &tail);
		if (desc->flags & TABLE_ROW_CRC)
			writer_seal_row(desc, row);
	}
}

static int write_rows(struct rlv_writer *w, struct stream *st, const struct source *src)
{
	const struct table_desc *desc = w->h.desc;
	uint8_t *rows = w->direct ? ring_row(&st->blk, st->blk.used)
				  : w->stage + (size_t)st->staged * desc->row_bytes;

	for (uint32_t c = 0; c < desc->n_columns; c++) {
		const struct column_desc *col = &desc->columns[c];

		if (src->steps)
			scatter(rows + col->offset, desc->row_bytes,
				(const uint8_t *)src->steps->columns[c] +
					(size_t)src->first * col->bytes,
				col->bytes, src->n);
	}
	if (!src->steps)
		for (uint32_t i = 0; i < src->n; i++)
			memset(rows + (size_t)i * desc->row_bytes, 0, desc->tail_off);
	write_tails(w, st, rows, src);
	if (!w->direct)
		return ring_write(&st->blk, st->blk.used, rows, src->n);
	transport_account_write(st->blk.acc->shard->rows->tr, src->n,
				(uint64_t)src->n * desc->row_bytes);
	return 0;
}

/* -------- admit and publish -------- */

/* Admits the collected items of every view, or of none. */
static int try_admit(struct rlv_writer *w, uint32_t *refused_view)
{
	uint32_t v;
	int ret = 0;

	for (v = 0; v < w->h.desc->n_views; v++) {
		ret = w->items[v].n ? limiter_try_insert(&w->limiters[v], w->items[v].n) : 0;
		if (ret)
			break;
	}
	if (ret == 0)
		return 0;
	*refused_view = v;
	while (v-- > 0) {
		int undo = w->items[v].n ? limiter_commit_insert(&w->limiters[v], w->items[v].n, 0)
					 : 0;
		if (undo)
			return undo;
	}
	return ret;
}

/* What was published counts for the view's running maximum. */
static int raise_max(const struct rlv_writer *w, uint32_t s, uint32_t v)
{
	const struct view_items *items = &w->items[v];
	uint64_t most = w->max_quanta[v];

	if (w->h.desc->views[v].selector != RLV_PRIORITIZED)
		return 0;
	for (uint32_t i = s ? items->shard_end[s - 1] : 0; i < items->shard_end[s]; i++)
		most = items->ops[i].priority > most ? items->ops[i].priority : most;
	if (most == w->max_quanta[v])
		return 0;
	return priority_max_raise(w->h.nodes.shards[s], v, most);
}

static int raise_maxima(const struct rlv_writer *w, uint32_t s)
{
	int ret = 0;

	for (uint32_t v = 0; ret == 0 && v < w->h.desc->n_views; v++)
		ret = raise_max(w, s, v);
	return ret;
}

static int publish_shard(struct rlv_writer *w, uint32_t s)
{
	struct access *acc = &w->h.access[s];
	int left;
	int ret;

	ret = access_enter(acc);
	if (ret)
		return ret;
	for (uint32_t v = 0; ret == 0 && v < w->h.desc->n_views; v++) {
		const struct view_items *items = &w->items[v];
		uint32_t first = s ? items->shard_end[s - 1] : 0;

		if (items->shard_end[s] > first)
			ret = sumtree_publish_ops(&acc->shard->trees[v], &acc->epoch,
						  items->ops + first, items->shard_end[s] - first,
						  acc->deltas[v]);
	}
	left = access_leave(acc); /* else its promise would hold the next rebuild up */
	return handle_failed(acc, ret ? ret : left);
}

/* Have any views items in this shard? Else it is left alone. */
static bool shard_has_items(const struct rlv_writer *w, uint32_t s)
{
	for (uint32_t v = 0; v < w->h.desc->n_views; v++)
		if (w->items[v].shard_end[s] > (s ? w->items[v].shard_end[s - 1] : 0))
			return true;
	return false;
}

static int publish(struct rlv_writer *w)
{
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < w->h.n_shards; s++)
		if (shard_has_items(w, s))
			ret = publish_shard(w, s);
	for (uint32_t s = 0; ret == 0 && s < w->h.n_shards; s++)
		ret = raise_maxima(w, s);
	for (uint32_t v = 0; ret == 0 && v < w->h.desc->n_views; v++)
		if (w->items[v].n) {
			ret = limiter_commit_insert(&w->limiters[v], w->items[v].n, w->items[v].n);
			w->stats.items += w->items[v].n;
		}
	if (ret == -EOWNERDEAD)
		w->dead = true;
	return ret;
}

/* Asks for the lines that the next call of this size will write: they have left the cache. */
static void prefetch_rows(const struct rlv_writer *w, const struct stream *st, uint32_t n)
{
	const struct table_desc *desc = w->h.desc;
	uint32_t room = desc->block - st->blk.used;
	size_t bytes = (size_t)(n < room ? n : room) * desc->row_bytes;
	const uint8_t *rows = ring_row(&st->blk, st->blk.used);

	for (size_t off = 0; off < bytes && off < PREFETCH_BYTES; off += WIRE_LINE)
		__builtin_prefetch(rows + off, 1);
}

/* The planned rows are in: they become the stream's past. */
static void advance(struct rlv_writer *w, struct stream *st)
{
	uint32_t head = head_rows(w);
	uint32_t n = st->planned;

	memmove(st->meta.flags, st->meta.flags + n, head * sizeof(*st->meta.flags));
	memmove(st->meta.steps, st->meta.steps + n, head * sizeof(*st->meta.steps));
	memmove(st->meta.td, st->meta.td + n, head * sizeof(*st->meta.td));
	if (!w->direct)
		writer_keep_head(w, st, n);
	st->blk.used += n;
	if (w->direct)
		prefetch_rows(w, st, n);
	st->step = st->plan_step;
	st->in_episode = st->plan_in_episode;
	st->open_window = true;
	st->planned = 0;
}

/* -------- one stream -------- */

static int put_chunk(struct rlv_writer *w, struct stream *st, const struct source *src,
		     uint32_t *refused_view)
{
	int ret;

	st->staged = 0;
	plan_rows(w, st, src);
	begin_items(w);
	for (uint32_t s = 0; s < w->h.n_shards; s++) {
		if (st->blk.acc == &w->h.access[s])
			for (uint32_t v = 0; v < w->h.desc->n_views; v++)
				collect_items(w, st, v);
		end_shard_items(w, s);
	}
	ret = write_rows(w, st, src);
	if (ret == 0)
		ret = try_admit(w, refused_view);
	if (ret)
		return ret;
	ret = publish(w);
	advance(w, st); /* some may be published: their rows are not written again */
	return ret;
}

static int limiter_timeout(uint32_t v)
{
	return error_set(-ETIMEDOUT,
			 "append: the limiter of view %u admits no insert: its max_diff is reached "
			 "and nobody samples",
			 v);
}

/*
 * Puts as much of the source as the block and the limiter take, at least one row. A law narrower
 * than a chunk admits it row by row.
 */
static int put_some(struct rlv_writer *w, struct stream *st, struct source *src,
		    uint64_t deadline_ns)
{
	uint64_t began_ns = 0;
	uint32_t round = 0;
	uint32_t view = 0;
	int ret;

	for (;;) {
		ret = put_chunk(w, st, src, &view);
		if (ret != -EAGAIN && !(ret == -EINVAL && src->n > 1))
			break;
		if (src->n > 1) {
			src->n = (src->n + 1) / 2;
			continue;
		}
		if (!began_ns) {
			began_ns = clock_now_ns(w->h.clock);
			w->stats.limiter_waits++;
		}
		if (deadline_expired(w->h.clock, deadline_ns)) {
			ret = limiter_timeout(view);
			break;
		}
		handle_backoff(&w->h, &round, deadline_ns);
		ret = handle_check(&w->h);
		if (ret)
			break;
	}
	if (began_ns)
		w->stats.limiter_wait_ns += clock_now_ns(w->h.clock) - began_ns;
	return ret;
}

static int append_all(struct rlv_writer *w, uint32_t stream, const struct rlv_steps *steps,
		      uint32_t n, uint32_t *done_out)
{
	struct stream *st = &w->streams[stream];
	uint64_t deadline_ns = deadline_after(w->h.clock, w->timeout_ns);
	int ret = read_default_quanta(w);

	*done_out = 0;
	while (ret == 0 && *done_out < n) {
		struct source src = { .steps = steps, .first = *done_out };
		uint32_t room;

		ret = writer_room(w, st, deadline_ns);
		if (ret)
			break;
		room = w->h.desc->block - st->blk.used;
		src.n = n - *done_out < room ? n - *done_out : room;
		if (src.n > WRITER_CHUNK)
			src.n = WRITER_CHUNK;
		ret = put_some(w, st, &src, deadline_ns);
		if (ret == 0)
			*done_out += src.n;
	}
	return ret;
}

int writer_fill(struct rlv_writer *w, uint32_t stream, uint32_t n)
{
	uint32_t done;

	return append_all(w, stream, NULL, n, &done);
}

/* -------- the API -------- */

static int check_steps(const struct rlv_writer *w, const struct rlv_steps *steps)
{
	const struct table_desc *desc = w->h.desc;

	if (steps->size < sizeof(*steps))
		return error_set(-EINVAL, "steps->size %u: use RLV_STEPS_INIT", steps->size);
	if (!steps->columns)
		return error_set(-EINVAL, "steps->columns is NULL");
	for (uint32_t c = 0; c < desc->n_columns; c++)
		if (!steps->columns[c])
			return error_set(-EINVAL, "steps->columns[%u] (%s) is NULL", c,
					 desc->columns[c].name);
	for (uint32_t i = 0; steps->flags && i < steps->n; i++)
		if (steps->flags[i] & ~USER_FLAGS)
			return error_set(-EINVAL, "steps->flags[%u] 0x%x: not rlv_step_flags", i,
					 steps->flags[i]);
	for (uint32_t i = 0; steps->td_error && i < steps->n; i++)
		if (!(steps->td_error[i] >= 0 && isfinite(steps->td_error[i])))
			return error_set(-EINVAL,
					 "steps->td_error[%u] %g: want 0 or more, and finite", i,
					 steps->td_error[i]);
	return 0;
}

static int check_call(const struct rlv_writer *w)
{
	if (w->dead)
		return error_set(-EOWNERDEAD, "this writer was fenced: open another one");
	return handle_check(&w->h);
}

int rlv_writer_append(struct rlv_writer *writer, uint32_t stream, const struct rlv_steps *steps,
		      uint32_t *appended_out)
{
	uint32_t done = 0;
	int ret;

	if (!writer || !steps)
		return error_set(-EINVAL, "writer or steps is NULL");
	if (stream >= writer->n_streams)
		return error_set(-EINVAL, "stream %u: the writer has %u", stream,
				 writer->n_streams);
	ret = check_call(writer);
	if (ret == 0)
		ret = check_steps(writer, steps);
	if (ret)
		return ret;
	ret = append_all(writer, stream, steps, steps->n, &done);
	writer->stats.calls++;
	writer->stats.steps += done;
	if (appended_out && (ret == 0 || done))
		*appended_out = done;
	return ret;
}

/* One row of every stream, collected shard by shard. */
static int put_vector(struct rlv_writer *w, const struct rlv_steps *steps, uint32_t *refused_view)
{
	int ret = 0;

	begin_items(w);
	for (uint32_t s = 0; s < w->h.n_shards; s++) {
		for (uint32_t i = 0; ret == 0 && i < w->n_streams; i++) {
			struct stream *st = &w->streams[i];
			const struct source src = { .steps = steps, .first = i, .n = 1 };

			if (st->blk.acc != &w->h.access[s])
				continue;
			st->staged = i;
			plan_rows(w, st, &src);
			for (uint32_t v = 0; v < w->h.desc->n_views; v++)
				collect_items(w, st, v);
			ret = write_rows(w, st, &src);
		}
		end_shard_items(w, s);
	}
	if (ret == 0)
		ret = try_admit(w, refused_view);
	if (ret)
		return ret;
	ret = publish(w);
	for (uint32_t i = 0; i < w->n_streams; i++)
		advance(w, &w->streams[i]);
	return ret;
}

static int append_vector(struct rlv_writer *w, const struct rlv_steps *steps)
{
	uint64_t deadline_ns = deadline_after(w->h.clock, w->timeout_ns);
	uint32_t round = 0;
	uint32_t view = 0;
	int ret = read_default_quanta(w);

	for (uint32_t i = 0; ret == 0 && i < w->n_streams; i++)
		ret = writer_room(w, &w->streams[i], deadline_ns);
	while (ret == 0) {
		ret = put_vector(w, steps, &view);
		if (ret != -EAGAIN)
			break;
		w->stats.limiter_waits += round == 0;
		if (deadline_expired(w->h.clock, deadline_ns))
			return limiter_timeout(view);
		handle_backoff(&w->h, &round, deadline_ns);
		ret = handle_check(&w->h);
	}
	return ret;
}

int rlv_writer_append_vector(struct rlv_writer *writer, const struct rlv_steps *steps)
{
	int ret;

	if (!writer || !steps)
		return error_set(-EINVAL, "writer or steps is NULL");
	if (steps->n != writer->n_streams)
		return error_set(-EINVAL, "steps->n %u: the writer has %u streams", steps->n,
				 writer->n_streams);
	ret = check_call(writer);
	if (ret == 0)
		ret = check_steps(writer, steps);
	if (ret == 0)
		ret = append_vector(writer, steps);
	writer->stats.calls++;
	if (ret == 0)
		writer->stats.steps += steps->n;
	return ret;
}

/*
 * Rows of a call into the blocks of their streams, and the items that they complete.
 *
 *   plan      flags and steps of the new rows; which leaves become items, with which priority
 *   place     rows built in place (or staged and written): nobody draws them yet
 *   admit     the limiters, all views or none
 *   publish   CAS {gen, 0} -> {gen, p}; flush; commit
 *
 * When a node is lost on the way, the streams that had their blocks there claim others, where the
 * rows that are planned and not yet published are placed again; what was admitted stays so.
 */
#include "client/append.h"

#include "ds/priority.h"
#include "ds/window.h"

#include <errno.h>
#include <string.h>

#define PREFETCH_BYTES 4096
#define MAXIMA_AGE_NS (10 * (uint64_t)CLOCK_NS_PER_MS) /* of running maxima read over a wire */

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

/* -------- priorities of new items -------- */

static void take_maxima(struct rlv_writer *w)
{
	for (uint32_t v = 0; v < w->h.desc->n_views; v++) {
		uint64_t most = w->max_quanta[v];

		w->default_quanta[v] = most ? most : w->h.desc->views[v].scale;
	}
}

static int read_maxima_of(struct rlv_writer *w, const struct shard *shard)
{
	int ret = 0;

	for (uint32_t v = 0; ret == 0 && v < w->h.desc->n_views; v++) {
		uint64_t word;

		ret = priority_max_read(shard, v, &word);
		if (ret == 0 && word > w->max_quanta[v])
			w->max_quanta[v] = word;
	}
	return ret;
}

/* All words in one phase. */
static int read_maxima_across(struct rlv_writer *w)
{
	struct transport_io io[TRANSPORT_VECTOR];
	uint64_t words[TRANSPORT_VECTOR];
	uint32_t n_views = w->h.desc->n_views;
	uint32_t s = 0;

	while (s < w->h.nodes.n_shards) {
		uint32_t n = 0;
		int ret;

		for (; s < w->h.nodes.n_shards && n + n_views <= TRANSPORT_VECTOR; s++)
			for (uint32_t v = 0; w->h.nodes.shards[s] && v < n_views; v++, n++)
				io[n] = (struct transport_io){
					.region = w->h.nodes.shards[s]->tree,
					.off = w->h.desc->views[v].words_off +
					       offsetof(struct view_words, max_priority),
					.dst = &words[n],
					.len = 8,
				};
		ret = transport_read_across(io, n);
		if (ret)
			return ret;
		for (uint32_t i = 0; i < n; i++)
			if (words[i] > w->max_quanta[i % n_views])
				w->max_quanta[i % n_views] = words[i];
	}
	return 0;
}

/* New items take the running maximum of the view over all shards, 1.0 before the first. */
int writer_read_maxima(struct rlv_writer *w)
{
	int ret = 0;

	if (!w->addressable) {
		uint64_t now_ns = clock_now_ns(w->h.clock);

		if (now_ns - w->maxima_ns < MAXIMA_AGE_NS)
			return 0;
		w->maxima_ns = now_ns;
	}
	memset(w->max_quanta, 0, sizeof(w->max_quanta));
	if (!w->addressable)
		ret = read_maxima_across(w);
	for (uint32_t s = 0; w->addressable && ret == 0 && s < w->h.nodes.n_shards; s++)
		if (w->h.nodes.shards[s])
			ret = read_maxima_of(w, w->h.nodes.shards[s]);
	if (ret)
		w->maxima_ns = 0;
	else
		take_maxima(w);
	return ret;
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

static void fill_rows(const struct rlv_writer *w, const struct stream *st, uint8_t *rows,
		      const struct source *src)
{
	const struct table_desc *desc = w->h.desc;

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
}

/* Row writes of several streams, one each, that go out together. */
struct row_writes {
	struct transport_io io[TRANSPORT_VECTOR];
	uint32_t n;
};

static int send_writes(struct row_writes *writes)
{
	int ret = writes->n ? transport_write_across(writes->io, writes->n) : 0;

	writes->n = 0;
	return ret;
}

static int queue_write(const struct rlv_writer *w, const struct stream *st, const uint8_t *row,
		       struct row_writes *writes)
{
	const struct shard *shard = st->blk.acc->shard;

	writes->io[writes->n++] = (struct transport_io){
		.region = shard->rows,
		.off = shard_row_off(shard, st->blk.first + st->blk.used),
		.src = row,
		.len = w->h.desc->row_bytes,
	};
	return writes->n == TRANSPORT_VECTOR ? send_writes(writes) : 0;
}

static int write_rows(struct rlv_writer *w, struct stream *st, const struct source *src,
		      struct row_writes *writes)
{
	uint32_t row_bytes = w->h.desc->row_bytes;
	uint8_t *rows = st->direct ? ring_row(&st->blk, st->blk.used)
				   : w->stage + (size_t)st->staged * row_bytes;

	fill_rows(w, st, rows, src);
	if (st->direct) {
		transport_account_write(st->blk.acc->shard->rows->tr, src->n,
					(uint64_t)src->n * row_bytes);
		return 0;
	}
	if (src->n > 1)
		return ring_write(&st->blk, st->blk.used, rows, src->n);
	return queue_write(w, st, rows, writes);
}

/* -------- place -------- */

static void collect_stream(struct rlv_writer *w, const struct stream *st)
{
	for (uint32_t v = 0; v < w->h.desc->n_views; v++)
		collect_items(w, st, v);
}

static struct source source_of(const struct put *put, uint32_t i)
{
	struct source src = put->src;

	src.first += i;
	return src;
}

/* Rows and items of the streams that have some planned, shard by shard. */
static int place(struct rlv_writer *w, const struct put *put)
{
	struct row_writes writes;
	int ret = 0;

	writes.n = 0;
	begin_items(w);
	for (uint32_t s = 0; s < w->h.nodes.n_shards; s++) {
		for (uint32_t i = 0; ret == 0 && i < put->n; i++) {
			struct stream *st = &put->streams[i];
			const struct source src = source_of(put, i);

			if (!st->planned || !st->blk.acc || st->blk.acc != w->h.access[s])
				continue;
			st->staged = i;
			collect_stream(w, st);
			ret = write_rows(w, st, &src, &writes);
		}
		end_shard_items(w, s);
	}
	return ret ? ret : send_writes(&writes);
}

/* -------- admit and publish -------- */

/* Admits the collected items of every view, or of none. */
static int try_admit(struct rlv_writer *w, uint32_t *refused_view)
{
	uint32_t v;
	int ret = 0;

	for (v = 0; v < w->h.desc->n_views; v++) {
		w->admitted[v] = w->items[v].n;
		ret = w->items[v].n ? admission_try_insert(&w->admissions[v], w->items[v].n) : 0;
		if (ret)
			break;
	}
	if (ret == 0)
		return 0;
	*refused_view = v;
	while (v-- > 0) {
		int undo = w->items[v].n ? admission_commit_insert(&w->admissions[v],
								   w->items[v].n, 0)
					 : 0;
		if (undo)
			return undo;
	}
	return ret;
}

/* What was published counts for the view's running maximum. */
static int raise_max(struct rlv_writer *w, uint32_t s, uint32_t v)
{
	const struct view_items *items = &w->items[v];
	uint64_t most = w->max_quanta[v];

	if (w->h.desc->views[v].selector != RLV_PRIORITIZED)
		return 0;
	for (uint32_t i = s ? items->shard_end[s - 1] : 0; i < items->shard_end[s]; i++)
		most = items->ops[i].priority > most ? items->ops[i].priority : most;
	if (most == w->max_quanta[v])
		return 0;
	if (!w->addressable) /* as will be read in a while */
		w->max_quanta[v] = w->default_quanta[v] = most;
	return priority_max_raise(w->h.nodes.shards[s], v, most);
}

static int raise_maxima(struct rlv_writer *w, uint32_t s)
{
	int ret = 0;

	for (uint32_t v = 0; ret == 0 && v < w->h.desc->n_views; v++)
		ret = raise_max(w, s, v);
	return ret;
}

static int publish_shard(struct rlv_writer *w, uint32_t s)
{
	struct access *acc = w->h.access[s];
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

/* Items of all views in this shard. Without any it is left alone. */
static uint32_t shard_items(const struct rlv_writer *w, uint32_t s)
{
	uint32_t n = 0;

	for (uint32_t v = 0; v < w->h.desc->n_views; v++)
		n += w->items[v].shard_end[s] - (s ? w->items[v].shard_end[s - 1] : 0);
	return n;
}

static bool is_broken(const struct access *acc)
{
	return acc->shard->tree->tr->broken != 0;
}

/* Over all shards, also when one is lost. The first error. */
static int publish(struct rlv_writer *w)
{
	int first = 0;

	for (uint32_t s = 0; s < w->h.nodes.n_shards; s++) {
		uint32_t n = shard_items(w, s);
		int ret = n ? publish_shard(w, s) : 0;

		if (n && ret == 0) {
			w->published[s] += n;
			ret = raise_maxima(w, s);
		}
		first = first ? first : ret;
		if (ret && !is_broken(w->h.access[s]))
			break;
	}
	if (first == -EOWNERDEAD)
		w->dead = true;
	return first;
}

static int commit(struct rlv_writer *w)
{
	int first = 0;

	for (uint32_t v = 0; v < w->h.desc->n_views; v++) {
		uint32_t n = w->admitted[v];
		int ret = n ? admission_commit_insert(&w->admissions[v], n, n) : 0;

		w->stats.items += n;
		first = first ? first : ret;
	}
	return first;
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
	if (!st->direct)
		writer_keep_head(w, st, n);
	st->blk.used += n;
	if (st->direct)
		prefetch_rows(w, st, n);
	st->step = st->plan_step;
	st->in_episode = st->plan_in_episode;
	st->open_window = true;
	st->planned = 0;
}

/* -------- the whole -------- */

/* Streams whose rows and items are in their shard: all but those of a shard that was lost. */
static void advance_all(struct rlv_writer *w, const struct put *put, bool lost)
{
	for (uint32_t i = 0; i < put->n; i++) {
		struct stream *st = &put->streams[i];

		if (st->planned && !(lost && (!st->blk.acc || is_broken(st->blk.acc))))
			advance(w, st);
	}
}

/* Blocks for the streams that have none, or none with room: those that are lost meanwhile, too. */
int writer_rooms(struct rlv_writer *w, const struct put *put)
{
	uint32_t i = 0;

	while (i < put->n) {
		struct stream *st = &put->streams[i++];
		int ret;

		if (stream_has_room(w, st))
			continue;
		ret = writer_room(w, st, put->deadline_ns);
		if (ret)
			return ret;
		i = 0;
	}
	return 0;
}

/*
 * A node was lost: 0 = what is planned can be placed anew. Nothing was, or an error that is none of
 * a node's: passed on.
 */
static int go_on(struct rlv_writer *w, const struct put *put, int error)
{
	int ret = handle_recover(&w->h, error, w->timeout_ns);

	if (ret && !handle_may_heal(&w->h, ret))
		return ret;
	if (ret == error && deadline_expired(w->h.clock, put->deadline_ns))
		return ret;
	return writer_rooms(w, put);
}

static bool is_planned(const struct put *put)
{
	for (uint32_t i = 0; i < put->n; i++)
		if (put->streams[i].planned)
			return true;
	return false;
}

int writer_put(struct rlv_writer *w, const struct put *put, uint32_t *refused_view)
{
	int ret;

	for (uint32_t i = 0; i < put->n; i++) {
		const struct source src = source_of(put, i);

		plan_rows(w, &put->streams[i], &src);
	}
	do
		ret = place(w, put);
	while (ret && (ret = go_on(w, put, ret)) == 0);
	if (ret == 0)
		ret = try_admit(w, refused_view);
	if (ret)
		return ret;
	for (;;) {
		ret = publish(w);
		advance_all(w, put, ret != 0 && node_set_has_broken(&w->h.nodes));
		while (ret && (ret = go_on(w, put, ret)) == 0 && is_planned(put))
			ret = place(w, put);
		if (ret || !is_planned(put))
			break;
	}
	return ret ? ret : commit(w);
}

/*
 * Rows of a call into the blocks of their streams, and the items that they complete.
 *
 *   plan      flags and steps of the new rows (client/writer/plan.c)
 *   place     rows built in place, or staged: nobody draws them yet; which leaves become items, with which
 *             priority
 *   admit     the limiters, all views or none
 *   publish   rows, where they were staged; CAS {gen, 0} -> {gen, p}; flush; commit
 *
 * When a node is lost on the way, the put is made again: the streams that had their blocks there claim
 * others, where the rows that are planned and not yet published are placed; what was admitted stays so.
 */
#include "client/writer/append.h"

#include "ds/replay/change.h"
#include "ds/replay/priority.h"

#include "base/bits.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

/* -------- priorities of new items -------- */

/* Takes in what this writer has stored; its shard may have had its turn. */
static void maximum_see(struct maximum *max, uint64_t quanta)
{
	max->now = max_u64(max->now, quanta);
	max->last = max_u64(max->last, quanta);
}

/*
 * New items without a TD error take the running maximum of the view over all shards, 1.0 before the
 * first: of each shard as its turn last came, where the maxima of many are read in turn; over a wire
 * the last one that the access has seen.
 */
int writer_read_maxima(struct rlv_writer *w)
{
	struct part_turn *turn = &w->turn;

	part_turn_next(turn, w->h.set.n_parts, w->h.set.now_ns);
	for (uint32_t v = 0; v < w->h.desc->n_views; v++) {
		struct maximum *max = &w->maxima[v];

		max->now = turn->first ? max->now : 0;
		for (uint32_t s = turn->first; s < turn->end; s++) {
			const struct access *acc = handle_access(&w->h, s);
			uint64_t word = acc && acc->chained ? acc->max_seen[v] : 0;
			int ret = acc && !acc->chained ? priority_max_read(acc->shard, v, &word)
						       : 0;

			if (ret)
				return ret;
			max->now = max_u64(max->now, word);
		}
		if (turn->end == w->h.set.n_parts)
			max->last = max->now;
		w->default_quanta[v] = max_u64(max->last, max->now);
		if (!w->default_quanta[v])
			w->default_quanta[v] = w->h.desc->views[v].scale;
	}
	return 0;
}

/* -------- place -------- */

/* Places what is planned in the shard of the put's stream `first`: that stream, and those behind it
   that are in the same shard. Makes a change of it. */
static int writer_place_shard(struct rlv_writer *w, const struct append_batch *put, uint32_t first)
{
	struct shard_change *ch = &w->changes[w->n_changes];
	struct access *acc = put->streams[first].blk.acc;
	uint32_t n_views = w->h.desc->n_views, rows_before = w->n_rows, n;
	uint32_t placed = 0;
	int ret = 0;

	for (uint32_t i = first; ret == 0 && i < put->n; i++) {
		struct stream *st = &put->streams[i];

		if (!st->to_place || st->blk.acc != acc)
			continue;
		st->to_place = false;
		w->placed[placed++] = st;
		ret = st->next ? 0 : writer_send_rows(w, st);
	}
	w->n_placed = placed;
	for (uint32_t v = 0; v < n_views; v++)
		writer_collect_items(w, v);
	n = w->n_rows - rows_before;
	change_begin(ch, acc);
	ch->rows = w->rows + rows_before;
	ch->n_rows = n;
	for (uint32_t v = 0; v < n_views; v++) {
		struct view_items *items = &w->items[v];

		ch->ops[v] = items->ops + items->taken;
		ch->n[v] = items->n - items->taken;
		items->taken = items->n;
		n += ch->n[v];
	}
	w->n_changes += n > 0; /* else the shard is left alone */
	return ret;
}

/* Builds the planned rows, of streams that lie side by side in one go. Returns the number of streams. */
static uint32_t writer_build(struct rlv_writer *w, const struct append_batch *put)
{
	struct stream *streams = put->streams;
	uint32_t n = 0;

	for (uint32_t from = 0, to; from < put->n; from = to) {
		to = from;
		while (to < put->n && streams[to].planned &&
		       !streams[to].next == !streams[from].next) {
			streams[to].staged = to;
			streams[to++].to_place = true;
		}
		n += to - from;
		if (to > from)
			writer_build_rows(w, put, from, to);
		else
			streams[to++].to_place = false;
	}
	return n;
}

/* Builds the planned rows of the streams and collects their items; makes in w->changes a change
   for each shard that gets staged rows or items. */
static int writer_place(struct rlv_writer *w, const struct append_batch *put)
{
	uint32_t left; /* streams to place */
	int ret = 0;

	for (uint32_t v = 0; v < w->h.desc->n_views; v++) {
		w->items[v].n = w->items[v].taken = 0;
		w->items[v].most = 0;
	}
	w->n_rows = 0;
	w->n_changes = 0;
	left = writer_build(w, put);
	for (uint32_t i = 0, placed = 0; ret == 0 && placed < left; i++) {
		if (!put->streams[i].to_place)
			continue;
		ret = writer_place_shard(w, put, i);
		placed += w->n_placed;
	}
	return ret;
}

/* -------- admit and publish -------- */

/* Admits the collected items of every view, or of none; w->waits_for is the view that refuses. */
static int writer_admit(struct rlv_writer *w)
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
	w->waits_for = v;
	while (v-- > 0) {
		int undo = w->items[v].n
				   ? admission_commit_insert(&w->admissions[v], w->items[v].n, 0)
				   : 0;
		if (undo)
			return undo;
	}
	return ret;
}

/* Counts the items of a change. True: they are the first ones of a shard, and others need not see them yet. */
static bool writer_count_published(struct rlv_writer *w, const struct shard_change *ch)
{
	uint64_t *published = &w->published[ch->acc->shard->desc.shard];
	bool first = *published == 0 && ch->acc->chained;

	for (uint32_t v = 0; v < w->h.desc->n_views; v++)
		*published += ch->n[v];
	return first && *published;
}

/*
 * After the first items of a shard neither its sums nor the view's count may be 0 any more: a sampler that does
 * not wait would be told that there are no items. What fails here, a later call finds.
 */
static void writer_show_first(struct rlv_writer *w)
{
	for (uint32_t i = 0; i < w->n_changes; i++)
		if (access_flush(w->changes[i].acc))
			log_debug("append: %s", error_last());
	for (uint32_t v = 0; v < w->h.desc->n_views; v++)
		if (admission_wait(&w->admissions[v]))
			log_debug("append: %s", error_last());
}

/*
 * Publishes in all shards, also when one is lost; an error of a reachable shard is returned first.
 * -EEXIST: a leaf of ours held noise; its item and all others are published. *first_out: the first items of a shard
 * are among them.
 */
static int writer_publish(struct rlv_writer *w, bool *first_out)
{
	int ret = 0, lost = 0;

	*first_out = false;
	if (change_publish(w->changes, w->n_changes)) /* judged below, shard by shard */
		log_debug("append: %s", error_last());
	for (uint32_t i = 0; i < w->n_changes; i++) {
		const struct shard_change *ch = &w->changes[i];
		int failed = handle_failed(ch->acc, ch->ret);

		if (ch->ret == 0 || ch->ret == -EEXIST)
			*first_out |= writer_count_published(w, ch);
		else if (access_is_broken(ch->acc))
			lost = lost ? lost : failed;
		else
			ret = failed;
	}
	return ret ? ret : lost;
}

/* -------- the whole -------- */

/* Has the lines of the stream's next rows loaded, which have left the cache: the next call of this size
   writes them. */
static inline void stream_prefetch_rows(const struct stream *st, uint64_t bytes)
{
	const uint8_t *end = st->next + min_u64(bytes, 4096);

	for (const uint8_t *line = st->next; line < end; line += WIRE_LINE)
		__builtin_prefetch(line, 1);
}

/* Makes the published rows of the call their streams' past, and moves the streams on in their
   blocks; lost: but not the rows of a lost shard, which stay planned. */
static void writer_advance(struct rlv_writer *w, const struct append_batch *put, bool lost)
{
	const struct table_desc *desc = w->h.desc;
	const struct stream *end = put->streams + put->n;
	const uint32_t row_bytes = desc->row_bytes, block = desc->block;
	const bool soon = row_bytes < WRITER_STREAM_LEAST;

	for (struct stream *st = put->streams; st < end; st++) {
		uint32_t n = st->planned;

		if (!n || (lost && (!st->blk.acc || access_is_broken(st->blk.acc))))
			continue;
		st->past += n;
		if (st->past > STREAM_META - WRITER_CHUNK)
			stream_rewind_meta(w, st);
		st->blk.used += n;
		st->course = st->planned_course;
		st->open_window = true;
		st->planned = 0;
		if (!st->next) {
			writer_keep_head(w, st, n);
			continue;
		}
		st->next += (size_t)n * row_bytes;
		n = n < block - st->blk.used ? n : block - st->blk.used;
		if (soon)
			stream_prefetch_rows(st, (size_t)n * row_bytes);
	}
}

int writer_rooms(struct rlv_writer *w, const struct append_batch *put)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < put->n; i++)
		if (!stream_has_room(w, &put->streams[i]))
			ret = writer_room(w, &put->streams[i]);
	if (ret)
		w->waits_for = WRITER_ROOM;
	return ret;
}

int writer_append_batch(struct append_batch *put)
{
	struct rlv_writer *w = put->w;
	const struct table_desc *desc = w->h.desc;
	int ret = writer_rooms(w, put), first = 0;
	bool shows;

	if (ret)
		return ret;
	if (!put->admitted) {
		/* As many of the rows as the first stream's block takes, and one write of 1 GiB. */
		uint64_t most = max_u64(((uint32_t)1 << 30) / desc->row_bytes, 1);
		uint64_t n = min_u64(put->src.n, desc->block - put->streams->blk.used);

		put->src.n = (uint32_t)min_u64(min_u64(n, most), WRITER_CHUNK);
		writer_plan(w, put);
	}
	ret = writer_place(w, put);
	if (ret == 0 && !put->admitted)
		ret = writer_admit(w);
	if (ret)
		return ret;
	put->admitted = true;
	ret = writer_publish(w, &shows);
	writer_advance(w, put, ret != 0 && part_set_has_broken(&w->h.set));
	if (ret && shows)
		writer_show_first(w);
	if (ret)
		return ret;
	for (uint32_t v = 0; v < desc->n_views; v++) {
		uint32_t n = w->admitted[v];

		maximum_see(&w->maxima[v], w->items[v].most);
		ret = n ? admission_commit_insert(&w->admissions[v], n, n) : 0;
		first = first ? first : ret;
		w->admitted[v] = 0; /* once, also when the step is made again */
		w->stats.items += n;
	}
	if (shows)
		writer_show_first(w);
	w->stats.truncated_lost += w->planned_lost;
	return first;
}

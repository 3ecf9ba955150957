/*
 * Rows of a call into the blocks of their streams, and the items that they complete.
 *
 *   plan      flags and steps of the new rows; which leaves become items, with which priority
 *   place     rows built in place, or staged: nobody draws them yet
 *   admit     the limiters, all views or none
 *   publish   rows, where they were staged; CAS {gen, 0} -> {gen, p}; flush; commit
 *
 * When a node is lost on the way, the put is made again: the streams that had their blocks there claim
 * others, where the rows that are planned and not yet published are placed; what was admitted stays so.
 */
#include "client/writer/append.h"

#include "ds/replay/change.h"
#include "ds/replay/priority.h"
#include "ds/window/window.h"

#include "base/bits.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

/* -------- plan -------- */

/* Number of rows, of n from the first on, before the first that has a flag. flags NULL: n. */
static uint32_t rows_unflagged(const uint16_t *flags, uint32_t n)
{
	uint64_t four = 0;
	uint32_t i = 0;

	if (!flags)
		return n;
	for (; i + 4 <= n; i += 4) {
		memcpy(&four, flags + i, sizeof(four));
		if (four)
			break;
	}
	while (i < n && !flags[i])
		i++;
	return i;
}

static void stream_plan_rows(struct rlv_writer *w, struct stream *st, const struct source *src)
{
	const struct rlv_steps *steps = src->steps;
	const uint16_t *flags = steps && steps->flags ? steps->flags + src->first : NULL;
	const double *td = steps && steps->td_error ? steps->td_error + src->first : NULL;
	const uint16_t ends = ROW_TERMINATED | ROW_TRUNCATED | ROW_FINAL | ROW_FILLER;
	uint32_t head = head_rows(w);
	uint32_t step = st->step;
	bool in_episode = st->in_episode;

	for (uint32_t i = 0; i < src->n; i++)
		st->meta.td[head + i] = td ? td[i] : -1;
	for (uint32_t i = 0, run; i < src->n; i += run) {
		uint16_t f = steps ? 0 : ROW_FILLER;

		run = steps && in_episode ? rows_unflagged(flags ? flags + i : NULL, src->n - i)
					  : 0;
		run = run < UINT32_MAX - step ? run : UINT32_MAX - step;
		if (run) { /* rows in the midst of an episode, as most are */
			uint32_t *planned = st->meta.steps + head + i;

			memset(st->meta.flags + head + i, 0, run * sizeof(*st->meta.flags));
			for (uint32_t k = 0; k < run; k++)
				planned[k] = step + k;
			step += run;
			continue;
		}
		run = 1;
		if (flags)
			f |= flags[i];
		if (!in_episode && !(f & (ROW_FINAL | ROW_FILLER))) {
			f |= ROW_FIRST;
			step = 0;
		}
		/* The step before was truncated, and got no final observation. */
		if (!in_episode && head && w->has_obs && !(f & ROW_FINAL))
			w->planned_lost += (st->meta.flags[head + i - 1] &
					    (ROW_TERMINATED | ROW_TRUNCATED)) == ROW_TRUNCATED;
		st->meta.flags[head + i] = f;
		st->meta.steps[head + i] = step;
		in_episode = !(f & ends);
		step += step < UINT32_MAX;
	}
	st->planned = src->n;
	st->plan_step = step;
	st->plan_in_episode = in_episode;
}

/* Adds the items of view v that the stream's planned rows complete to w->items[v]. A window
   without flags is an item, unless the view has a period. */
static void stream_collect_items(struct rlv_writer *w, const struct stream *st, uint32_t v)
{
	const struct view_desc *view = &w->h.desc->views[v];
	struct view_items *items = &w->items[v];
	struct leaf_op *op = items->ops + items->n;
	uint32_t from = head_rows(w) + 1 - view->window;
	const uint16_t *flags = st->meta.flags + from;
	const uint32_t *steps = st->meta.steps + from;
	const double *td = st->meta.td + from + view->window - 1 - view->future;
	uint64_t usual = view->selector == RLV_PRIORITIZED ? w->default_quanta[v] : 1;
	uint32_t slot = st->blk.first + st->blk.used, gen = st->blk.gen;
	uint32_t calm = view->period > 1 ? UINT32_MAX : view->window; /* rows that make an item */
	uint64_t most = items->most;
	uint32_t run = 0; /* unflagged rows up to the last one of the window */

	for (uint32_t i = 0; i + 1 < view->window; i++)
		run = flags[i] ? 0 : run + 1;
	for (uint32_t i = 0; i < st->planned; i++) {
		const struct window_flags rows = { flags + i, steps + i };
		uint64_t priority = usual;

		run = flags[i + view->window - 1] ? 0 : run + 1;
		if (run < calm && !window_is_item(view, &rows, w->has_obs))
			continue;
		if (td[i] >= 0 && view->selector == RLV_PRIORITIZED) {
			priority = priority_quanta_one(view, td[i], &w->stats.clamped);
			most = max_u64(most, priority);
		}
		*op++ = (struct leaf_op){ .slot = slot + i, .gen = gen, .priority = priority };
	}
	items->n = (uint32_t)(op - items->ops);
	items->most = most;
}

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

static struct source put_source(const struct append_batch *put, uint32_t i)
{
	struct source src = put->src;

	src.first += i;
	return src;
}

/* Places what is planned in the shard of the put's stream `first`: that stream, and those behind it
   that are in the same shard. Makes a change of it. */
static int writer_place_shard(struct rlv_writer *w, const struct append_batch *put, uint32_t first)
{
	struct shard_change *ch = &w->changes[w->n_changes];
	struct access *acc = put->streams[first].blk.acc;
	uint32_t n_views = w->h.desc->n_views, rows_before = w->n_rows, n;
	int ret = 0;

	for (uint32_t i = first; ret == 0 && i < put->n; i++) {
		struct stream *st = &put->streams[i];
		const struct source src = put_source(put, i);

		if (!st->to_place || st->blk.acc != acc)
			continue;
		st->to_place = false;
		st->staged = i;
		for (uint32_t v = 0; v < n_views; v++)
			stream_collect_items(w, st, v);
		ret = writer_write_rows(w, st, &src);
	}
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

/* Writes the planned rows of the streams and collects their items; makes in w->changes a change
   for each shard that gets staged rows or items. */
static int writer_place(struct rlv_writer *w, const struct append_batch *put)
{
	int ret = 0;

	for (uint32_t v = 0; v < w->h.desc->n_views; v++) {
		w->items[v].n = w->items[v].taken = 0;
		w->items[v].most = 0;
	}
	w->n_rows = 0;
	w->n_changes = 0;
	for (uint32_t i = 0; i < put->n; i++)
		put->streams[i].to_place = put->streams[i].planned > 0;
	for (uint32_t i = 0; ret == 0 && i < put->n; i++)
		if (put->streams[i].to_place)
			ret = writer_place_shard(w, put, i);
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

/*
 * Counts the items of a change. After the first ones of a shard the sums must not be 0 any more: a
 * sampler that does not wait would be told that there are no items. What fails here, a later call finds.
 */
static void writer_count_published(struct rlv_writer *w, const struct shard_change *ch)
{
	uint64_t *published = &w->published[ch->acc->shard->desc.shard];
	bool first = *published == 0 && ch->acc->chained;

	for (uint32_t v = 0; v < w->h.desc->n_views; v++)
		*published += ch->n[v];
	if (first && *published && access_flush(ch->acc))
		log_debug("append: %s", error_last());
}

/*
 * Publishes in all shards, also when one is lost; an error of a reachable shard is returned first.
 * -EEXIST: a leaf of ours held noise; its item and all others are published.
 */
static int writer_publish(struct rlv_writer *w)
{
	int ret = 0, lost = 0;

	if (change_publish(w->changes, w->n_changes)) /* judged below, shard by shard */
		log_debug("append: %s", error_last());
	for (uint32_t i = 0; i < w->n_changes; i++) {
		const struct shard_change *ch = &w->changes[i];
		int failed = handle_failed(ch->acc, ch->ret);

		if (ch->ret == 0 || ch->ret == -EEXIST)
			writer_count_published(w, ch);
		else if (access_is_broken(ch->acc))
			lost = lost ? lost : failed;
		else
			ret = failed;
	}
	return ret ? ret : lost;
}

/* -------- the whole -------- */

/* Makes the published rows of the call their streams' past, and moves the streams on in their
   blocks; lost: but not the rows of a lost shard, which stay planned. */
static void writer_advance(struct rlv_writer *w, const struct append_batch *put, bool lost)
{
	const struct table_desc *desc = w->h.desc;
	uint32_t head = head_rows(w);
	const size_t most = 4096;

	for (uint32_t i = 0; i < put->n; i++) {
		struct stream *st = &put->streams[i];
		uint32_t n = st->planned;
		const uint8_t *next;
		size_t bytes;

		if (!n || (lost && (!st->blk.acc || access_is_broken(st->blk.acc))))
			continue;
		memmove(st->meta.flags, st->meta.flags + n, head * sizeof(*st->meta.flags));
		memmove(st->meta.steps, st->meta.steps + n, head * sizeof(*st->meta.steps));
		memmove(st->meta.td, st->meta.td + n, head * sizeof(*st->meta.td));
		if (!st->direct)
			writer_keep_head(w, st, n);
		st->blk.used += n;
		st->step = st->plan_step;
		st->in_episode = st->plan_in_episode;
		st->open_window = true;
		st->planned = 0;
		if (!st->direct || desc->row_bytes >= WRITER_STREAM_LEAST)
			continue;
		/* The next call of this size will write these lines: they have left the cache. */
		next = ring_row(&st->blk, st->blk.used);
		bytes = min_u64(min_u64(n, desc->block - st->blk.used) * desc->row_bytes, most);
		for (const uint8_t *line = next; line < next + bytes; line += WIRE_LINE)
			__builtin_prefetch(line, 1);
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

	if (ret)
		return ret;
	if (!put->admitted) {
		/* As many of the rows as the first stream's block takes, and one write of 1 GiB. */
		uint64_t most = max_u64(((uint32_t)1 << 30) / desc->row_bytes, 1);
		uint64_t n = min_u64(put->src.n, desc->block - put->streams->blk.used);

		put->src.n = (uint32_t)min_u64(min_u64(n, most), WRITER_CHUNK);
		w->planned_lost = 0;
		for (uint32_t i = 0; i < put->n; i++) {
			const struct source src = put_source(put, i);

			stream_plan_rows(w, &put->streams[i], &src);
		}
	}
	ret = writer_place(w, put);
	if (ret == 0 && !put->admitted)
		ret = writer_admit(w);
	if (ret)
		return ret;
	put->admitted = true;
	ret = writer_publish(w);
	writer_advance(w, put, ret != 0 && part_set_has_broken(&w->h.set));
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
	w->stats.truncated_lost += w->planned_lost;
	return first;
}

/*
 * What the rows of a call are, before they are written: their flags and steps, and the items that they complete.
 */
#include "client/writer/append.h"

#include "ds/replay/priority.h"
#include "ds/window/window.h"

#include "base/bits.h"

#include <string.h>

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

/* Plans the stream's row `at` of its metadata, whose flags are f so far. */
static inline void stream_plan_row(struct rlv_writer *w, const struct stream *st, uint32_t at,
				   uint16_t f, struct row_course *course)
{
	const uint16_t ends = ROW_TERMINATED | ROW_TRUNCATED | ROW_FINAL | ROW_FILLER;
	const struct row_meta meta = stream_meta(st);

	if (!course->in_episode) {
		if (!(f & (ROW_FINAL | ROW_FILLER))) {
			f |= ROW_FIRST;
			course->step = 0;
		}
		/* The step before was truncated, and got no final observation. */
		if (head_rows(w) && w->has_obs && !(f & ROW_FINAL))
			w->planned_lost += (meta.flags[at - 1] &
					    (ROW_TERMINATED | ROW_TRUNCATED)) == ROW_TRUNCATED;
	}
	meta.flags[at] = f;
	meta.steps[at] = course->step;
	course->in_episode = !(f & ends);
	course->calm = f ? 0 : course->calm + (course->calm < COURSE_CALM_MOST);
	course->step += course->step < UINT32_MAX;
}

/* Plans the stream's only row of the call. */
static inline void stream_plan_one(struct rlv_writer *w, struct stream *st, uint32_t head,
				   uint16_t f)
{
	const uint32_t step = st->course.step, calm = st->course.calm;

	if (f || !st->course.in_episode || step == UINT32_MAX) {
		st->planned_course = st->course;
		stream_plan_row(w, st, head, f, &st->planned_course);
		return;
	}
	stream_meta(st).flags[head] = 0; /* in the midst of an episode, as most are */
	stream_meta(st).steps[head] = step;
	st->planned_course.step = step + 1;
	st->planned_course.calm = calm + (calm < COURSE_CALM_MOST);
	st->planned_course.in_episode = true;
}

/* Plans n rows of the stream; flags NULL: all have the flag `all`. */
static void stream_plan_rows(struct rlv_writer *w, struct stream *st, uint32_t n,
			     const uint16_t *flags, uint16_t all)
{
	const struct row_meta meta = stream_meta(st);
	struct row_course course = st->course;
	uint32_t head = head_rows(w);

	for (uint32_t i = 0, run; i < n; i += run) {
		run = course.in_episode && !all ? rows_unflagged(flags ? flags + i : NULL, n - i)
						: 0;
		run = run < UINT32_MAX - course.step ? run : UINT32_MAX - course.step;
		if (run == 0) {
			stream_plan_row(w, st, head + i, flags ? flags[i] : all, &course);
			run = 1;
			continue;
		}
		/* in the midst of an episode, as most are */
		memset(meta.flags + head + i, 0, run * sizeof(*meta.flags));
		for (uint32_t k = 0; k < run; k++)
			meta.steps[head + i + k] = course.step + k;
		course.step += run;
		course.calm = (uint32_t)min_u64(course.calm + run, COURSE_CALM_MOST);
	}
	st->planned_course = course;
}

void writer_plan(struct rlv_writer *w, const struct append_batch *put)
{
	const struct rlv_steps *steps = put->src.steps;
	const uint16_t *flags = steps && steps->flags ? steps->flags + put->src.first : NULL;
	const double *td = steps && steps->td_error ? steps->td_error + put->src.first : NULL;
	const struct stream *end = put->streams + put->n;
	uint32_t head = head_rows(w), n = put->src.n, row = 0;
	uint16_t all = steps ? 0 : ROW_FILLER;

	w->planned_lost = 0;
	for (struct stream *st = put->streams; st < end; st++, row++) {
		double *to_td = stream_meta(st).td + head;

		st->planned = n;
		to_td[0] = td ? td[row] : -1;
		if (n == 1) {
			stream_plan_one(w, st, head, flags ? flags[row] : all);
			continue;
		}
		for (uint32_t i = 1; i < n; i++)
			to_td[i] = td ? td[row + i] : -1;
		stream_plan_rows(w, st, n, flags, all);
	}
}

/* How many rows without flags always complete an item of the view. */
static uint32_t calm_of_view(const struct view_desc *view)
{
	return view->period > 1 ? UINT32_MAX : view->window;
}

/* True if planned row i of the stream completes an item of the view. */
static bool stream_row_is_item(const struct rlv_writer *w, const struct stream *st,
			       const struct view_desc *view, uint32_t i)
{
	uint32_t from = head_rows(w) + 1 - view->window + i;
	const struct window_flags rows = { stream_meta(st).flags + from,
					   stream_meta(st).steps + from };

	return window_is_item(view, &rows, w->has_obs);
}

/* Writes the items of view v that the stream's planned rows complete, from op on. Returns the end of them. */
static struct leaf_op *stream_collect_items(struct rlv_writer *w, const struct stream *st,
					    uint32_t v, struct leaf_op *op)
{
	const struct view_desc *view = &w->h.desc->views[v];
	bool prioritized = view->selector == RLV_PRIORITIZED;
	uint64_t usual = prioritized ? w->default_quanta[v] : 1;
	uint32_t calm = calm_of_view(view), run = st->course.calm, n = st->planned;
	const uint16_t *flags = stream_meta(st).flags + head_rows(w);
	const double *td = stream_meta(st).td + head_rows(w) - view->future;
	uint32_t slot = st->blk.first + st->blk.used, gen = st->blk.gen;
	uint64_t most = w->items[v].most;

	for (uint32_t i = 0; i < n; i++) {
		run = flags[i] ? 0 : run + 1;
		if (run < calm && !stream_row_is_item(w, st, view, i))
			continue;
		op->slot = slot + i; /* publishing sets the other fields */
		op->gen = gen;
		op->priority = usual;
		if (td[i] >= 0 && prioritized) {
			op->priority = priority_quanta_one(view, td[i], &w->stats.clamped);
			most = max_u64(most, op->priority);
		}
		op++;
	}
	w->items[v].most = most;
	return op;
}

void writer_collect_items(struct rlv_writer *w, uint32_t v)
{
	const struct view_desc *view = &w->h.desc->views[v];
	bool prioritized = view->selector == RLV_PRIORITIZED;
	uint64_t usual = prioritized ? w->default_quanta[v] : 1;
	uint32_t calm = calm_of_view(view), n = w->n_placed, td = head_rows(w) - view->future;
	struct stream *const *placed = w->placed;
	struct leaf_op *op = w->items[v].ops + w->items[v].n;

	for (uint32_t k = 0; k < n; k++) {
		const struct stream *st = placed[k];

		if (st->planned != 1 || st->planned_course.calm < calm ||
		    (prioritized && stream_meta(st).td[td] >= 0)) {
			op = stream_collect_items(w, st, v, op);
			continue;
		}
		op->slot = st->blk.first + st->blk.used; /* one row, in the midst of an episode */
		op->gen = st->blk.gen;
		op->priority = usual;
		op++;
	}
	w->items[v].n = (uint32_t)(op - w->items[v].ops);
}

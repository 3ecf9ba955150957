/*
 * The actor's path: steps of a call are put into blocks (client/writer/append_batch.c) as room and limiters allow.
 */
#include "client/writer/append.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#define WRITE_BYTES ((uint32_t)1 << 30)
#define USER_FLAGS (RLV_TERMINATED | RLV_TRUNCATED | RLV_FINAL)

static_assert((int)RLV_TERMINATED == (int)ROW_TERMINATED &&
		      (int)RLV_TRUNCATED == (int)ROW_TRUNCATED && (int)RLV_FINAL == (int)ROW_FINAL,
	      "step flags are row flags");

/* -------- one stream -------- */

static void explain(void *ctx, char *text)
{
	struct rlv_writer *w = ctx;
	uint32_t v = w->waits_for;

	if (v == WRITER_ROOM)
		snprintf(
			text, WATCH_TEXT_BYTES,
			"append to table %s: waits for room: no block is free (a queue keeps a block "
			"until its items are sampled)",
			w->h.desc->name);
	else
		admission_explain_insert(&w->admissions[v], w->h.desc,
					 w->items[v].n ? w->items[v].n : 1, text);
}

int writer_watch(struct rlv_writer *w, struct rlv_watch *watch)
{
	const struct watch_call call = { explain, w, w->waits_for };
	int ret = watch_wait(watch, &w->h, &call);

	return w->timeout_ns == RLV_TIMEOUT_STALL ? ret : 0;
}

static int limiter_timeout(struct rlv_writer *w)
{
	char text[WATCH_TEXT_BYTES];

	explain(w, text);
	return error_set(-ETIMEDOUT, "%s", text);
}

/* A node that is lost over it is met again by the rows. */
static int read_maxima(struct rlv_writer *w)
{
	int ret = writer_read_maxima(w);

	if (ret)
		ret = handle_recover(&w->h, ret);
	return handle_may_heal(&w->h, ret) ? 0 : ret;
}

/* Time that a call spends waiting for the limiter, or for nodes. */
struct wait {
	uint64_t began_ns; /* 0 = it has not, and the rest is unset */
	struct backoff backoff;
	struct rlv_watch watch;
};

/* After a put that did not succeed. 0: try again now; else the error to return. */
static int wait_again(struct rlv_writer *w, struct wait *wait, int error, uint32_t view)
{
	bool late = handle_is_late(&w->h);
	int ret = handle_recover(&w->h, error);
	int stalled;

	if (ret == 0)
		return 0;
	if (ret != -EAGAIN && !handle_may_heal(&w->h, ret))
		return ret;
	if (!wait->began_ns) {
		wait->began_ns = clock_now_ns(w->h.clock);
		wait->backoff = handle_backoff_init();
		w->stats.limiter_waits++;
		watch_begin(&wait->watch);
	}
	w->waits_for = view;
	if (late)
		return ret == -EAGAIN ? limiter_timeout(w) : ret;
	stalled = writer_watch(w, &wait->watch);
	if (stalled)
		return ret == -EAGAIN ? stalled : error_set(ret, "%s", wait->watch.text);
	handle_backoff(&w->h, &wait->backoff);
	ret = handle_enter(&w->h);
	return handle_may_heal(&w->h, ret) ? 0 : ret;
}

static void end_wait(struct rlv_writer *w, const struct wait *wait)
{
	if (wait->began_ns)
		w->stats.limiter_wait_ns += clock_now_ns(w->h.clock) - wait->began_ns;
}

/* As many of the n rows as the stream's block takes, and one write. */
static void fit(const struct rlv_writer *w, struct put *put, uint32_t n)
{
	uint32_t room = w->h.desc->block - put->streams->blk.used;
	uint32_t most = WRITE_BYTES / w->h.desc->row_bytes;

	if (n > room)
		n = room;
	if (n > most)
		n = most ? most : 1;
	put->src.n = n < WRITER_CHUNK ? n : WRITER_CHUNK;
}

/*
 * Puts as much of the source as the block and the limiter take, at least one row. A law narrower
 * than a chunk admits it row by row.
 */
static int put_some(struct rlv_writer *w, struct put *put, uint32_t n)
{
	struct wait wait;
	uint32_t view = 0;
	int ret;

	wait.began_ns = 0;
	put->src.n = n;
	for (;;) {
		ret = writer_rooms(w, put);
		if (ret)
			break;
		fit(w, put, put->src.n);
		ret = writer_put(w, put, &view);
		if (ret == 0)
			break;
		if (put->src.n > 1 && (ret == -EAGAIN || ret == -EINVAL)) {
			put->src.n = (put->src.n + 1) / 2;
			continue;
		}
		ret = wait_again(w, &wait, ret, view);
		if (ret)
			break;
	}
	end_wait(w, &wait);
	return ret;
}

static int append_all(struct rlv_writer *w, uint32_t stream, const struct rlv_steps *steps,
		      uint32_t n, uint32_t *done_out)
{
	struct put put = {
		.streams = &w->streams[stream],
		.n = 1,
		.src = { .steps = steps },
	};
	int ret = read_maxima(w);

	*done_out = 0;
	while (ret == 0 && *done_out < n) {
		put.src.first = *done_out;
		ret = put_some(w, &put, n - *done_out);
		if (ret == 0)
			*done_out += put.src.n;
	}
	return ret;
}

int writer_fill(struct rlv_writer *w, uint32_t stream, uint32_t n)
{
	uint32_t done;

	return append_all(w, stream, NULL, n, &done);
}

/* -------- the API -------- */

static bool has_unknown_flag(const struct rlv_steps *steps)
{
	uint16_t any = 0;

	for (uint32_t i = 0; steps->flags && i < steps->n; i++)
		any |= steps->flags[i];
	return any & ~USER_FLAGS;
}

static int unknown_flag(const struct rlv_steps *steps)
{
	uint32_t i = 0;

	while (!(steps->flags[i] & ~USER_FLAGS))
		i++;
	return error_set(-EINVAL, "steps->flags[%u] 0x%x: not rlv_step_flags", i, steps->flags[i]);
}

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
	if (has_unknown_flag(steps))
		return unknown_flag(steps);
	for (uint32_t i = 0; steps->td_error && i < steps->n; i++)
		if (!(steps->td_error[i] >= 0 && isfinite(steps->td_error[i])))
			return error_set(-EINVAL,
					 "steps->td_error[%u] %g: want 0 or more, and finite", i,
					 steps->td_error[i]);
	return 0;
}

static int check_call(struct rlv_writer *w)
{
	int ret;

	if (w->dead)
		return error_set(-EOWNERDEAD, "this writer was fenced: open another one");
	ret = handle_begin(&w->h, w->timeout_ns);
	return handle_may_heal(&w->h, ret) ? 0 : ret;
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

/* One row of every stream. */
static int append_vector(struct rlv_writer *w, const struct rlv_steps *steps)
{
	const struct put put = {
		.streams = w->streams,
		.n = w->n_streams,
		.src = { .steps = steps, .n = 1 },
	};
	struct wait wait;
	uint32_t view = 0;
	int ret = read_maxima(w);

	wait.began_ns = 0;
	while (ret == 0) {
		ret = writer_rooms(w, &put);
		if (ret == 0)
			ret = writer_put(w, &put, &view);
		if (ret == 0)
			break;
		ret = wait_again(w, &wait, ret, view);
	}
	end_wait(w, &wait);
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

int rlv_writer_watch(struct rlv_writer *writer, struct rlv_watch *watch)
{
	struct watch_call call = { .explain = explain, .ctx = writer };
	int ret = watch_check(watch);

	if (ret == 0 && !writer)
		ret = error_set(-EINVAL, "writer is NULL");
	if (ret)
		return ret;
	call.view = writer->waits_for;
	return watch_wait(watch, &writer->h, &call);
}

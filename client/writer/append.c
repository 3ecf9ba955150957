/*
 * The actor's path: steps of a call are put into blocks (client/writer/append_batch.c) as room and limiters allow.
 */
#include "client/writer/append.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#define USER_FLAGS (RLV_TERMINATED | RLV_TRUNCATED | RLV_FINAL)

static_assert((int)RLV_TERMINATED == (int)ROW_TERMINATED &&
		      (int)RLV_TRUNCATED == (int)ROW_TRUNCATED && (int)RLV_FINAL == (int)ROW_FINAL,
	      "step flags are row flags");

/* -------- one call -------- */

static uint32_t writer_explain(void *ctx, char *text)
{
	const struct append_batch *put = ctx;
	struct rlv_writer *w = put->w;
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
	return v;
}

static int writer_late(void *ctx, int error)
{
	const struct append_batch *put = ctx;
	char text[WATCH_TEXT_BYTES];

	(void)error;
	if (put->w->waits_for == WRITER_ROOM)
		return error_prefix(error_set(-ETIMEDOUT, "%s", error_last()), "append: ");
	writer_explain(ctx, text);
	return error_set(-ETIMEDOUT, "%s", text);
}

static int writer_step(void *ctx)
{
	struct append_batch *put = ctx;
	int ret = put->admitted ? 0 : writer_read_maxima(put->w);

	if (ret)
		return ret;
	/* A limiter whose bounds are narrower than the rows of a call admits them in smaller parts. */
	while ((ret = writer_append_batch(put)) && (ret == -EAGAIN || ret == -EINVAL) &&
	       put->src.n > 1 && !put->admitted && put->w->waits_for != WRITER_ROOM)
		put->src.n = (put->src.n + 1) / 2;
	return ret;
}

/* Appends src.n rows of each stream, or fewer, at least one: src.n is then how many. Waits for
   the limiter, room and nodes within the call's time. */
static int writer_run(struct append_batch *put)
{
	static const struct handle_call call = { writer_step, writer_explain, writer_late };
	struct rlv_writer *w = put->w;
	int ret;

	put->admitted = false;
	ret = handle_run(&w->h, &call, put);
	if (ret == -EOWNERDEAD && !w->h.fenced)
		w->dead = true;
	return ret;
}

static int writer_append(struct rlv_writer *w, uint32_t stream, const struct rlv_steps *steps,
			 uint32_t n, uint32_t *done_out)
{
	struct append_batch put = { .w = w, .streams = &w->streams[stream], .n = 1 };
	int ret = 0;

	put.src.steps = steps;
	*done_out = 0;
	while (ret == 0 && *done_out < n) {
		put.src.first = *done_out;
		put.src.n = n - *done_out;
		ret = writer_run(&put);
		if (ret == 0)
			*done_out += put.src.n;
	}
	return ret;
}

int writer_fill(struct rlv_writer *w, uint32_t stream, uint32_t n)
{
	uint32_t done;

	return writer_append(w, stream, NULL, n, &done);
}

/* -------- the API -------- */

/* Starts a call: checks the writer and its steps. Steps of a program built with another relive.h
   are converted into *room, where *steps_inout points then. */
static int writer_start(struct rlv_writer *w, const struct rlv_steps **steps_inout,
			struct rlv_steps *room)
{
	const struct table_desc *desc = w->h.desc;
	const struct rlv_steps *steps = *steps_inout;
	uint16_t any = 0;
	int ret;

	if (steps->size != sizeof(*room)) {
		ret = abi_read(room, sizeof(*room), steps, "steps->");
		if (ret)
			return ret;
		*steps_inout = steps = room;
	}
	if (w->dead)
		return error_set(-EOWNERDEAD, "this writer was fenced: open another one");
	handle_start(&w->h, w->timeout_ns);
	if (!steps->columns)
		return error_set(-EINVAL, "steps->columns is NULL");
	for (uint32_t c = 0; c < desc->n_columns; c++)
		if (!steps->columns[c])
			return error_set(-EINVAL, "steps->columns[%u] (%s) is NULL", c,
					 desc->columns[c].name);
	for (uint32_t i = 0; steps->flags && i < steps->n; i++) /* without a branch: vectors */
		any |= steps->flags[i];
	for (uint32_t i = 0; any & ~USER_FLAGS; i++)
		if (steps->flags[i] & ~USER_FLAGS)
			return error_set(
				-EINVAL,
				"steps->flags[%u] 0x%x: has bits that are not rlv_step_flags", i,
				steps->flags[i]);
	for (uint32_t i = 0; steps->td_error && i < steps->n; i++)
		if (!(steps->td_error[i] >= 0 && isfinite(steps->td_error[i])))
			return error_set(-EINVAL,
					 "steps->td_error[%u] %g: want 0 or more, and finite", i,
					 steps->td_error[i]);
	return 0;
}

int rlv_writer_append(struct rlv_writer *writer, uint32_t stream, const struct rlv_steps *steps,
		      uint32_t *appended_out)
{
	struct rlv_steps room;
	uint32_t done = 0;
	int ret;

	if (!writer || !steps)
		return error_set(-EINVAL, "writer or steps is NULL");
	if (stream >= writer->n_streams)
		return error_set(-EINVAL, "stream %u: the writer has %u", stream,
				 writer->n_streams);
	ret = writer_start(writer, &steps, &room);
	if (ret)
		return ret;
	ret = writer_append(writer, stream, steps, steps->n, &done);
	writer->stats.calls++;
	writer->stats.steps += done;
	if (appended_out && (ret == 0 || done))
		*appended_out = done;
	return ret;
}

int rlv_writer_append_vector(struct rlv_writer *writer, const struct rlv_steps *steps)
{
	struct rlv_steps room;
	struct append_batch put = { .w = writer };
	int ret;

	if (!writer || !steps)
		return error_set(-EINVAL, "writer or steps is NULL");
	if (steps->n != writer->n_streams)
		return error_set(-EINVAL, "steps->n %u: the writer has %u streams", steps->n,
				 writer->n_streams);
	put.streams = writer->streams;
	put.n = writer->n_streams;
	ret = writer_start(writer, &steps, &room);
	put.src = (struct source){ .steps = steps, .n = 1 };
	if (ret == 0)
		ret = writer_run(&put);
	writer->stats.calls++;
	if (ret == 0)
		writer->stats.steps += steps->n;
	return ret;
}

int rlv_writer_watch(struct rlv_writer *writer, struct rlv_watch *watch)
{
	struct append_batch put = { .w = writer };

	if (!writer)
		return error_set(-EINVAL, "writer is NULL");
	return watch_user_wait(watch, &writer->h, writer_explain, &put);
}

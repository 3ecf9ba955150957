/*
 * Rows into the table: calls of the library in slices, and final rows.
 */
#include "python/src/writer/writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -------- calls of the library -------- */

/* One call of the library, in slices; the other arguments of put_* are in it. */
struct put {
	struct rlv_steps steps;
	const void *columns[RLV_MAX_COLUMNS];
	int64_t stream; /* -1 = one row of each */
	bool end;       /* of the stream's episode; no rows */
};

/* Appends the put's rows, or ends its episode, in slices of the wait. On failure the rows that were
   appended are taken out of the put. 0, a negative error of the library, or 1 with an exception. */
static int put_steps(struct writer *w, struct wait *wait, struct put *put)
{
	uint32_t done;
	int again;
	int ret;

	put->steps.columns = put->columns;
	do {
		done = 0;
		if (handle_enter(&w->h))
			return 1;
		if (put->end)
			ret = rlv_writer_end_episode(w->h.writer, (uint32_t)put->stream, NULL);
		else if (put->stream < 0)
			ret = rlv_writer_append_vector(w->h.writer, &put->steps);
		else
			ret = rlv_writer_append(w->h.writer, (uint32_t)put->stream, &put->steps,
						&done);
		if (ret == -ETIMEDOUT)
			wait->stalled = rlv_writer_watch(w->h.writer, &wait->watch);
		handle_leave(&w->h);
		if (ret == 0)
			return 0;
		for (uint32_t c = 0; done && c < w->n_columns; c++)
			put->columns[c] = (const uint8_t *)put->columns[c] +
					  (size_t)done * w->columns[c].bytes;
		put->steps.n -= done;
		put->steps.flags += put->steps.flags ? done : 0;
		put->steps.td_error += put->steps.td_error ? done : 0;
		again = wait_again(wait, ret);
	} while (again > 0);
	return again < 0 ? 1 : ret;
}

/* Takes what put_steps or put_finals returned, and raises it if it is negative. 0 if it is 0, else
   -1 with an exception. */
static int raise_of(int ret)
{
	if (ret < 0)
		error_raise(ret);
	return ret ? -1 : 0;
}

static int end_stream(struct writer *w, struct wait *wait, uint32_t stream)
{
	struct put put = { .steps = RLV_STEPS_INIT, .stream = stream, .end = true };

	return raise_of(put_steps(w, wait, &put));
}

/* -------- final rows -------- */

/* Appends a final row to a stream: row `index` of the observation columns finals[], and zeros in
   the columns that are NULL there. Returns as put_steps. */
static int put_final(struct writer *w, struct wait *wait, uint32_t stream,
		     const void *const *finals, uint32_t index)
{
	static const uint16_t flags = RLV_FINAL;
	struct put put = { .steps = RLV_STEPS_INIT, .stream = stream };

	put.steps.n = 1;
	put.steps.flags = &flags;
	for (uint32_t c = 0; c < w->n_columns; c++)
		put.columns[c] =
			finals[c] ? (const uint8_t *)finals[c] + (size_t)index * w->columns[c].bytes
				  : w->zeros;
	return put_steps(w, wait, &put);
}

/*
 * Appends the final rows of the environments from w->final_env on whose episode ended; finals[] has
 * one row for each of these, packed. Returns as put_steps. Rows that it could not append are moved
 * to w->stage, for the next call.
 */
static int put_finals(struct writer *w, struct wait *wait, const void *const *finals)
{
	uint32_t index = 0;
	size_t left = 0;
	int ret = 0;

	for (; w->final_env < w->n_envs; w->final_env++) {
		if (!w->ended[w->final_env])
			continue;
		ret = put_final(w, wait, w->final_env, finals, index);
		if (ret)
			break;
		index++;
	}
	for (uint32_t i = w->final_env; i < w->n_envs; i++)
		left += w->ended[i];
	for (uint32_t c = 0; left && c < w->n_columns; c++)
		if (finals[c])
			memmove(w->stage[c],
				(const uint8_t *)finals[c] + (size_t)index * w->columns[c].bytes,
				left * w->columns[c].bytes);
	return ret;
}

/* Starts a call's wait, and appends the final rows that the last call kept in w->stage, which
   binding this call may overwrite. 0, or -1 with an exception: no row of this call is appended. */
static int append_begin(struct writer *w, struct wait *wait)
{
	if (wait_start(wait, w->h.timeout))
		return -1;
	if (w->final_env < w->n_envs) {
		const void *finals[RLV_MAX_COLUMNS] = { NULL };

		for (uint32_t c = 0; c < w->n_columns; c++)
			finals[c] = w->columns[c].is_obs ? w->stage[c] : NULL;
		return raise_of(put_finals(w, wait, finals));
	}
	return 0;
}

/* -------- ends of episodes -------- */

/*
 * True if no later row of its episode follows row i: it is a final row, its final row is appended
 * too, or it terminated and none comes. If the call gives `final`, the final row is still to come.
 */
static bool is_over(const struct writer *w, const struct call *call, uint32_t i)
{
	if (!call->flags || call->flags[i] & RLV_FINAL || !call_row_ended(call, i))
		return call->flags && call->flags[i] & RLV_FINAL;
	if (call->has_finals)
		return w->final_env == w->n_envs;
	return call->flags[i] & RLV_TERMINATED && w->autoreset != AUTORESET_NEXT_STEP &&
	       !call->values[KEY_FINAL];
}

/*
 * Completes the items of an environment that wait for later rows of its ended episode. The call's
 * rows are appended, so errors of the library are ignored: items that the limiter does not admit
 * now are left to the next call. 0, or -1 with an exception: the handle cannot be entered.
 */
static int complete_over(struct writer *w, uint32_t env)
{
	int ret;

	if (!w->waits)
		return 0;
	if (handle_enter(&w->h))
		return -1;
	ret = rlv_writer_end_episode(w->h.writer, env, NULL);
	handle_leave(&w->h);
	(void)ret; /* of a writer that is lost the next call says it */
	return 0;
}

/* Issues one warning in a writer's life, when truncated steps are lost. 0, or -1 with an exception:
   warnings may be errors. */
static int warn_of_lost(struct writer *w)
{
	struct rlv_stats stats = { .size = sizeof(stats) };

	if (!w->follows_end || w->warned)
		return 0;
	w->follows_end = false;
	if (handle_lock(&w->h))
		return -1;
	if (rlv_writer_stats(w->h.writer, &stats))
		stats.truncated_lost = 0;
	pthread_mutex_unlock(&w->h.lock);
	if (stats.truncated_lost == 0)
		return 0;
	w->warned = true;
	return PyErr_WarnEx(PyExc_UserWarning,
			    "append: a truncated step without a final observation cannot be drawn, "
			    "as its next observation is unknown. Give final_obs with the step, or "
			    "the infos of a same-step vector. stats()[\"truncated_lost\"] counts "
			    "such steps",
			    1);
}

/* -------- one step -------- */

/* True if a row of the call is terminated, truncated or final, or follows the end of an episode.
   False for most calls. */
static bool has_ends(const struct writer *w, const struct call *call, bool consecutive)
{
	uint32_t envs = consecutive ? 1 : call->n;
	uint8_t bits = 0;

	for (uint32_t i = 0; i < envs; i++)
		bits |= w->ended[call->env + i];
	for (int e = 0; e < 3; e++)
		for (uint32_t i = 0; call->ends[e] && i < call->n; i++)
			bits |= call->ends[e][i];
	return bits;
}

static void put_of_call(const struct writer *w, const struct call *call, struct put *put)
{
	put->steps = (struct rlv_steps)RLV_STEPS_INIT;
	put->steps.n = call->n;
	put->steps.flags = call->flags;
	put->steps.td_error = call->td_error;
	put->steps.policy_version = call->policy_version;
	memcpy(put->columns, call->columns, w->n_columns * sizeof(put->columns[0]));
	put->end = false;
}

PyObject *append_step(PyObject *object, PyObject *const *values, Py_ssize_t n, PyObject *names)
{
	struct writer *w = (struct writer *)object;
	struct call call;
	struct wait wait;
	struct put put;
	int ret = -1;

	if (call_begin(w, &call, values, n, names))
		return NULL;
	if (call.values[KEY_ENV])
		error_invalid(
			"append: env is an argument of extend and end_episode only: leave it out");
	call.n = w->n_envs;
	if (call.values[KEY_ENV] || append_begin(w, &wait) || call_bind(w, &call, w->batched))
		goto out;
	for (uint32_t i = 0; w->firsts_left && i < call.n; i++)
		autoreset_see_first(w, &call, i, i);
	call.flags = has_ends(w, &call, false) ? w->flags : NULL;
	if ((call.flags && autoreset_flags(w, &call, false)) || call_bind_finals(w, &call))
		goto out;
	put_of_call(w, &call, &put);
	put.stream = w->n_envs == 1 ? 0 : -1;
	ret = raise_of(put_steps(w, &wait, &put));
	if (ret || !call.flags)
		goto out;
	for (uint32_t i = 0; i < call.n; i++)
		w->ended[i] = call_row_ended(&call, i);
	/* The step is in: an error for its final rows would make the user append it again, so they
	   are left to the next call. */
	if (call.has_finals)
		w->final_env = 0;
	if (put_finals(w, &wait, call.finals) > 0)
		ret = -1;
	for (uint32_t i = 0; ret == 0 && i < call.n; i++)
		if (is_over(w, &call, i))
			ret = complete_over(w, i);
	if (ret == 0)
		ret = warn_of_lost(w);
out:
	return call_end(w, &call, ret);
}

/* -------- consecutive steps -------- */

static int read_env(const struct writer *w, struct call *call)
{
	PyObject *value = call->values[KEY_ENV];

	if (!value || (uint32_of(value, &call->env) && call->env < w->n_envs))
		return 0;
	return error_invalid("env %R: want the index of an environment of this writer, 0 to %u",
			     value, (unsigned int)w->n_envs - 1);
}

PyObject *append_rows(PyObject *object, PyObject *const *values, Py_ssize_t n_values,
		      PyObject *names)
{
	static const char no_finals[] =
		"extend takes final observations as rows of their own, with final";
	static const char no_infos[] = "extend does not take infos: use append";
	struct writer *w = (struct writer *)object;
	struct call call;
	struct wait wait;
	struct put put;
	Py_ssize_t n;
	uint32_t done;
	int ret = -1;

	if (call_begin(w, &call, values, n_values, names))
		return NULL;
	if (call_refuse(w, &call, KEY_FINAL_OF, KEY_FINAL_OF + (int)w->n_columns, no_finals) ||
	    call_refuse(w, &call, KEY_INFOS, KEY_INFOS + 1, no_infos) || read_env(w, &call))
		goto out;
	n = call.values[0] ? PyObject_Size(call.values[0]) : -1;
	if (n < 0 || n > INT32_MAX) {
		PyErr_Clear();
		error_invalid("extend: column %s is missing, or is not an array of n steps",
			      w->columns[0].name);
		goto out;
	}
	call.n = (uint32_t)n;
	if (n == 0)
		ret = 0;
	if (n == 0 || append_begin(w, &wait) || call_bind(w, &call, true))
		goto out;
	if (w->firsts_left)
		autoreset_see_first(w, &call, call.env, 0);
	if (has_ends(w, &call, true)) {
		call.flags = call_scratch(&call, sizeof(*call.flags));
		if (!call.flags || autoreset_flags(w, &call, true))
			goto out;
	}
	put_of_call(w, &call, &put);
	put.stream = call.env;
	ret = raise_of(put_steps(w, &wait, &put));
	done = ret ? call.n - put.steps.n : call.n;
	if (done)
		w->ended[call.env] = call_row_ended(&call, done - 1);
	if (ret == 0 && is_over(w, &call, call.n - 1))
		ret = complete_over(w, call.env);
	if (ret == 0)
		ret = warn_of_lost(w);
out:
	return call_end(w, &call, ret);
}

/* -------- end_episode -------- */

PyObject *append_end(PyObject *object, PyObject *const *values, Py_ssize_t n, PyObject *names)
{
	static const char why[] = "end_episode takes only env and the observation columns";
	struct writer *w = (struct writer *)object;
	int n_columns = (int)w->n_columns;
	struct call call;
	struct wait wait;
	int given, ret = -1;

	if (call_begin(w, &call, values, n, names))
		return NULL;
	for (int c = 0; c < n_columns; c++)
		if (!w->columns[c].is_obs && call_refuse(w, &call, c, c + 1, why))
			goto out;
	if (call_refuse(w, &call, KEY_FINAL_OF, KEY_FINAL_OF + n_columns, why) ||
	    call_refuse(w, &call, KEY_TERMINATED, KEY_ENV, why) || read_env(w, &call) ||
	    append_begin(w, &wait))
		goto out;
	given = call_bind_last(w, &call);
	if (given < 0 || (given && raise_of(put_final(w, &wait, call.env, call.finals, 0))))
		goto out;
	w->follows_end |= w->ended[call.env];
	w->ended[call.env] = false;
	ret = end_stream(w, &wait, call.env);
	if (ret == 0)
		ret = warn_of_lost(w);
out:
	return call_end(w, &call, ret);
}

int append_complete(struct writer *w)
{
	struct wait wait;

	if (!w->busy && append_begin(w, &wait))
		return -1;
	for (uint32_t i = 0; i < w->n_envs; i++) {
		w->follows_end |= w->ended[i];
		if (wait_start(&wait, w->h.timeout) || end_stream(w, &wait, i))
			return -1;
	}
	return warn_of_lost(w);
}

/*
 * The autoreset mode: flags of rows from the ends of episodes, and what shows that the mode is another.
 *
 * Nobody tells us how a vector resets if its writer was opened with a number. It is taken for
 * next_step then, where the step after an end only resets: it has no reward and ends nothing, and its
 * observation is the last one of the episode. A step that is otherwise is the first one of the next
 * episode, so that the vector resets in the step that ends: taken for a reset it would be lost.
 */
#include "python/src/writer.h"

#include <errno.h>
#include <string.h>

#define ENDS (RLV_TERMINATED | RLV_TRUNCATED)

static const uint8_t *observation(const struct writer *w, const struct call *call, uint32_t c,
				  uint32_t row)
{
	return (const uint8_t *)call->columns[c] + (size_t)row * w->columns[c].bytes;
}

void autoreset_see_first(struct writer *w, const struct call *call, uint32_t env, uint32_t row)
{
	if (w->has_first[env])
		return;
	for (uint32_t c = 0; c < w->n_columns; c++)
		if (w->columns[c].is_obs)
			memcpy(w->firsts[c] + (size_t)env * w->columns[c].bytes,
			       observation(w, call, c, row), w->columns[c].bytes);
	w->has_first[env] = true;
	w->firsts_left--;
}

static bool is_first(const struct writer *w, const struct call *call, uint32_t env, uint32_t row)
{
	for (uint32_t c = 0; c < w->n_columns; c++)
		if (w->columns[c].is_obs &&
		    memcmp(w->firsts[c] + (size_t)env * w->columns[c].bytes,
			   observation(w, call, c, row), w->columns[c].bytes) != 0)
			return false;
	return w->n_obs && w->has_first[env];
}

static bool has_reward(const struct writer *w, const struct call *call, uint32_t row)
{
	for (uint32_t c = 0; c < w->n_columns; c++)
		if (w->columns[c].is_reward &&
		    column_number(&w->columns[c], call->columns[c], row) != 0)
			return true;
	return false;
}

/* Is the row, which follows an end, a step of its own? 0, or -1 with an exception. */
static int refute(const struct writer *w, const struct call *call, uint32_t env, uint32_t row)
{
	const char *what = NULL;

	if ((call->ends[0] && call->ends[0][row]) || (call->ends[1] && call->ends[1][row]))
		what = "an end";
	else if (has_reward(w, call, row))
		what = "a reward";
	else if (!w->ended_at_first[env] && is_first(w, call, env, row))
		what = "its first observation";
	if (!what)
		return 0;
	error_format(
		-EINVAL,
		"append: environment %u: the step after its episode's end has %s, but autoreset "
		"is \"next_step\" unless it is given, where that step only resets. Open the "
		"writer as table.writer(envs), which reads the mode of the vector, or with "
		"autoreset=\"same_step\", with \"disabled\" if you reset, or with "
		"\"next_step\" if it is that",
		(unsigned int)env, what);
	return -1;
}

int autoreset_flags(struct writer *w, struct call *call, bool consecutive)
{
	bool next_step = w->autoreset == AUTORESET_NEXT_STEP;
	bool ended = w->ended[call->env];

	for (uint32_t i = 0; i < call->n; i++) {
		uint32_t env = consecutive ? call->env : i;
		uint16_t flags = 0;

		if (!consecutive)
			ended = w->ended[i];
		if (call->ends[0] && call->ends[0][i])
			flags |= RLV_TERMINATED;
		if (call->ends[1] && call->ends[1][i])
			flags |= RLV_TRUNCATED;
		if (call->ends[2] && call->ends[2][i]) {
			flags = RLV_FINAL;
		} else if (ended && next_step) {
			if (w->assumed && refute(w, call, env, i))
				return -1;
			flags = RLV_FINAL;
		}
		w->follows_end |= ended && flags != RLV_FINAL;
		if (w->assumed && flags & ENDS)
			w->ended_at_first[env] = is_first(w, call, env, i);
		call->flags[i] = flags;
		ended = flags & ENDS;
	}
	return 0;
}

int autoreset_check_finals(const struct writer *w, const struct call *call, bool given)
{
	if (given && w->autoreset == AUTORESET_NEXT_STEP) {
		error_format(-EINVAL,
			     "append: a final observation, but autoreset is \"next_step\", "
			     "whose next row is that: open the writer as "
			     "table.writer(envs), or with autoreset=\"same_step\"");
		return -1;
	}
	for (uint32_t i = 0; !given && call->finals_are_none && call->flags && i < call->n; i++)
		if (w->autoreset == AUTORESET_SAME_STEP && call->flags[i] & ENDS) {
			error_format(
				-EINVAL,
				"append: the episode of environment %u ended without a final "
				"observation, but autoreset is \"same_step\", which gives it in "
				"the same step: open the writer as table.writer(envs), or with "
				"autoreset=\"next_step\"",
				(unsigned int)i);
			return -1;
		}
	return 0;
}

/*
 * The autoreset mode: flags of rows from the ends of episodes, and checks of an assumed mode.
 *
 * A writer opened with a number of environments does not know how they reset, and assumes
 * next_step: there the step after an end only resets. It has no reward, ends nothing, and its
 * observation is the last one of the episode. Any other step after an end is the first of the next
 * episode: the vector resets in the step that ends. Stored as a reset, that step would be lost, so
 * it is an error.
 */
#include "python/src/writer/writer.h"

#include <errno.h>
#include <string.h>

#define ENDS (RLV_TERMINATED | RLV_TRUNCATED)

static const uint8_t *autoreset_observation(const struct writer *w, const struct call *call,
					    uint32_t c, uint32_t row)
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
			       autoreset_observation(w, call, c, row), w->columns[c].bytes);
	w->has_first[env] = true;
	w->firsts_left--;
}

static bool is_first(const struct writer *w, const struct call *call, uint32_t env, uint32_t row)
{
	for (uint32_t c = 0; c < w->n_columns; c++)
		if (w->columns[c].is_obs &&
		    memcmp(w->firsts[c] + (size_t)env * w->columns[c].bytes,
			   autoreset_observation(w, call, c, row), w->columns[c].bytes) != 0)
			return false;
	return w->n_obs && w->has_first[env];
}

/*
 * Checks a row that follows the end of an episode, in the assumed mode next_step: 0, or -1 with an
 * exception if the row ends an episode, has a reward, or has the environment's first observation.
 */
static int autoreset_refute(const struct writer *w, const struct call *call, uint32_t env,
			    uint32_t row)
{
	bool has_reward = false;
	const char *what = NULL;

	for (uint32_t c = 0; c < w->n_columns; c++)
		if (w->columns[c].is_reward)
			has_reward |= column_number(w->columns[c].dtype, call->columns[c], row) !=
				      0;
	if ((call->ends[0] && call->ends[0][row]) || (call->ends[1] && call->ends[1][row]))
		what = "an end";
	else if (has_reward)
		what = "a reward";
	else if (!w->ended_at_first[env] && is_first(w, call, env, row))
		what = "its first observation";
	if (!what)
		return 0;
	return error_invalid(
		"append: environment %u: the step after the end of an episode has %s. The default "
		"autoreset is \"next_step\", where that step only resets the environment. Open "
		"the writer as table.writer(envs), which reads the vector's mode, or give the mode: "
		"autoreset=\"same_step\", autoreset=\"disabled\" if you call reset(), or "
		"autoreset=\"next_step\" to store such steps as final observations",
		(unsigned int)env, what);
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
			if (w->assumed && autoreset_refute(w, call, env, i))
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
	if (given && w->autoreset == AUTORESET_NEXT_STEP)
		return error_invalid("append: a final observation is given, but autoreset is "
				     "\"next_step\", where the next row is it: open the writer as "
				     "table.writer(envs), or with autoreset=\"same_step\"");
	for (uint32_t i = 0; !given && call->finals_are_none && call->flags && i < call->n; i++)
		if (w->autoreset == AUTORESET_SAME_STEP && call->flags[i] & ENDS)
			return error_invalid(
				"append: the episode of environment %u ended without a final "
				"observation, but autoreset is \"same_step\", where the step that "
				"ends an episode has it: open the writer as table.writer(envs), or with "
				"autoreset=\"next_step\"",
				(unsigned int)i);
	return 0;
}

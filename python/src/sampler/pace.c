/*
 * Over a wire there are two ways to batches ahead: the library's, whose batches move on only while its calls
 * run, and the thread's, which moves them while the caller computes, but shares the handle with it and has one
 * draw in flight. Which is faster depends on the caller and on free cores, so both are timed, in turn:
 *
 *   time the library's --> time the thread's, if it can pay --> keep the faster one for `stay` batches -+
 *          ^                                                                                            |
 *          +--------------------------------------------------------------------------------------------+
 *
 * What is timed is whole cycles of the caller, from one batch to the next: a thread also slows the caller's
 * updates, which need the handle. stay doubles each time the same one is faster.
 */
#include "python/src/sampler/sampler.h"

#define STAY_FIRST 256
#define STAY_MOST 16384
#define OUTLIERS 2 /* of the timed cycles: those that lost their core, say */

/* Mean of the timed cycles but for the longest. */
static int64_t pace_mean(int64_t *ns)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < PACE_TIMED; i++)
		sum += ns[i];
	for (uint32_t out = 0; out < OUTLIERS; out++) {
		uint32_t longest = 0;

		for (uint32_t i = 1; i < PACE_TIMED; i++)
			if (ns[i] > ns[longest])
				longest = i;
		sum -= ns[longest];
		ns[longest] = 0;
	}
	return sum / (PACE_TIMED - OUTLIERS);
}

static void pace_begin(struct pace *p, bool timing, bool thread)
{
	p->timing = timing;
	p->thread = thread;
	p->cycles = 0;
}

/* Stays with the faster one; the same as last time: for longer. */
static void pace_settle(struct pace *p, bool thread)
{
	bool same = p->stay && p->thread_won == thread;

	p->stay = !same ? STAY_FIRST : p->stay < STAY_MOST ? 2 * p->stay : STAY_MOST;
	p->thread_won = thread;
	pace_begin(p, false, thread);
}

bool pace_next(struct pace *p, int64_t cycle_ns, uint32_t depth, bool can_pay)
{
	uint32_t at = p->cycles++;
	int64_t mean_ns;

	if (!p->timing && p->cycles > p->stay)
		pace_begin(p, true, false);
	else if (p->timing && at > depth) /* before, batches are those of the other one */
		p->ns[at - depth - 1] = cycle_ns;
	if (!p->timing || at < depth + PACE_TIMED)
		return p->thread;
	mean_ns = pace_mean(p->ns);
	if (!p->thread && can_pay) {
		p->library_ns = mean_ns;
		pace_begin(p, true, true);
	} else {
		/* The thread stays where they are about the same: it leaves more of a busy caller's time. */
		pace_settle(p, p->thread && mean_ns <= p->library_ns + p->library_ns / 32);
	}
	return p->thread;
}

/*
 * Pace: which of three ways to the next batch is the fastest over a wire.
 *
 *   library   it has batches in progress between calls. They move on only while its calls run, and as their
 *             priorities are older, an update more often costs a second phase
 *   call      none is ahead
 *   thread    it draws while the caller computes, but shares the handle with it and has one draw in flight
 *
 * Which is the fastest depends on the caller and on free cores, so they are timed in turn, the thread only if it
 * can pay; then the fastest is kept for `stay` batches, which doubles each time the same one wins. What is timed is
 * whole cycles of the caller, from one batch to the next: the way changes the time of updates, too.
 */
#ifndef RLV_PYTHON_SRC_SAMPLER_PACE_H
#define RLV_PYTHON_SRC_SAMPLER_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_GROUPS 8

/* Where the next batch comes from over a wire. */
enum pace_way { PACE_LIBRARY, PACE_CALL, PACE_THREAD, PACE_WAYS };

/* Which of them is used (pace.c). Zeroed: the library's, to be timed. */
struct pace {
	enum pace_way way;
	bool timing;        /* it is timed; else it was the fastest */
	enum pace_way best; /* last time */
	uint32_t cycles;    /* since it is used so */
	uint32_t stay;      /* how many are not timed; 0 = none was the fastest yet */
	int64_t mean_ns[PACE_WAYS];
	int64_t ns[PACE_GROUPS]; /* of the cycles that are timed, in groups */
};

/* A batch has been returned, cycle_ns after the one before: chooses p->way. depth: batches ahead. */
void pace_next(struct pace *p, int64_t cycle_ns, uint32_t depth, bool thread_can_pay);

#endif

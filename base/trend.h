/*
 * Trend: the difference that most of the last steps of a sequence had, so that the next ones can be foreseen; as Leap (ATC 2020) finds it in
 * the pages that a process reads. The newest steps are looked at first, then twice as many, so a few other steps between do not hide a
 * trend, and a new one is seen soon. Without a majority there is none: a random sequence has no trend.
 *
 * Thread: owner, for all.
 */
#ifndef RLV_BASE_TREND_H
#define RLV_BASE_TREND_H

#include <stdbool.h>
#include <stdint.h>

#define TREND_STEPS 32u /* that are kept */
#define TREND_FIRST 8u  /* that are looked at first */

/* Begins as zeros. */
struct trend {
	int64_t steps[TREND_STEPS];
	uint32_t n;
};

static inline void trend_add(struct trend *trend, int64_t step)
{
	trend->steps[trend->n++ % TREND_STEPS] = step;
}

/* Step i before the newest one. */
static inline int64_t trend_step(const struct trend *trend, uint32_t i)
{
	return trend->steps[(trend->n - 1 - i) % TREND_STEPS];
}

/* The only step that may be more than half of the newest n: each other one is weighed against it (Boyer, Moore). */
static inline int64_t trend_candidate(const struct trend *trend, uint32_t n)
{
	int64_t candidate = 0;
	uint32_t votes = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (votes == 0)
			candidate = trend_step(trend, i);
		if (trend_step(trend, i) == candidate)
			votes++;
		else
			votes--;
	}
	return candidate;
}

/* True if more than half of the newest 8, 16 or 32 steps are *step_out. */
static inline bool trend_find(const struct trend *trend, int64_t *step_out)
{
	for (uint32_t n = TREND_FIRST; n <= TREND_STEPS; n *= 2) {
		uint32_t have = trend->n < n ? trend->n : n, same = 0;

		*step_out = trend_candidate(trend, have);
		for (uint32_t i = 0; i < have; i++)
			same += trend_step(trend, i) == *step_out;
		if (same > n / 2)
			return true;
	}
	return false;
}

#endif

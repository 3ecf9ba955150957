#include "device/pace.h"

#include <string.h>

#include "base/bits.h"

#define STEPS 64u            /* of the longest period */
#define LASTS (8u * STEPS)   /* a trial */
#define SETTLES (2u * STEPS) /* before it counts */
#define WORTH 1.01

struct pace_job {
	unsigned steps; /* of its period */
	unsigned left;  /* until its iteration ends; 0: it waits */
	unsigned ended; /* when the last one did */
	uint64_t need[STEPS];
};

struct pace {
	struct pace_job jobs[PACE_JOBS];
	size_t n, running;
	uint64_t room, step_ns;
	const double *gain;
	uint64_t sums[STEPS]; /* by step, modulo STEPS: what the running ones need from now on */
};

static void pace_open(struct pace *pace, const struct curve *const curves[])
{
	uint64_t longest = 0;

	for (size_t i = 0; i < pace->n; i++)
		longest = max_u64(longest, curves[i]->period_ns);
	pace->step_ns = max_u64(1, (longest + STEPS - 1) / STEPS);
	for (size_t i = 0; i < pace->n; i++) {
		struct pace_job *job = &pace->jobs[i];

		for (unsigned bin = 0; bin < CURVE_BINS; bin++) {
			uint64_t *need =
				&job->need[bin * curves[i]->period_ns / CURVE_BINS / pace->step_ns];

			*need = max_u64(*need, curves[i]->bins[bin]);
		}
		job->steps = (unsigned)((curves[i]->period_ns + pace->step_ns - 1) / pace->step_ns);
	}
}

static bool pace_fits(const struct pace *pace, const struct pace_job *job, unsigned now)
{
	for (unsigned at = 0; at < job->steps; at++) {
		if (pace->sums[(now + at) % STEPS] + job->need[at] > pace->room)
			return false;
	}
	return true;
}

/* Progress of k iterations together; as that of k alone, if nobody has measured it. */
static double pace_gain(const struct pace *pace, size_t k)
{
	return k > 1 && pace->gain[k] <= 0 ? (double)k : k > 1 ? pace->gain[k] : 1;
}

/* The job that has waited longest and fits now. */
static struct pace_job *pace_next(struct pace *pace, unsigned now)
{
	struct pace_job *next = NULL;

	if (pace->running == pace->n)
		return NULL;
	if (pace->running && pace_gain(pace, pace->running + 1) <= pace_gain(pace, pace->running))
		return NULL;
	for (size_t i = 0; i < pace->n; i++) {
		struct pace_job *job = &pace->jobs[i];

		if (job->left == 0 && (!next || job->ended < next->ended) &&
		    (!pace->running || pace_fits(pace, job, now)))
			next = job;
	}
	return next;
}

/* Work done by time, where at least that many steps lie between two begins. */
static double pace_try(struct pace *pace, unsigned gap)
{
	double work = 0, time = 0;
	unsigned begun = 0;

	memset(pace->sums, 0, sizeof(pace->sums));
	pace->running = 0;
	for (size_t i = 0; i < pace->n; i++)
		pace->jobs[i].left = pace->jobs[i].ended = 0;
	for (unsigned now = 0; now < LASTS; now++) {
		struct pace_job *job;

		while ((!pace->running || now - begun >= gap) && (job = pace_next(pace, now))) {
			for (unsigned at = 0; at < job->steps; at++)
				pace->sums[(now + at) % STEPS] += job->need[at];
			job->left = job->steps;
			pace->running++;
			begun = now;
		}
		if (now >= SETTLES) {
			work += (double)pace->running;
			time += (double)pace->running / pace_gain(pace, pace->running);
		}
		pace->sums[now % STEPS] = 0;
		for (size_t i = 0; i < pace->n; i++) {
			job = &pace->jobs[i];
			if (job->left && --job->left == 0) {
				job->ended = now + 1;
				pace->running--;
			}
		}
	}
	return work / time;
}

uint64_t pace_find(const struct curve *const curves[], size_t n, uint64_t room,
		   const double gain[PACE_JOBS + 1])
{
	struct pace pace = { .n = n, .room = room, .gain = gain };
	uint64_t peaks = 0;
	unsigned best = 0;
	double most;

	for (size_t i = 0; i < n; i++)
		peaks += curves[i]->peak;
	if (peaks <= room)
		return 0;
	pace_open(&pace, curves);
	most = pace_try(&pace, 0) * WORTH;
	for (unsigned gap = 1; gap < STEPS; gap++) {
		double rate = pace_try(&pace, gap);

		if (rate > most) {
			most = rate;
			best = gap;
		}
	}
	return best * pace.step_ns;
}

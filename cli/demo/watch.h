/*
 * watch.h - what is seen of the loop while it runs: a line of progress, curves, and a summary.
 */
#ifndef RLV_CLI_DEMO_WATCH_H
#define RLV_CLI_DEMO_WATCH_H

#include "cli/demo/loop.h"

#define WATCH_EVENTS 4
#define WATCH_TICK_NS (100 * CLOCK_NS_PER_MS)
#define WATCH_WINDOW 10 /* ticks that a rate is of */

enum watch_curve {
	WATCH_TIME,
	WATCH_RETURN, /* of each policy */
	WATCH_IN = WATCH_RETURN + LOOP_LEARNERS,
	WATCH_OUT,
	WATCH_HELD, /* by each learner */
	WATCH_HELD_ALL = WATCH_HELD + LOOP_LEARNERS,
	WATCH_BUDGET,
	WATCH_CURVES,
};

struct watch {
	const struct loop_shared *shared;
	const struct loop_role *roles;
	uint32_t n, most; /* points of each curve */
	double *curves[WATCH_CURVES];
	uint64_t *in, *out; /* steps and items until each point */
	uint32_t n_events;
	struct {
		const char *name;
		double at;
	} events[WATCH_EVENTS];
};

/* For a run of ns. -ENOMEM. */
int watch_open(struct watch *watch, const struct loop_role *roles, int64_t ns) RLV_MUST_CHECK;
void watch_close(struct watch *watch);

/* Adds a point to all curves; spent: seconds so far. Beyond the room of the curves nothing is added. */
void watch_tick(struct watch *watch, double spent);
/* The last point as text. */
#define WATCH_TEXT_BYTES 192
const char *watch_text(const struct watch *watch, char text[WATCH_TEXT_BYTES]);

/* name is borrowed. */
void watch_event(struct watch *watch, const char *name, double at);

/* Prints what there is to see while the roles are still there. */
void watch_summary(const struct watch *watch);
int watch_picture(const struct watch *watch, const char *path) RLV_MUST_CHECK;

#endif

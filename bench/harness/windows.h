/*
 * windows.h - the windows of several cases in turn, so that a slow second of the machine hits all of
 * them and not one.
 */
#ifndef RLV_BENCH_HARNESS_WINDOWS_H
#define RLV_BENCH_HARNESS_WINDOWS_H

#include <stdint.h>

#include "base/error.h"

struct windows {
	double from, to; /* part of the progress bar that the windows are */
	uint32_t n;      /* of each case */
	uint32_t cases;
	/* Runs one window of a case, whose first moment is at `done` of the bar. */
	int (*run)(void *ctx, uint32_t index, double done);
	void *ctx;
};

/* The first error of a window, or -EINTR after Ctrl-C (program/interrupt.h). Thread: setup. */
int windows_run(const struct windows *windows) RLV_MUST_CHECK;

#endif

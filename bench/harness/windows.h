/*
 * windows.h - alternates the windows of several cases, so that a slow second of the machine affects
 * all of them equally.
 */
#ifndef RLV_BENCH_HARNESS_WINDOWS_H
#define RLV_BENCH_HARNESS_WINDOWS_H

#include <stdint.h>

#include "base/error.h"

struct windows {
	double from, to; /* section of the progress bar for the windows */
	uint32_t n;      /* windows per case */
	uint32_t cases;
	/* Runs one window of case `index`; `done`: where the progress bar stands then. */
	int (*run)(void *ctx, uint32_t index, double done);
	void *ctx;
};

/* Runs all windows, the cases in turn. Stops with the first error of a window, or with -EINTR
   after Ctrl-C (program/interrupt.h). Thread: setup. */
int windows_run(const struct windows *windows) RLV_MUST_CHECK;

#endif

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
	/* Run one window of a case, which starts at `done` of the bar. */
	int (*run)(void *ctx, uint32_t index, double done);
	void *ctx;
};

/* The first error of a window, or -EINTR after Ctrl-C (program/interrupt.h). Thread: setup. */
int windows_run(const struct windows *windows) RLV_MUST_CHECK;

#endif

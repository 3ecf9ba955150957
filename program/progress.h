/*
 * progress.h - a bar on stderr for what takes over two seconds.
 *
 * On a terminal one line is drawn again and again; elsewhere, only when asked for (forced), a
 * line each second.
 */
#ifndef RLV_PROGRAM_PROGRESS_H
#define RLV_PROGRAM_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct progress {
	bool on;
	bool tty;
	bool drawn; /* a line stands on the terminal */
	uint64_t start_ns;
	uint64_t shown_ns; /* when it was last drawn, 0 = never */
};

/* forced: --progress. Thread: owner. */
void progress_begin(struct progress *progress, bool forced);

/* done in 0..1; the text stands behind the bar. Draws at most ten times a second. */
void progress_show(struct progress *progress, double done, const char *fmt, ...) RLV_PRINTF(3, 4);

/* Wipes the bar, so that other output can follow. */
void progress_clear(struct progress *progress);

#endif

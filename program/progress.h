/*
 * progress.h - a progress bar on stderr for operations of over two seconds.
 *
 * On a terminal one line is redrawn; otherwise, only if forced, one line is printed each second.
 */
#ifndef RLV_PROGRAM_PROGRESS_H
#define RLV_PROGRAM_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct progress {
	bool on;
	bool tty;
	bool drawn; /* a bar is on the terminal */
	uint64_t start_ns;
	uint64_t shown_ns; /* time of the last drawing, 0 = never */
};

/*
 * Begins a progress bar on stderr, shown on a terminal only; forced (--progress): also elsewhere,
 * as lines. Thread: owner.
 */
void progress_begin(struct progress *progress, bool forced);

/*
 * Shows the bar for done in 0..1, followed by the text. On a terminal from half a second on and at
 * most ten times a second, else at most a line a second.
 */
void progress_show(struct progress *progress, double done, const char *fmt, ...) RLV_PRINTF(3, 4);

/* Erases the bar from the terminal, before other output. */
void progress_clear(struct progress *progress);

#endif

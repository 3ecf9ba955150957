/*
 * picture.h - panels of lines and areas over time, one under the other, as a PNG file: what a bench or a demo
 * shows without any other program.
 */
#ifndef RLV_BENCH_HARNESS_PICTURE_H
#define RLV_BENCH_HARNESS_PICTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define PICTURE_LINES 6  /* of a panel; each has a colour of its own */
#define PICTURE_AREAS 8u /* colours of areas: the next ones have them again */
#define PICTURE_WIDTH 960u
#define PICTURE_PANEL 240u /* height */

struct picture_line {
	const char *name;
	const double *x, *y; /* x rises */
	uint32_t n;
};

struct picture_panel {
	const char *title;
	bool bytes; /* labels are bytes, not numbers */
	uint32_t n_lines;
	struct picture_line lines[PICTURE_LINES];
	/* Under the lines, each stacked on the one before. A value holds until the next x; all have the
	   x of the first, and its n. */
	uint32_t n_areas;
	const struct picture_line *areas;
};

/* Something that happened at x: a vertical line through all panels, with a name. */
struct picture_event {
	const char *name;
	double x;
};

struct picture {
	const struct picture_panel *panels;
	const struct picture_event *events;
	uint32_t n_panels, n_events;
	const char *x_title;
};

/*
 * Writes the picture to a file, with the errors of canvas_write. Names are shown in capitals: of lines, and of
 * the first PICTURE_AREAS areas as far as there is room.
 */
int picture_write(const struct picture *picture, const char *path) RLV_MUST_CHECK;

#endif

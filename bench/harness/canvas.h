/*
 * canvas.h - an image of few colours: lines, text, and its file.
 */
#ifndef RLV_BENCH_HARNESS_CANVAS_H
#define RLV_BENCH_HARNESS_CANVAS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define CANVAS_CHAR_WIDTH 8u
#define CANVAS_CHAR_HEIGHT 10u

enum canvas_colour {
	CANVAS_WHITE,
	CANVAS_BLACK,
	CANVAS_GREY,
	CANVAS_RED,
	CANVAS_LINE,
	CANVAS_AREA = CANVAS_LINE + 6,
	CANVAS_COLOURS = CANVAS_AREA + 8
};

struct canvas {
	uint32_t width, height;
	uint8_t *pixels; /* height rows of a byte 0, the PNG filter, and width colours */
	size_t bytes;
};

/* A white image. -ENOMEM. */
int canvas_init(struct canvas *canvas, uint32_t width, uint32_t height) RLV_MUST_CHECK;
void canvas_destroy(struct canvas *canvas);

/* Points outside the image are left out. */
void canvas_point(struct canvas *canvas, int64_t x, int64_t y, uint8_t colour);
void canvas_line(struct canvas *canvas, const int32_t from[2], const int32_t to[2], uint8_t colour);

/* Text in capitals, its upper left corner at (x, y); what there is no letter for is a space. */
void canvas_text(struct canvas *canvas, int32_t x, int32_t y, const char *text);

/*
 * Writes a PNG file, in the place of a file of that name once it is whole. -EINVAL: the path is a device, a
 * folder or the like; -ENOMEM, -ENAMETOOLONG, errors of open(2), write(2) and rename(2).
 */
int canvas_write(const struct canvas *canvas, const char *path) RLV_MUST_CHECK;

#endif

#include "bench/harness/picture.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/harness/canvas.h"
#include "program/units.h"

#define LEFT 96 /* of a panel: room for labels */
#define RIGHT 24
#define TOP 30
#define BOTTOM 26
#define TICKS 5

/* A panel on the canvas: its frame, and what lies at its edges. */
struct frame {
	struct canvas *canvas;
	int32_t left, right, top, bottom;
	double x_low, x_high, y_high;
};

static int32_t frame_x(const struct frame *frame, double x)
{
	double share = (x - frame->x_low) / (frame->x_high - frame->x_low);

	return frame->left + (int32_t)((frame->right - frame->left) * share);
}

static int32_t frame_y(const struct frame *frame, double y)
{
	return frame->bottom - (int32_t)((frame->bottom - frame->top) * (y / frame->y_high));
}

/* The distance of ticks: 1, 2 or 5 times a power of 10, or of 2 for bytes. */
static double tick_of(double high, bool bytes)
{
	double rough = high / TICKS,
	       base = bytes ? exp2(floor(log2(rough))) : pow(10, floor(log10(rough)));

	if (bytes)
		return rough > base ? 2 * base : base;
	return rough > 5 * base   ? 10 * base
	       : rough > 2 * base ? 5 * base
	       : rough > base     ? 2 * base
				  : base;
}

static void draw_line(const struct frame *frame, const struct picture_line *line, uint8_t colour)
{
	for (uint32_t i = 1; i < line->n; i++) {
		int32_t from[2], to[2];

		if (!isfinite(line->y[i - 1]) || !isfinite(line->y[i]))
			continue;
		from[0] = frame_x(frame, line->x[i - 1]);
		from[1] = frame_y(frame, line->y[i - 1]);
		to[0] = frame_x(frame, line->x[i]);
		to[1] = frame_y(frame, line->y[i]);
		canvas_line(frame->canvas, from, to, colour);
		from[1]++;
		to[1]++;
		canvas_line(frame->canvas, from, to, colour);
	}
}

static void draw_grid(const struct frame *frame, const struct picture_panel *panel,
		      const char *x_title)
{
	double tick = tick_of(frame->y_high, panel->bytes),
	       across = tick_of(frame->x_high - frame->x_low, false);
	char text[UNITS_TEXT_BYTES];

	for (int i = 0; i * tick <= frame->y_high; i++) {
		double y = i * tick;
		int32_t at = frame_y(frame, y), from[] = { frame->left, at },
			to[] = { frame->right, at };

		canvas_line(frame->canvas, from, to, y > 0 ? CANVAS_GREY : CANVAS_BLACK);
		if (i == 0)
			snprintf(text, sizeof(text), "0");
		else if (panel->bytes)
			units_format_bytes((uint64_t)y, text);
		else
			units_format_si(y, text);
		canvas_text(frame->canvas,
			    frame->left - 8 - (int32_t)(strlen(text) * CANVAS_CHAR_WIDTH), at - 4,
			    text);
	}
	for (int i = (int)ceil(frame->x_low / across); i * across <= frame->x_high; i++) {
		double x = i * across;
		int32_t from[] = { frame_x(frame, x), frame->bottom },
			to[] = { from[0], from[1] + 4 };

		canvas_line(frame->canvas, from, to, CANVAS_BLACK);
		snprintf(text, sizeof(text), "%g%s", x, x + across > frame->x_high ? x_title : "");
		canvas_text(frame->canvas, from[0] - 3, from[1] + 8, text);
	}
}

static void draw_panel(const struct frame *frame, const struct picture *picture,
		       const struct picture_panel *panel)
{
	int32_t at = frame->right;

	canvas_text(frame->canvas, 8, frame->top - 20, panel->title);
	draw_grid(frame, panel, picture->x_title);
	for (uint32_t i = 0; i < picture->n_events; i++) {
		int32_t x = frame_x(frame, picture->events[i].x);

		canvas_line(frame->canvas, (int32_t[]){ x, frame->top },
			    (int32_t[]){ x, frame->bottom }, CANVAS_RED);
		if (panel == picture->panels)
			canvas_text(frame->canvas, x + 4, frame->top + 2 + (int32_t)(i % 3 * 12),
				    picture->events[i].name);
	}
	for (uint32_t i = 0; i < panel->n_lines; i++)
		draw_line(frame, &panel->lines[i], (uint8_t)(CANVAS_LINE + i));
	for (uint32_t i = panel->n_lines; i-- > 0;) { /* names, from the right */
		const char *name = panel->lines[i].name;
		int32_t from[2], to[2];

		at -= (int32_t)(strlen(name) * CANVAS_CHAR_WIDTH);
		canvas_text(frame->canvas, at, frame->top - 20, name);
		from[0] = at - 26, to[0] = at - 8, from[1] = to[1] = frame->top - 16;
		canvas_line(frame->canvas, from, to, (uint8_t)(CANVAS_LINE + i));
		from[1]++, to[1]++;
		canvas_line(frame->canvas, from, to, (uint8_t)(CANVAS_LINE + i));
		at -= 44;
	}
}

/* Sets the ends of both axes from the lines of the picture. */
static void frame_fit(struct frame *frame, const struct picture *picture,
		      const struct picture_panel *panel)
{
	frame->x_low = DBL_MAX;
	frame->x_high = -DBL_MAX;
	for (uint32_t p = 0; p < picture->n_panels; p++) {
		for (uint32_t i = 0; i < picture->panels[p].n_lines; i++) {
			const struct picture_line *line = &picture->panels[p].lines[i];

			if (!line->n)
				continue;
			frame->x_low = fmin(frame->x_low, line->x[0]);
			frame->x_high = fmax(frame->x_high, line->x[line->n - 1]);
		}
	}
	if (!(frame->x_high > frame->x_low)) {
		frame->x_low = 0;
		frame->x_high = 1;
	}
	for (uint32_t i = 0; i < panel->n_lines; i++) {
		for (uint32_t k = 0; k < panel->lines[i].n; k++) {
			if (isfinite(panel->lines[i].y[k]))
				frame->y_high = fmax(frame->y_high, panel->lines[i].y[k]);
		}
	}
	frame->y_high = frame->y_high > 0 ? frame->y_high * 1.05 : 1;
}

int picture_write(const struct picture *picture, const char *path)
{
	struct canvas canvas;
	int ret = canvas_init(&canvas, PICTURE_WIDTH, PICTURE_PANEL * picture->n_panels);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < picture->n_panels; i++) {
		struct frame frame = {
			.canvas = &canvas,
			.left = LEFT,
			.right = (int32_t)PICTURE_WIDTH - RIGHT,
			.top = (int32_t)(PICTURE_PANEL * i) + TOP,
			.bottom = (int32_t)(PICTURE_PANEL * (i + 1)) - BOTTOM,
		};

		frame_fit(&frame, picture, &picture->panels[i]);
		draw_panel(&frame, picture, &picture->panels[i]);
	}
	ret = canvas_write(&canvas, path);
	canvas_destroy(&canvas);
	return ret;
}

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

static void draw_areas(const struct frame *frame, const struct picture_panel *panel)
{
	for (uint32_t k = 0; panel->n_areas && k < panel->areas[0].n; k++) {
		const double *x = panel->areas[0].x + k;
		int32_t from = frame_x(frame, x[0]);
		int32_t to = k + 1 < panel->areas[0].n ? frame_x(frame, x[1]) : frame->right;
		double sum = 0;

		for (uint32_t i = 0; i < panel->n_areas; i++) {
			int32_t low = frame_y(frame, sum) - 1, high;

			sum += panel->areas[i].y[k];
			high = frame_y(frame, sum);
			for (int32_t at = from; high <= low && at < to; at++)
				canvas_line(frame->canvas, (int32_t[]){ at, low },
					    (int32_t[]){ at, high },
					    (uint8_t)(CANVAS_AREA + i % PICTURE_AREAS));
		}
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

/* A name left of *at, which is moved, and of it a sample of its colour; no longer where the title is. */
static void draw_name(const struct frame *frame, const struct picture_panel *panel,
		      const char *name, uint8_t colour, int32_t *at)
{
	int32_t width = (int32_t)(strlen(name) * CANVAS_CHAR_WIDTH) + 44;
	int32_t title = 8 + (int32_t)(strlen(panel->title) * CANVAS_CHAR_WIDTH);
	int32_t thick = colour < CANVAS_AREA ? 2 : (int32_t)CANVAS_CHAR_HEIGHT;
	int32_t left = *at - width + 18, top = frame->top - 15 - thick / 2;

	if (*at - width < title)
		return;
	*at -= width;
	canvas_text(frame->canvas, left + 26, frame->top - 20, name);
	for (int32_t y = top; y < top + thick; y++)
		canvas_line(frame->canvas, (int32_t[]){ left, y }, (int32_t[]){ left + 18, y },
			    colour);
}

static void draw_panel(const struct frame *frame, const struct picture *picture,
		       const struct picture_panel *panel)
{
	int32_t at = frame->right;

	canvas_text(frame->canvas, 8, frame->top - 20, panel->title);
	draw_areas(frame, panel);
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
	for (uint32_t i = panel->n_lines; i-- > 0;)
		draw_name(frame, panel, panel->lines[i].name, (uint8_t)(CANVAS_LINE + i), &at);
	for (uint32_t i = panel->n_areas < PICTURE_AREAS ? panel->n_areas : PICTURE_AREAS; i-- > 0;)
		draw_name(frame, panel, panel->areas[i].name, (uint8_t)(CANVAS_AREA + i), &at);
}

static void frame_fit_x(struct frame *frame, const struct picture_line *line)
{
	if (!line->n)
		return;
	frame->x_low = fmin(frame->x_low, line->x[0]);
	frame->x_high = fmax(frame->x_high, line->x[line->n - 1]);
}

/* Sets the ends of both axes from the lines and areas of the picture. */
static void frame_fit(struct frame *frame, const struct picture *picture,
		      const struct picture_panel *panel)
{
	frame->x_low = DBL_MAX;
	frame->x_high = -DBL_MAX;
	for (uint32_t p = 0; p < picture->n_panels; p++) {
		for (uint32_t i = 0; i < picture->panels[p].n_lines; i++)
			frame_fit_x(frame, &picture->panels[p].lines[i]);
		if (picture->panels[p].n_areas)
			frame_fit_x(frame, picture->panels[p].areas);
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
	for (uint32_t k = 0; panel->n_areas && k < panel->areas[0].n; k++) {
		double sum = 0;

		for (uint32_t i = 0; i < panel->n_areas; i++)
			sum += panel->areas[i].y[k];
		frame->y_high = fmax(frame->y_high, sum);
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

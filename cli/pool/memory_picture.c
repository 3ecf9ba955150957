#include "cli/pool/memory_picture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "base/mem/alloc.h"
#include "bench/harness/picture.h"
#include "bench/pool/sim.h"

#define COLUMNS 840u /* no more than the picture has pixels */
#define NAME_BYTES 32

int memory_picture_open(uint32_t n_jobs, uint32_t n_devices, double end,
			struct memory_picture *picture_out)
{
	struct memory_picture *p = picture_out;

	*p = (struct memory_picture){ .n_jobs = n_jobs, .n_devices = n_devices, .end = end };
	p->held = mem_array(n_jobs, sizeof(*p->held));
	p->totals = mem_array(n_devices, sizeof(*p->totals));
	p->most = mem_array((size_t)n_devices * COLUMNS, sizeof(*p->most));
	p->columns = mem_array((size_t)n_jobs * COLUMNS, sizeof(*p->columns));
	if (!p->held || !p->totals || !p->most || !p->columns)
		return error_set(-ENOMEM, "a picture of %" PRIu32 " jobs: no memory", n_jobs);
	for (uint32_t i = 0; i < n_devices * COLUMNS; i++)
		p->most[i] = -1;
	return 0;
}

void memory_picture_close(struct memory_picture *picture)
{
	mem_free(picture->held);
	mem_free(picture->totals);
	mem_free(picture->most);
	mem_free(picture->columns);
	*picture = (struct memory_picture){ 0 };
}

static uint32_t column_of(const struct memory_picture *picture, double at)
{
	double column = at / picture->end * COLUMNS;

	return column < COLUMNS ? (uint32_t)column : COLUMNS - 1;
}

/* The jobs held until `to` the bytes that they hold now. */
static void fill_columns(struct memory_picture *picture, double to)
{
	uint32_t last = column_of(picture, to);

	for (uint32_t c = column_of(picture, picture->at); c <= last; c++) {
		for (uint32_t d = 0; d < picture->n_devices; d++) {
			double *most = &picture->most[(size_t)d * COLUMNS + c];

			if ((double)picture->totals[d] <= *most)
				continue;
			*most = (double)picture->totals[d];
			for (uint32_t job = d; job < picture->n_jobs; job += picture->n_devices)
				picture->columns[(size_t)job * COLUMNS + c] =
					(double)picture->held[job];
		}
	}
	picture->at = to;
}

void memory_picture_watch(void *ctx, double at, uint32_t job, uint64_t bytes)
{
	struct memory_picture *picture = ctx;
	uint64_t *total = &picture->totals[job % picture->n_devices];

	if (at > picture->at)
		fill_columns(picture, at);
	*total = *total - picture->held[job] + bytes;
	picture->held[job] = bytes;
}

/* Of the first jobs of a device, as picture_panel has it; "0,8..": those of one colour. */
static void name_areas(const struct memory_picture *picture, uint32_t device,
		       struct picture_line *areas, char names[][NAME_BYTES])
{
	for (uint32_t i = 0; i < PICTURE_AREAS; i++) {
		uint32_t job = device + i * picture->n_devices;
		uint32_t next = job + PICTURE_AREAS * picture->n_devices;

		if (job >= picture->n_jobs)
			return;
		snprintf(names[i], NAME_BYTES,
			 next < picture->n_jobs ? "%" PRIu32 ",%" PRIu32 ".." : "%" PRIu32, job,
			 next);
		areas[i].name = names[i];
	}
}

struct drawing {
	double times[COLUMNS], ends[2], budget[2];
	char titles[SIM_DEVICES][NAME_BYTES], names[SIM_DEVICES][PICTURE_AREAS][NAME_BYTES];
	struct picture_panel panels[SIM_DEVICES];
};

/* areas: of all jobs, those of a device beside each other. */
static void draw_devices(const struct memory_picture *picture, struct drawing *drawing,
			 struct picture_line *areas)
{
	for (uint32_t d = 0; d < picture->n_devices; d++) {
		struct picture_panel *panel = &drawing->panels[d];

		snprintf(drawing->titles[d], NAME_BYTES,
			 picture->n_devices > 1 ? "jobs, device %" PRIu32 : "jobs", d);
		*panel = (struct picture_panel){
			.title = drawing->titles[d], .bytes = true, .n_lines = 1, .areas = areas
		};
		panel->lines[0] =
			(struct picture_line){ "budget", drawing->ends, drawing->budget, 2 };
		for (uint32_t job = d; job < picture->n_jobs; job += picture->n_devices)
			areas[panel->n_areas++] =
				(struct picture_line){ NULL, drawing->times,
						       picture->columns + (size_t)job * COLUMNS,
						       COLUMNS };
		name_areas(picture, d, areas, drawing->names[d]);
		areas += panel->n_areas;
	}
}

int memory_picture_write(struct memory_picture *picture, double budget, const char *path)
{
	struct picture_line *areas = mem_array(picture->n_jobs, sizeof(*areas));
	struct drawing *drawing = mem_zalloc(sizeof(*drawing));
	int ret = areas && drawing ? 0 : error_set(-ENOMEM, "%s: no memory to draw", path);

	if (ret == 0) {
		const struct picture whole = { .panels = drawing->panels,
					       .n_panels = picture->n_devices,
					       .x_title = " s" };

		fill_columns(picture, picture->end);
		for (uint32_t c = 0; c < COLUMNS; c++)
			drawing->times[c] = picture->end / 1e9 / COLUMNS * c;
		drawing->ends[1] = picture->end / 1e9;
		drawing->budget[0] = drawing->budget[1] = budget;
		draw_devices(picture, drawing, areas);
		ret = picture_write(&whole, path);
	}
	mem_free(areas);
	mem_free(drawing);
	return ret;
}

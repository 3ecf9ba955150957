/* The memory of simulated jobs is drawn as they held it. */
#include "cli/pool/memory_picture.h"

#include <stdio.h>

#include "bench/harness/canvas.h"
#include "tests/support/must_internal.h"
#include "tests/support/png_file.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#define GIB (UINT64_C(1) << 30)
#define AREA_ROWS 184 /* of a panel: what is left by its title and its times */

static struct png_file decoded;

static void draw(struct memory_picture *picture, double budget)
{
	char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 16];

	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/p.png", dir);
	must(memory_picture_write(picture, budget, path));
	memory_picture_close(picture);
	png_file_read(path, &decoded);
	temp_dir_remove(dir);
}

static uint32_t count(uint8_t colour, uint32_t panel)
{
	return png_file_count(&decoded, colour, panel * PICTURE_PANEL + 30, AREA_ROWS);
}

TEST(memory_picture__what_follows_at_the_same_time_is_no_sum)
{
	struct memory_picture picture;

	must(memory_picture_open(2, 1, 100, &picture));
	memory_picture_watch(&picture, 0, 0, 4 * GIB);
	/* Job 1 takes at 50 what job 0 gives back then: never both. */
	memory_picture_watch(&picture, 50, 1, 4 * GIB);
	memory_picture_watch(&picture, 50, 0, 0);
	for (uint32_t c = 0; c < 840; c++)
		assert_true(picture.most[c] <= 4.0 * GIB);
	draw(&picture, 8.0 * GIB);
	assert_int_equal(decoded.height, PICTURE_PANEL);
	/* Half of the width and nearly half of the height each. */
	assert_in_range(count(CANVAS_AREA, 0), 400 * 75, 425 * 92);
	assert_in_range(count(CANVAS_AREA + 1, 0), 400 * 75, 425 * 92);
	assert_true(count(CANVAS_LINE, 0) >= 2 * 840); /* the budget */
}

TEST(memory_picture__a_short_peak_is_seen)
{
	struct memory_picture picture;

	must(memory_picture_open(1, 1, 1e9, &picture));
	memory_picture_watch(&picture, 1e8, 0, 8 * GIB);
	memory_picture_watch(&picture, 1e8 + 1, 0, GIB);
	draw(&picture, 8.0 * GIB);
	/* A column of the whole height beside an eighth of it for nine tenths of the time. */
	assert_in_range(count(CANVAS_AREA, 0), 750 * 15 + 100, 760 * 23 + 200);
}

TEST(memory_picture__each_device_has_its_jobs)
{
	struct memory_picture picture;

	must(memory_picture_open(20, 2, 100, &picture));
	memory_picture_watch(&picture, 0, 19, 4 * GIB); /* the tenth of device 1 */
	draw(&picture, 8.0 * GIB);
	assert_int_equal(decoded.height, 2 * PICTURE_PANEL);
	assert_int_equal(count(CANVAS_AREA + 1, 0), 0);
	assert_in_range(count(CANVAS_AREA + 1, 1), 800 * 75, 840 * 92);
}

TEST(memory_picture__no_jobs_and_no_time_are_an_empty_picture)
{
	struct memory_picture picture;

	must(memory_picture_open(0, 1, 0, &picture));
	draw(&picture, 8.0 * GIB);
	assert_int_equal(count(CANVAS_AREA, 0), 0);
}

int main(void)
{
	if (test_skips_msan("zlib"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}

/* A picture is a PNG that decodes to what was drawn. */
#include "bench/harness/picture.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/harness/canvas.h"
#include "tests/support/must_internal.h"
#include "tests/support/png_file.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

static struct png_file decoded;

static int begin(void **state)
{
	static char dir[TEMP_DIR_BYTES];

	temp_dir_make(dir);
	*state = dir;
	return 0;
}

static int end(void **state)
{
	temp_dir_remove(*state);
	return 0;
}

static const char *path_in(const char *dir, const char *name)
{
	static char path[TEMP_DIR_BYTES + 16];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static uint32_t count(uint8_t colour, uint32_t from_row, uint32_t rows)
{
	return png_file_count(&decoded, colour, from_row, rows);
}

TEST_WITH(picture_write__lines_are_where_their_values_are, begin, end)
{
	const double x[] = { 0, 5, 10 }, high[] = { 100, 100, 100 }, hole[] = { 0, NAN, 0 };
	const double some_bytes[] = { 0, 4096, 65536 };
	const struct picture_panel panels[] = {
		{ .title = "return",
		  .n_lines = 2,
		  .lines = { { "a", x, high, 3 }, { "b", x, hole, 3 } } },
		{ .title = "memory",
		  .bytes = true,
		  .n_lines = 1,
		  .lines = { { "job", x, some_bytes, 3 } } },
	};
	const struct picture_event event = { "kill", 2.5 };
	const struct picture picture = { panels, &event, 2, 1, " s" };
	const char *path = path_in(*state, "p.png");

	assert_int_equal(picture_write(&picture, path), 0);
	png_file_read(path, &decoded);
	assert_int_equal(decoded.width, PICTURE_WIDTH);
	assert_int_equal(decoded.height, 2 * PICTURE_PANEL);
	/* The flat line at 100 of 105 is in the upper fifth of its panel, two rows thick. */
	assert_true(count(CANVAS_LINE, 0, PICTURE_PANEL / 4) > 2 * 800);
	assert_int_equal(count(CANVAS_LINE, PICTURE_PANEL / 4, PICTURE_PANEL * 3 / 4), 0);
	/* A value that is no number ends its line: only the name's sample has that colour. */
	assert_true(count(CANVAS_LINE + 1, 0, PICTURE_PANEL) < 50);
	assert_true(count(CANVAS_LINE, PICTURE_PANEL, PICTURE_PANEL) > 800);
	assert_true(count(CANVAS_RED, 0, 2 * PICTURE_PANEL) > 300);
}

TEST_WITH(picture_write__nothing_to_draw_is_an_empty_panel, begin, end)
{
	const struct picture_panel panel = { .title = "empty",
					     .n_lines = 1,
					     .lines = { { "none", NULL, NULL, 0 } } };
	const struct picture picture = { &panel, NULL, 1, 0, " s" };
	const char *path = path_in(*state, "p.png");

	assert_int_equal(picture_write(&picture, path), 0);
	png_file_read(path, &decoded);
	assert_int_equal(count(CANVAS_RED, 0, PICTURE_PANEL), 0);
	assert_int_equal(picture_write(&picture, path_in(*state, "none/p.png")), -ENOENT);
}

TEST_WITH(picture_write__areas_lie_on_each_other, begin, end)
{
	const double x[] = { 0, 5, 10 }, low[] = { 50, 50, 50 }, high[] = { 0, 50, 50 };
	const struct picture_line areas[] = { { "a", x, low, 3 }, { "b", x, high, 3 } };
	const struct picture_panel panel = { .title = "jobs", .n_areas = 2, .areas = areas };
	const struct picture picture = { &panel, NULL, 1, 0, " s" };
	const char *path = path_in(*state, "p.png");

	must(picture_write(&picture, path));
	png_file_read(path, &decoded);
	/* 100 of 105 fill the frame of 840 x 184 but its upper 9 rows: a its lower half, b a quarter. */
	assert_in_range(count(CANVAS_AREA, PICTURE_PANEL / 2, PICTURE_PANEL / 2), 840 * 80,
			840 * 92);
	assert_in_range(count(CANVAS_AREA + 1, 0, PICTURE_PANEL), 420 * 80, 420 * 92);
	assert_in_range(count(CANVAS_AREA + 1, PICTURE_PANEL * 5 / 8, PICTURE_PANEL * 3 / 8), 0, 0);
	assert_int_equal(count(CANVAS_AREA + 2, 0, PICTURE_PANEL), 0);
}

/* The number of names in a folder, without . and .. */
static uint32_t entries(const char *dir)
{
	DIR *folder = opendir(dir);
	uint32_t n = 0;

	assert_non_null(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n - 2;
}

TEST_WITH(picture_write__only_a_file_is_replaced, begin, end)
{
	const struct picture_panel panel = { .title = "empty" };
	const struct picture picture = { &panel, NULL, 1, 0, " s" };
	char link_path[TEMP_DIR_BYTES + 16];
	const char *fifo = path_in(*state, "fifo");
	struct stat st;

	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(picture_write(&picture, fifo), -EINVAL);
	assert_int_equal(lstat(fifo, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(picture_write(&picture, *state), -EINVAL);
	/* Through a link its target is replaced. */
	snprintf(link_path, sizeof(link_path), "%s/link", (char *)*state);
	assert_int_equal(symlink("p.png", link_path), 0);
	must(picture_write(&picture, path_in(*state, "p.png")));
	must(picture_write(&picture, link_path));
	assert_int_equal(lstat(link_path, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(entries(*state), 3);
}

TEST_WITH(picture_write__a_disk_without_room_leaves_the_old_file, begin, end)
{
	const struct picture_panel panel = { .title = "empty" };
	const struct picture picture = { &panel, NULL, 1, 0, " s" };
	const char *path = path_in(*state, "p.png");
	const struct rlimit small = { 64, RLIM_INFINITY };
	struct rlimit before;
	FILE *file = fopen(path, "we");
	struct stat st;
	int ret;

	assert_non_null(file);
	assert_int_equal(fputs("old", file) < 0, 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	ret = picture_write(&picture, path);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(ret, -EFBIG);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 3);
	assert_int_equal(entries(*state), 1);
}

int main(void)
{
	if (test_skips_msan("zlib"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}

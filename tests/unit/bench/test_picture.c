/* A picture is a PNG that decodes to what was drawn. */
#include "bench/harness/picture.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "bench/harness/canvas.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#define FILE_MOST 262144

static uint32_t u32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static struct {
	uint32_t width, height;
	uint8_t pixels[(PICTURE_WIDTH + 1) * PICTURE_PANEL * 2];
	uLongf bytes;
} decoded;

/* Reads a file as any decoder would: chunks in order, each with its crc. */
static void decode(const char *path)
{
	static uint8_t bytes[FILE_MOST];
	FILE *file = fopen(path, "rb");
	size_t n, at = 8;

	assert_non_null(file);
	n = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	assert_true(n > 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0);
	memset(&decoded, 0, sizeof(decoded));
	while (at + 12 <= n) {
		uint32_t length = u32(bytes + at);
		const uint8_t *kind = bytes + at + 4, *data = kind + 4;

		assert_true(length <= n - at - 12);
		assert_int_equal(u32(data + length), crc32(0, kind, length + 4));
		if (memcmp(kind, "IHDR", 4) == 0) {
			decoded.width = u32(data);
			decoded.height = u32(data + 4);
		} else if (memcmp(kind, "IDAT", 4) == 0) {
			decoded.bytes = sizeof(decoded.pixels);
			assert_int_equal(uncompress(decoded.pixels, &decoded.bytes, data, length),
					 Z_OK);
		}
		at += 12 + length;
	}
	assert_int_equal(at, n);
	assert_int_equal(decoded.bytes, (decoded.width + 1) * decoded.height);
}

static uint32_t count(uint8_t colour, uint32_t from_row, uint32_t rows)
{
	uint32_t n = 0;

	for (uint32_t y = from_row; y < from_row + rows; y++) {
		const uint8_t *row = decoded.pixels + (size_t)y * (decoded.width + 1);

		assert_int_equal(row[0], 0);
		for (uint32_t x = 0; x < decoded.width; x++)
			n += row[1 + x] == colour;
	}
	return n;
}

TEST(picture_write__lines_are_where_their_values_are)
{
	const double x[] = { 0, 5, 10 }, high[] = { 100, 100, 100 }, hole[] = { 0, NAN, 0 };
	const double some_bytes[] = { 0, 4096, 65536 };
	const struct picture_panel panels[] = {
		{ "return", false, 2, { { "a", x, high, 3 }, { "b", x, hole, 3 } } },
		{ "memory", true, 1, { { "job", x, some_bytes, 3 } } },
	};
	const struct picture_event event = { "kill", 2.5 };
	const struct picture picture = { panels, &event, 2, 1, " s" };
	char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 16];

	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/p.png", dir);
	assert_int_equal(picture_write(&picture, path), 0);
	decode(path);
	assert_int_equal(decoded.width, PICTURE_WIDTH);
	assert_int_equal(decoded.height, 2 * PICTURE_PANEL);
	/* The flat line at 100 of 105 is in the upper fifth of its panel, two rows thick. */
	assert_true(count(CANVAS_LINE, 0, PICTURE_PANEL / 4) > 2 * 800);
	assert_int_equal(count(CANVAS_LINE, PICTURE_PANEL / 4, PICTURE_PANEL * 3 / 4), 0);
	/* A value that is no number ends its line: only the name's sample has that colour. */
	assert_true(count(CANVAS_LINE + 1, 0, PICTURE_PANEL) < 50);
	assert_true(count(CANVAS_LINE, PICTURE_PANEL, PICTURE_PANEL) > 800);
	assert_true(count(CANVAS_RED, 0, 2 * PICTURE_PANEL) > 300);
	temp_dir_remove(dir);
}

TEST(picture_write__nothing_to_draw_is_an_empty_panel)
{
	const struct picture_panel panel = { "empty", false, 1, { { "none", NULL, NULL, 0 } } };
	const struct picture picture = { &panel, NULL, 1, 0, " s" };
	char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 16];

	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/p.png", dir);
	assert_int_equal(picture_write(&picture, path), 0);
	decode(path);
	assert_int_equal(count(CANVAS_RED, 0, PICTURE_PANEL), 0);
	temp_dir_remove(dir);
	assert_int_equal(picture_write(&picture, path), -ENOENT);
}

int main(void)
{
	if (test_skips_msan("zlib"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}

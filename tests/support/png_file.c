#include "tests/support/png_file.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "tests/support/test.h"

#define FILE_MOST 262144

static uint32_t u32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

void png_file_read(const char *path, struct png_file *png_out)
{
	static uint8_t bytes[FILE_MOST];
	FILE *file = fopen(path, "rbe");
	uLongf decoded = 0;
	size_t n, at = 8;

	assert_non_null(file);
	n = fread(bytes, 1, sizeof(bytes), file);
	(void)fclose(file);
	assert_true(n > 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0);
	memset(png_out, 0, sizeof(*png_out));
	while (at + 12 <= n) {
		uint32_t length = u32(bytes + at);
		const uint8_t *kind = bytes + at + 4, *data = kind + 4;

		assert_true(length <= n - at - 12);
		assert_int_equal(u32(data + length), crc32(0, kind, length + 4));
		if (memcmp(kind, "IHDR", 4) == 0) {
			assert_int_equal(length, 13);
			png_out->width = u32(data);
			png_out->height = u32(data + 4);
		} else if (memcmp(kind, "IDAT", 4) == 0) {
			decoded = sizeof(png_out->pixels);
			assert_int_equal(uncompress(png_out->pixels, &decoded, data, length), Z_OK);
		}
		at += 12 + length;
	}
	assert_int_equal(at, n);
	assert_memory_equal(bytes + n - 8, "IEND", 4);
	assert_int_equal(decoded, (png_out->width + 1) * png_out->height);
}

uint32_t png_file_count(const struct png_file *png, uint8_t colour, uint32_t from_row,
			uint32_t rows)
{
	uint32_t n = 0;

	for (uint32_t y = from_row; y < from_row + rows; y++) {
		const uint8_t *row = png->pixels + (size_t)y * (png->width + 1);

		assert_int_equal(row[0], 0);
		for (uint32_t x = 0; x < png->width; x++)
			n += row[1 + x] == colour;
	}
	return n;
}

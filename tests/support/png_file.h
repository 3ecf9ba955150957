/* png_file.h - pictures of bench/harness/canvas.h, read as any decoder would. */
#ifndef RLV_TESTS_SUPPORT_PNG_FILE_H
#define RLV_TESTS_SUPPORT_PNG_FILE_H

#include <stdint.h>

#include "bench/harness/picture.h"

#define PNG_FILE_PANELS 3u /* at most */

struct png_file {
	uint32_t width, height;
	uint8_t pixels[(PICTURE_WIDTH + 1) * PICTURE_PANEL *
		       PNG_FILE_PANELS]; /* a 0 before each row */
};

/* Reads a file; fails the test if a chunk is cut off, has a wrong CRC, or the pixels are too few or too many. */
void png_file_read(const char *path, struct png_file *png_out);

/* Pixels of a colour in so many rows. */
uint32_t png_file_count(const struct png_file *png, uint8_t colour, uint32_t from_row,
			uint32_t rows);

#endif

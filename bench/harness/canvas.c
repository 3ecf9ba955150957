#include "bench/harness/canvas.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/mem/alloc.h"

#define SCALE 2 /* pixels of a dot of a letter, each way */

/* red, green, blue of enum canvas_colour: six of lines, then those of areas */
static const uint8_t palette[CANVAS_COLOURS][3] = {
	{ 255, 255, 255 }, { 20, 20, 20 },    { 205, 205, 205 }, { 200, 30, 30 },
	{ 30, 100, 190 },  { 230, 125, 20 },  { 45, 150, 60 },   { 140, 80, 170 },
	{ 90, 90, 90 },    { 0, 160, 170 },   { 145, 190, 230 }, { 250, 195, 125 },
	{ 155, 215, 155 }, { 205, 170, 225 }, { 245, 165, 160 }, { 160, 220, 220 },
	{ 225, 220, 130 }, { 190, 165, 145 },
};

/* Letters from ' ' to 'Z' of 3 x 5 dots: an octal digit for each row, from the top. */
static const uint16_t letters['Z' - ' ' + 1] = {
	000000, 022202, 055000, 057575, 000000, 051245, 025257, 022000, 012221, 042224,
	005250, 002720, 000024, 000700, 000002, 011244, 075557, 026227, 071747, 071317,
	055711, 074717, 074757, 071122, 075757, 075717, 002020, 002024, 012421, 007070,
	042124, 071202, 075747, 025755, 065656, 034443, 065556, 074647, 074644, 034553,
	055755, 072227, 011152, 055655, 044447, 057755, 065555, 025552, 065644, 025563,
	065655, 034216, 072222, 055557, 055552, 055775, 055255, 055222, 071247,
};

int canvas_init(struct canvas *canvas, uint32_t width, uint32_t height)
{
	*canvas = (struct canvas){ .width = width, .height = height };
	canvas->bytes = ((size_t)width + 1) * height;
	canvas->pixels = mem_zalloc(canvas->bytes);
	return canvas->pixels ? 0 : error_set(-ENOMEM, "a picture of %zu bytes", canvas->bytes);
}

void canvas_destroy(struct canvas *canvas)
{
	mem_free(canvas->pixels);
	canvas->pixels = NULL;
}

void canvas_point(struct canvas *canvas, int64_t x, int64_t y, uint8_t colour)
{
	if (x >= 0 && x < canvas->width && y >= 0 && y < canvas->height)
		canvas->pixels[(size_t)y * (canvas->width + 1) + 1 + (size_t)x] = colour;
}

void canvas_line(struct canvas *canvas, const int32_t from[2], const int32_t to[2], uint8_t colour)
{
	int64_t across = (int64_t)to[0] - from[0], down = (int64_t)to[1] - from[1];
	int64_t steps = llabs(across) > llabs(down) ? llabs(across) : llabs(down);

	for (int64_t i = 0; i <= steps; i++)
		canvas_point(canvas, from[0] + (steps ? across * i / steps : 0),
			     from[1] + (steps ? down * i / steps : 0), colour);
}

static void draw_letter(struct canvas *canvas, int32_t x, int32_t y, unsigned dots)
{
	for (int dot = 0; dot < 15 * SCALE * SCALE; dot++) {
		int across = dot % (3 * SCALE), down = dot / (3 * SCALE);

		if (dots >> (14 - down / SCALE * 3 - across / SCALE) & 1)
			canvas_point(canvas, x + across, y + down, CANVAS_BLACK);
	}
}

void canvas_text(struct canvas *canvas, int32_t x, int32_t y, const char *text)
{
	for (; *text; text++, x += (int32_t)CANVAS_CHAR_WIDTH) {
		int c = *text >= 'a' && *text <= 'z' ? *text - 'a' + 'A' : *text;

		draw_letter(canvas, x, y, c >= ' ' && c <= 'Z' ? letters[c - ' '] : 0);
	}
}

/* -------- the file -------- */

static void put_u32(uint8_t *to, uint64_t value)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void write_chunk(FILE *file, const char *kind, const uint8_t *data, size_t bytes)
{
	uint8_t head[8], end[4];
	uLong crc;

	put_u32(head, bytes);
	memcpy(head + 4, kind, 4);
	crc = crc32(0, head + 4, 4);
	put_u32(end, bytes ? crc32(crc, data, (uInt)bytes) : crc);
	fwrite(head, 1, sizeof(head), file);
	if (bytes)
		fwrite(data, 1, bytes, file);
	fwrite(end, 1, sizeof(end), file);
}

/* The path of the file itself, as its name may be a link, and that of a draft beside it. */
static int find_paths(const char *path, char target[PATH_MAX], char draft[PATH_MAX])
{
	struct stat st;
	int n;

	if (!realpath(path, target))
		snprintf(target, PATH_MAX, "%s", path);
	else if (stat(target, &st) == 0 && !S_ISREG(st.st_mode))
		return error_set(-EINVAL,
				 "write picture %s: it is no regular file: name another one", path);
	n = snprintf(draft, PATH_MAX, "%s.%d", target, (int)getpid());
	if (strlen(path) < PATH_MAX && n > 0 && n < PATH_MAX)
		return 0;
	return error_set(-ENAMETOOLONG, "write picture %.64s...: name too long", path);
}

/* Writes the chunks to a new file. packed: the compressed pixels. */
static int write_file(const struct canvas *canvas, const char *path, const uint8_t *packed,
		      size_t bytes)
{
	static const uint8_t signature[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
	uint8_t header[13] = { [8] = 8, [9] = 3 }; /* 8 bits, of a palette */
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666), ret;
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	if (!file) {
		ret = -errno;
		if (fd >= 0)
			close(fd);
		return ret;
	}
	put_u32(header, canvas->width);
	put_u32(header + 4, canvas->height);
	fwrite(signature, 1, sizeof(signature), file);
	write_chunk(file, "IHDR", header, sizeof(header));
	write_chunk(file, "PLTE", palette[0], sizeof(palette));
	write_chunk(file, "IDAT", packed, bytes);
	write_chunk(file, "IEND", NULL, 0);
	ret = fflush(file) ? -errno : ferror(file) ? -EIO : 0;
	if (fclose(file) && ret == 0)
		ret = -errno;
	return ret;
}

int canvas_write(const struct canvas *canvas, const char *path)
{
	char target[PATH_MAX], draft[PATH_MAX];
	uLongf bytes = compressBound(canvas->bytes);
	uint8_t *packed;
	int ret = find_paths(path, target, draft);

	if (ret)
		return ret;
	packed = mem_alloc(bytes);
	if (!packed || compress(packed, &bytes, canvas->pixels, canvas->bytes) != Z_OK) {
		mem_free(packed);
		return error_set(-ENOMEM, "write picture %s: no memory", path);
	}
	ret = write_file(canvas, draft, packed, bytes);
	mem_free(packed);
	if (ret == 0 && rename(draft, target))
		ret = -errno;
	if (ret) {
		(void)unlink(draft);
		return error_set(ret, "write picture %s: %s", path, strerror(-ret));
	}
	return 0;
}

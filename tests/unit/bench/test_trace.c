/*
 * bench/trace: traces of the recorder, traces made here, and everything that is no trace.
 */
#include "bench/trace/trace.h"

#include "bench/trace/chunk.h"
#include "bench/trace/header.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include "base/mem/alloc.h"
#include "base/bits.h"
#include "base/error.h"

#include <zlib.h>

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA RLV_TEST_SOURCE_DIR "/tests/data/"

/* --- A trace made by hand: one chunk per column, every byte of it known --- */

struct image {
	uint8_t bytes[8192];
	size_t size;
};

static void put(struct image *image, size_t off, uint64_t value, size_t bytes)
{
	memcpy(image->bytes + off, &value, bytes);
}

static void put_text(struct image *image, size_t off, const char *text)
{
	memcpy(image->bytes + off, text, strlen(text));
}

/* Makes the header's checksum right again. */
static void seal(struct image *image)
{
	uint32_t header;

	memcpy(&header, image->bytes + 12, sizeof(header));
	put(image, header - 4, crc32_z(0, image->bytes, header - 4), 4);
}

static void put_chunk(struct image *image, uint16_t column, uint32_t rows, const void *raw,
		      size_t size)
{
	uLongf stored = sizeof(image->bytes) - image->size - 24;
	size_t off = image->size;

	assert_int_equal(compress2(image->bytes + off + 24, &stored, raw, size, 9), Z_OK);
	put_text(image, off, "RLVC");
	put(image, off + 4, column, 4);
	put(image, off + 8, rows, 4);
	put(image, off + 12, size, 4);
	put(image, off + 16, stored, 4);
	put(image, off + 20, crc32_z(0, raw, size), 4);
	image->size += 24 + stored;
}

static void put_field(struct image *image, uint32_t idx, const char *name, const char *dtype,
		      uint8_t role)
{
	put_text(image, 320 + 64 * idx, name);
	put_text(image, 320 + 64 * idx + 32, dtype);
	put(image, 320 + 64 * idx + 40, role, 1);
}

#define ROWS 5
#define FIELDS 4
#define FIELD(idx, off) (320 + 64 * (idx) + (off))

static const uint8_t usual_obs[ROWS][2] = { { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 }, { 9, 10 } };
static const uint16_t usual_flags[ROWS] = {
	TRACE_FIRST, TRACE_TERMINATED, TRACE_FINAL, TRACE_FIRST | TRACE_TRUNCATED, TRACE_FINAL,
};
static const float usual_priority[ROWS] = { 0.5f, 2, 0, 1, 0 };
static const uint32_t usual_version[ROWS] = { 1, 1, 2, 2, 3 };

/* Two episodes of two steps and one. */
static void make_image(struct image *image, const uint16_t *flags, const float *priority)
{
	memset(image, 0, sizeof(*image));
	put_text(image, 0, "RLVTRACE");
	put(image, 8, 1, 4);
	put(image, 12, 324 + 64 * FIELDS, 4);
	put(image, 16, ROWS, 8);
	put(image, 24, 3, 8);
	put(image, 32, 2, 8);
	put(image, 40, 77, 8);
	put(image, 48, FIELDS, 4);
	put(image, 52, 8, 4);
	put_text(image, 64, "Toy-v0");
	put_text(image, 128, "toy 1.0");
	put_field(image, 0, "obs", "|u1", TRACE_ROLE_COLUMN);
	put(image, FIELD(0, 42), 1, 1);
	put(image, FIELD(0, 48), 2, 4);
	put_field(image, 1, "flags", "<u2", TRACE_ROLE_FLAGS);
	put_field(image, 2, "priority", "<f4", TRACE_ROLE_PRIORITY);
	put_field(image, 3, "policy_version", "<u4", TRACE_ROLE_VERSION);
	image->size = 324 + 64 * FIELDS;
	put_chunk(image, 0, ROWS, usual_obs, sizeof(usual_obs));
	put_chunk(image, 1, ROWS, flags, ROWS * sizeof(*flags));
	put_chunk(image, 2, ROWS, priority, ROWS * sizeof(*priority));
	put_chunk(image, 3, ROWS, usual_version, sizeof(usual_version));
	seal(image);
}

static void usual_image(struct image *image)
{
	make_image(image, usual_flags, usual_priority);
}

/* Opens and loads a trace; returns the first error. */
static int try_load(const void *bytes, size_t size)
{
	struct trace *trace = NULL;
	int err;

	error_clear();
	err = trace_open_bytes("made", bytes, size, &trace);
	if (err) {
		assert_null(trace);
		assert_non_null(strstr(error_last(), "trace made: "));
	}
	trace_close(&trace);
	return err;
}

/* The usual image with value at off and a right checksum. */
static int try_patched(size_t off, uint64_t value, size_t bytes)
{
	struct image image;

	usual_image(&image);
	put(&image, off, value, bytes);
	seal(&image);
	return try_load(image.bytes, image.size);
}

static int try_flags(const uint16_t *flags)
{
	struct image image;

	make_image(&image, flags, usual_priority);
	return try_load(image.bytes, image.size);
}

/* --- Opening files --- */

TEST(trace_open__missing_file_gives_enoent)
{
	struct trace *trace = NULL;

	assert_int_equal(trace_open(DATA "no-such.rlvt", &trace), -ENOENT);
	assert_null(trace);
	assert_non_null(strstr(error_last(), "no-such.rlvt"));
}

TEST(trace_open__directory_gives_einval)
{
	struct trace *trace = NULL;

	assert_int_equal(trace_open(DATA, &trace), -EINVAL);
	assert_null(trace);
}

TEST(trace_open__fifo_does_not_wait)
{
	char dir[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES + 8];
	struct trace *trace = NULL;

	temp_dir_make(dir);
	snprintf(path, sizeof(path), "%s/fifo", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(trace_open(path, &trace), -EINVAL);
	assert_null(trace);
	unlink(path);
	rmdir(dir);
}

TEST(trace_open__other_file_gives_eproto)
{
	struct trace *trace = NULL;

	assert_int_equal(trace_open(RLV_TEST_SOURCE_DIR "/CMakeLists.txt", &trace), -EPROTO);
	assert_null(trace);
}

TEST(trace_open_bytes__nothing_gives_eproto)
{
	assert_int_equal(try_load("", 0), -EPROTO);
}

/* --- What a trace holds --- */

TEST(trace_open__is_that_of_the_header)
{
	struct trace *trace;
	struct image image;

	usual_image(&image);
	assert_int_equal(trace_open_bytes("made", image.bytes, image.size, &trace), 0);
	assert_int_equal(trace->rows, ROWS);
	assert_int_equal(trace->steps, 3);
	assert_int_equal(trace->episodes, 2);
	assert_int_equal(trace->seed, 77);
	assert_int_equal(trace->data_bytes, ROWS * (2 + 2 + 4 + 4));
	assert_int_equal(trace->file_bytes, image.size);
	assert_string_equal(trace->env, "Toy-v0");
	assert_string_equal(trace->versions, "toy 1.0");
	trace_close(&trace);
	assert_null(trace);
}

TEST(trace_open__are_those_of_the_signature)
{
	const struct trace_column *columns;
	struct trace *trace;
	struct image image;

	usual_image(&image);
	assert_int_equal(trace_open_bytes("made", image.bytes, image.size, &trace), 0);
	columns = trace->columns;
	assert_int_equal(trace->n_columns, FIELDS);
	for (uint32_t i = 0; i < FIELDS; i++)
		assert_int_equal(columns[i].role, i);
	assert_string_equal(columns[0].name, "obs");
	assert_string_equal(columns[0].dtype, "|u1");
	assert_int_equal(columns[0].item_bytes, 1);
	assert_int_equal(columns[0].ndim, 1);
	assert_int_equal(columns[0].shape[0], 2);
	assert_int_equal(columns[0].row_bytes, 2);
	trace_close(&trace);
}

TEST(trace_open__gives_every_array)
{
	const struct trace_column *columns;
	struct trace *trace;
	struct image image;

	usual_image(&image);
	assert_int_equal(trace_open_bytes("made", image.bytes, image.size, &trace), 0);
	columns = trace->columns;
	assert_memory_equal(columns[0].data, usual_obs, sizeof(usual_obs));
	assert_memory_equal(trace->flags, usual_flags, sizeof(usual_flags));
	assert_memory_equal(trace->priority, usual_priority, sizeof(usual_priority));
	assert_memory_equal(trace->policy_version, usual_version, sizeof(usual_version));
	assert_int_equal(trace->episode_row[0], 0);
	assert_int_equal(trace->episode_row[1], 3);
	assert_int_equal(trace->episode_row[2], ROWS);
	trace_close(&trace);
}

TEST(trace_close__twice_is_a_no_op)
{
	struct trace *trace = NULL;

	trace_close(&trace);
	assert_null(trace);
}

/* --- The recordings --- */

static struct trace *load_recording(const char *path)
{
	struct trace *trace = NULL;

	assert_int_equal(trace_open(path, &trace), 0);
	return trace;
}

static uint32_t column_crc(const struct trace *trace, size_t idx)
{
	const struct trace_column *column = &trace->columns[idx];

	assert_true(idx < trace->n_columns);
	return (uint32_t)crc32_z(0, column->data, trace->rows * column->row_bytes);
}

/* The checksums were computed by another reader, in Python. */
TEST(trace_open__small_recordings_are_read_to_the_byte)
{
	struct trace *trace = load_recording(DATA "cartpole-small.rlvt");

	assert_int_equal(column_crc(trace, 0), 0xd8311740);
	assert_int_equal(column_crc(trace, 1), 0x26cee364);
	assert_int_equal(column_crc(trace, 2), 0x6fe19270);
	assert_int_equal(crc32_z(0, (const void *)trace->priority, trace->rows * sizeof(float)),
			 0xe401a23d);
	trace_close(&trace);
	trace = load_recording(DATA "pong-small.rlvt");
	assert_int_equal(column_crc(trace, 0), 0x440311a1);
	assert_int_equal(column_crc(trace, 1), 0x31a67236);
	trace_close(&trace);
}

/* The cart moves by a fiftieth of its speed: so every row, final ones too, is where it belongs. */
TEST(trace_open__cartpole_obeys_its_physics)
{
	struct trace *trace = load_recording(DATA "cartpole.rlvt");
	uint64_t steps = trace->rows, positive = 0;
	const struct trace_column *columns = trace->columns;
	const float(*obs)[4] = columns[0].data;
	const int32_t *action = columns[1].data;

	assert_true(trace->steps >= 100000);
	for (uint64_t row = 0; row + 1 < steps; row++) {
		if (trace->flags[row] & TRACE_FINAL)
			continue;
		assert_true(fabsf(obs[row][0] + 0.02f * obs[row][1] - obs[row + 1][0]) < 1e-5f);
		assert_true((obs[row + 1][1] > obs[row][1]) == (action[row] == 1));
		positive += trace->priority[row] > 0;
	}
	assert_true(positive > trace->steps * 99 / 100);
	trace_close(&trace);
}

TEST(trace_open__pong_is_84_by_84)
{
	struct trace *trace = load_recording(DATA "pong.rlvt");
	size_t changed = 0;
	const struct trace_column *columns = trace->columns;
	const uint8_t *frames = columns[0].data;
	const uint64_t rows = trace->rows;

	assert_true(trace->steps >= 20000);
	assert_string_equal(columns[0].dtype, "|u1");
	assert_int_equal(columns[0].ndim, 2);
	assert_int_equal(columns[0].row_bytes, 84 * 84);
	for (uint64_t row = 0; row + 1 < rows; row++)
		changed += memcmp(frames + row * 7056, frames + (row + 1) * 7056, 7056) != 0;
	assert_true(changed > rows * 9 / 10);
	trace_close(&trace);
}

TEST(trace_open__recordings_fit_four_megabytes)
{
	struct trace *cartpole = load_recording(DATA "cartpole.rlvt");
	struct trace *pong = load_recording(DATA "pong.rlvt");

	assert_true(cartpole->file_bytes + pong->file_bytes <= 4000000);
	trace_close(&cartpole);
	trace_close(&pong);
}

/* --- Damage --- */

static size_t read_small(const char *path, uint8_t *bytes, size_t room)
{
	FILE *file = fopen(path, "rb");
	size_t size;

	assert_non_null(file);
	size = fread(bytes, 1, room, file);
	assert_true(size > 0 && size < room);
	fclose(file);
	return size;
}

TEST(trace_open_bytes__every_truncation_is_an_error)
{
	uint8_t bytes[8192];
	size_t size = read_small(DATA "cartpole-small.rlvt", bytes, sizeof(bytes));

	for (size_t cut = 0; cut < size; cut++) {
		struct trace *trace = NULL;

		assert_int_equal(trace_open_bytes("cut", bytes, cut, &trace), -EPROTO);
		assert_null(trace);
	}
	assert_int_equal(try_load(bytes, size), 0);
}

static bool same_data(const struct trace *a, const struct trace *b)
{
	uint64_t rows = a->rows;
	const struct trace_column *ca = a->columns, *cb = b->columns;

	if (rows != b->rows || a->n_columns != b->n_columns)
		return false;
	for (size_t i = 0; i < a->n_columns; i++) {
		if (memcmp(ca[i].data, cb[i].data, rows * ca[i].row_bytes) != 0)
			return false;
	}
	return memcmp(a->flags, b->flags, rows * 2) == 0 &&
	       memcmp(a->priority, b->priority, rows * 4) == 0;
}

TEST(trace_open__flipped_bits_are_an_error_or_change_nothing)
{
	struct trace *whole = load_recording(DATA "cartpole-small.rlvt"), *trace = NULL;
	uint8_t bytes[8192];
	size_t size = read_small(DATA "cartpole-small.rlvt", bytes, sizeof(bytes)), errors = 0;

	for (size_t bit = 0; bit < size * 8; bit += 3) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (trace_open_bytes("flipped", bytes, size, &trace) != 0)
			errors++;
		else
			assert_true(same_data(whole, trace));
		trace_close(&trace);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_true(errors > size * 8 / 3 * 9 / 10);
	trace_close(&whole);
}

TEST(trace_open_bytes__bytes_after_the_end_give_eproto)
{
	struct image image;

	usual_image(&image);
	assert_int_equal(try_load(image.bytes, image.size), 0);
	assert_int_equal(try_load(image.bytes, image.size + 1), -EPROTO);
}

TEST(trace_open_bytes__header_checksum_gives_ebadmsg)
{
	struct image image;

	usual_image(&image);
	image.bytes[40] ^= 1;
	assert_int_equal(try_load(image.bytes, image.size), -EBADMSG);
}

/* --- Hostile headers, their checksums right --- */

TEST(trace_open_bytes__other_major_version_gives_eproto)
{
	assert_int_equal(try_patched(8, 2, 2), -EPROTO);
	assert_non_null(strstr(error_last(), "format 2"));
}

TEST(trace_open_bytes__later_minor_version_is_read)
{
	assert_int_equal(try_patched(10, 9, 2), 0);
}

TEST(trace_open_bytes__column_count_beyond_the_header_gives_eproto)
{
	assert_int_equal(try_patched(48, FIELDS + 1, 4), -EPROTO);
	assert_int_equal(try_patched(48, UINT32_MAX, 4), -EPROTO);
	assert_int_equal(try_patched(48, UINT32_C(1) << 26, 4), -EPROTO);
}

TEST(trace_open_bytes__counts_that_disagree_give_eproto)
{
	assert_int_equal(try_patched(16, ROWS + 1, 8), -EPROTO);
	assert_int_equal(try_patched(24, 0, 8), -EPROTO);
	assert_int_equal(try_patched(24, UINT64_MAX, 8), -EPROTO);
	assert_int_equal(try_patched(32, 0, 8), -EPROTO);
}

TEST(trace_open_bytes__more_rows_than_the_file_holds)
{
	struct image image;

	usual_image(&image);
	put(&image, 16, UINT64_C(1) << 60, 8);
	put(&image, 24, (UINT64_C(1) << 60) - 2, 8);
	seal(&image);
	assert_int_equal(try_load(image.bytes, image.size), -EOVERFLOW);
	put(&image, 16, 1000000, 8);
	put(&image, 24, 1000000 - 2, 8);
	seal(&image);
	assert_int_equal(try_load(image.bytes, image.size), -EPROTO);
}

TEST(trace_open_bytes__bad_chunk_rows_give_eproto)
{
	assert_int_equal(try_patched(52, 0, 4), -EPROTO);
	assert_int_equal(try_patched(52, TRACE_MAX_CHUNK_ROWS + 1, 4), -EPROTO);
	assert_int_equal(try_patched(52, 4, 4), -EPROTO);
}

TEST(trace_open_bytes__reserved_bytes_give_eproto)
{
	assert_int_equal(try_patched(56, 1, 8), -EPROTO);
	assert_int_equal(try_patched(FIELD(0, 43), 1, 1), -EPROTO);
}

TEST(trace_open_bytes__bad_texts_give_eproto)
{
	assert_int_equal(try_patched(64, 0, 8), -EPROTO);
	assert_int_equal(try_patched(128, '\n', 1), -EPROTO);
	assert_int_equal(try_patched(FIELD(0, 0), '-', 1), -EPROTO);
	assert_int_equal(try_patched(FIELD(0, 31), 'x', 1), -EPROTO);
}

TEST(trace_open_bytes__unknown_dtype_gives_eproto)
{
	assert_int_equal(try_patched(FIELD(0, 34), '4', 1), -EPROTO);
	assert_non_null(strstr(error_last(), "dtype |u4"));
}

TEST(trace_open_bytes__bad_shape_gives_eproto)
{
	assert_int_equal(try_patched(FIELD(0, 42), TRACE_MAX_DIMS + 1, 1), -EPROTO);
	assert_int_equal(try_patched(FIELD(0, 42), 0, 1), -EPROTO);
	assert_int_equal(try_patched(FIELD(0, 42), 2, 1), -EPROTO);
	assert_int_equal(try_patched(FIELD(0, 48), 3, 4), -EPROTO);
}

TEST(trace_open_bytes__shape_whose_product_wraps_gives_eoverflow)
{
	struct image image;

	usual_image(&image);
	put(&image, FIELD(0, 42), 4, 1);
	for (size_t i = 0; i < 4; i++)
		put(&image, FIELD(0, 48 + 4 * i), UINT32_C(1) << 16, 4);
	seal(&image);
	assert_int_equal(try_load(image.bytes, image.size), -EOVERFLOW);
	put(&image, FIELD(0, 42), 1, 1);
	put(&image, FIELD(0, 48), UINT32_MAX, 4);
	put(&image, FIELD(0, 52), 0, 8);
	put(&image, FIELD(0, 60), 0, 4);
	seal(&image);
	assert_int_equal(try_load(image.bytes, image.size), -EOVERFLOW);
}

TEST(trace_open_bytes__roles_must_each_come_once)
{
	assert_int_equal(try_patched(FIELD(3, 40), TRACE_ROLE_PRIORITY, 1), -EPROTO);
	assert_int_equal(try_patched(FIELD(3, 40), TRACE_ROLE_COLUMN, 1), -EPROTO);
	assert_int_equal(try_patched(FIELD(3, 40), TRACE_ROLES, 1), -EPROTO);
	assert_int_equal(try_patched(FIELD(2, 33), 'u', 1), -EPROTO);
}

TEST(trace_open_bytes__same_name_twice_gives_eproto)
{
	struct image image;

	usual_image(&image);
	memset(image.bytes + FIELD(1, 0), 0, 32);
	put_text(&image, FIELD(1, 0), "obs");
	seal(&image);
	assert_int_equal(try_load(image.bytes, image.size), -EPROTO);
}

TEST(trace_open_bytes__unknown_filter_gives_eproto)
{
	assert_int_equal(try_patched(FIELD(0, 41), TRACE_FILTERS + 1, 1), -EPROTO);
	assert_int_equal(try_patched(FIELD(0, 41), TRACE_FILTER_XOR | TRACE_FILTER_DELTA, 1),
			 -EPROTO);
}

/* --- Hostile chunks --- */

#define CHUNK (324 + 64 * FIELDS)

TEST(trace_open_bytes__wrong_chunk_header_gives_eproto)
{
	assert_int_equal(try_patched(CHUNK, 'X', 1), -EPROTO);
	assert_int_equal(try_patched(CHUNK + 4, 1, 2), -EPROTO);
	assert_int_equal(try_patched(CHUNK + 6, 1, 2), -EPROTO);
	assert_int_equal(try_patched(CHUNK + 8, ROWS - 1, 4), -EPROTO);
	assert_int_equal(try_patched(CHUNK + 12, 2 * ROWS + 1, 4), -EPROTO);
	assert_int_equal(try_patched(CHUNK + 16, UINT32_MAX, 4), -EPROTO);
}

TEST(trace_open__chunk_checksum_gives_ebadmsg)
{
	assert_int_equal(try_patched(CHUNK + 20, 0, 4), -EBADMSG);
	assert_non_null(strstr(error_last(), "column obs, row 0"));
}

/* 16 MB promised by a file of a few hundred bytes: refused before the data is allocated. */
TEST(trace_open_bytes__impossible_ratio_gives_eproto)
{
	struct image image;

	usual_image(&image);
	put(&image, FIELD(0, 48), 4000000, 4);
	put(&image, CHUNK + 12, ROWS * UINT64_C(4000000), 4);
	seal(&image);
	assert_int_equal(try_load(image.bytes, image.size), -EPROTO);
	assert_non_null(strstr(error_last(), "cannot inflate"));
}

TEST(trace_open__chunk_that_inflates_to_less_gives_ebadmsg)
{
	struct image image;

	usual_image(&image);
	put(&image, FIELD(0, 48), 3, 4);
	put(&image, CHUNK + 12, 3 * ROWS, 4);
	seal(&image);
	assert_int_equal(try_load(image.bytes, image.size), -EBADMSG);
}

TEST(trace_open__chunk_that_inflates_to_more_gives_ebadmsg)
{
	struct image image;

	usual_image(&image);
	put(&image, FIELD(0, 48), 1, 4);
	put(&image, CHUNK + 12, ROWS, 4);
	seal(&image);
	assert_int_equal(try_load(image.bytes, image.size), -EBADMSG);
}

/* --- Rows --- */

TEST(trace_open__flags_out_of_order_give_eproto)
{
	static const uint16_t bad[][ROWS] = {
		{ 0, 2, 8, 1 | 4, 8 },      /* does not begin with first */
		{ 1, 2, 1, 4, 8 },          /* no final row after an end */
		{ 1, 2, 8, 4, 8 },          /* no first after a final */
		{ 1, 8, 1, 4, 8 },          /* final without an end */
		{ 1, 1 | 2, 8, 1 | 4, 8 },  /* first twice */
		{ 1, 2, 8, 8, 8 },          /* an episode without a step */
		{ 1, 2, 8 | 2, 1 | 4, 8 },  /* a final row that is a step */
		{ 1, 2, 8, 1 | 4 | 16, 8 }, /* unknown */
		{ 1, 2, 8, 1, 4 },          /* cut */
		{ 1, 0, 0, 4, 8 },          /* one episode of two */
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(try_flags(bad[i]), -EPROTO);
	assert_int_equal(try_flags((const uint16_t[ROWS]){ 1, 2 | 4, 8, 1 | 2, 8 }), 0);
}

TEST(trace_open__bad_priorities_give_eproto)
{
	const float bad[] = { NAN, INFINITY, -INFINITY, -1 };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		float priority[ROWS] = { 1, bad[i], 0, 1, 0 };
		struct image image;

		make_image(&image, usual_flags, priority);
		assert_int_equal(try_load(image.bytes, image.size), -EPROTO);
		assert_non_null(strstr(error_last(), "row 1: priority"));
	}
}

/* --- No memory --- */

TEST(trace_open__every_failed_allocation_gives_enomem)
{
	uint8_t bytes[8192];
	size_t size = read_small(DATA "cartpole-small.rlvt", bytes, sizeof(bytes));
	uint64_t n = 1;
	int err;

	do {
		mem_fail_after(n++);
		err = try_load(bytes, size);
		assert_int_equal(err, mem_fail_fired() ? -ENOMEM : 0);
	} while (err && n < 1000);
	mem_fail_after(0);
	assert_int_equal(err, 0);
	assert_true(n > 10);
}

int main(void)
{
	return test_run(NULL, NULL);
}

/*
 * bench/trace/chunk: filters against arrays written out by hand.
 */
#include "bench/trace/chunk.h"

#include "tests/support/test.h"

#include <zlib.h>

#include <errno.h>
#include <stdint.h>

/* Decodes raw, 3 rows of 4 bytes, as stored by a filter. */
static void decode(const void *raw, uint32_t filter, uint32_t item_bytes, void *data)
{
	uint8_t body[64];
	uLongf stored = sizeof(body);
	struct trace_chunk chunk = {
		.body = body,
		.rows = 3,
		.row_bytes = 4,
		.item_bytes = item_bytes,
		.filter = filter,
		.crc = (uint32_t)crc32_z(0, raw, 12),
	};

	assert_int_equal(compress2(body, &stored, raw, 12, 9), Z_OK);
	chunk.stored_bytes = (uint32_t)stored;
	assert_int_equal(trace_chunk_decode(&chunk, data), 0);
}

TEST(trace_chunk_decode__undoes_xor)
{
	static const uint8_t raw[12] = { 1, 2, 3, 255, 0, 3, 0, 255, 1, 0, 0, 1 };
	static const uint8_t want[12] = { 1, 2, 3, 255, 1, 1, 3, 0, 0, 1, 3, 1 };
	uint8_t data[12];

	decode(raw, TRACE_FILTER_XOR, 1, data);
	assert_memory_equal(data, want, sizeof(want));
}

TEST(trace_chunk_decode__undoes_delta_modulo_the_element)
{
	static const uint16_t raw[6] = { 65535, 1, 1, 65535, 2, 256 };
	static const uint16_t want[6] = { 65535, 1, 0, 0, 2, 256 };
	uint16_t data[6];

	decode(raw, TRACE_FILTER_DELTA, 2, data);
	assert_memory_equal(data, want, sizeof(want));
}

TEST(trace_chunk_decode__undoes_transpose)
{
	static const uint8_t raw[12] = { 1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12 };
	static const uint8_t want[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
	uint8_t data[12];

	decode(raw, TRACE_FILTER_TRANSPOSE, 4, data);
	assert_memory_equal(data, want, sizeof(want));
}

TEST(trace_chunk_decode__undoes_transpose_before_delta)
{
	static const uint8_t raw[12] = { 255, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
	static const uint32_t want[3] = { 255, 256, 257 };
	uint32_t data[3];

	decode(raw, TRACE_FILTER_TRANSPOSE | TRACE_FILTER_DELTA, 4, data);
	assert_memory_equal(data, want, sizeof(want));
}

TEST(trace_chunk_decode__wrong_checksum_gives_ebadmsg)
{
	uint8_t body[64], data[12];
	uLongf stored = sizeof(body);
	struct trace_chunk chunk = { .body = body, .rows = 3, .row_bytes = 4, .item_bytes = 1 };

	assert_int_equal(compress2(body, &stored, (const void *)"twelve bytes", 12, 9), Z_OK);
	chunk.stored_bytes = (uint32_t)stored;
	assert_int_equal(trace_chunk_decode(&chunk, data), -EBADMSG);
}

TEST(trace_chunk_decode__unused_stored_bytes_give_ebadmsg)
{
	uint8_t body[64], data[12];
	uLongf stored = sizeof(body);
	struct trace_chunk chunk = { .body = body, .rows = 3, .row_bytes = 4, .item_bytes = 1 };

	assert_int_equal(compress2(body, &stored, (const void *)"twelve bytes", 12, 9), Z_OK);
	chunk.crc = (uint32_t)crc32_z(0, (const void *)"twelve bytes", 12);
	chunk.stored_bytes = (uint32_t)stored;
	assert_int_equal(trace_chunk_decode(&chunk, data), 0);
	body[stored] = 0;
	chunk.stored_bytes++;
	assert_int_equal(trace_chunk_decode(&chunk, data), -EBADMSG);
}

int main(void)
{
	return test_run(NULL, NULL);
}

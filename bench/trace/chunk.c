/*
 * chunk.c - see chunk.h.
 */
#include "bench/trace/chunk.h"

#include "base/mem/alloc.h"

#define ZLIB_CONST
#include <zlib.h>

#include <errno.h>
#include <string.h>

/* zlib allocates through our allocator, so that tests can inject allocation failures. */
static void *zlib_alloc(void *ctx, unsigned int n, unsigned int size)
{
	(void)ctx;
	return mem_array(n, size);
}

static void zlib_free(void *ctx, void *ptr)
{
	(void)ctx;
	mem_free(ptr);
}

/* Inflate to exactly size bytes and consume all stored bytes. */
static int inflate_body(const struct trace_chunk *chunk, uint8_t *raw, uint32_t size)
{
	z_stream z = { .next_in = chunk->body,
		       .avail_in = chunk->stored_bytes,
		       .next_out = raw,
		       .avail_out = size,
		       .zalloc = zlib_alloc,
		       .zfree = zlib_free };
	int code = inflateInit(&z);

	if (code == Z_OK) {
		code = inflate(&z, Z_FINISH);
		(void)inflateEnd(&z);
	}
	if (code == Z_MEM_ERROR)
		return error_set(-ENOMEM, "chunk: cannot allocate memory to inflate it");
	if (code != Z_STREAM_END || z.avail_in || z.avail_out)
		return error_set(-EBADMSG, "chunk: does not inflate to %u bytes", size);
	if (crc32_z(0, raw, size) != chunk->crc)
		return error_set(-EBADMSG, "chunk: wrong checksum");
	return 0;
}

static void undo_transpose(const uint8_t *raw, size_t rows, size_t row_bytes, uint8_t *data)
{
	for (size_t k = 0; k < row_bytes; k++) {
		for (size_t row = 0; row < rows; row++)
			data[row * row_bytes + k] = raw[k * rows + row];
	}
}

static void undo_xor(uint8_t *data, size_t size, size_t row_bytes)
{
	for (size_t i = row_bytes; i < size; i++)
		data[i] ^= data[i - row_bytes];
}

/* Little-endian: the low bytes of a 64-bit sum are the narrower sum. */
static void undo_delta(uint8_t *data, size_t size, size_t row_bytes, size_t item_bytes)
{
	for (size_t i = row_bytes; i < size; i += item_bytes) {
		uint64_t before = 0, here = 0;

		memcpy(&before, data + i - row_bytes, item_bytes);
		memcpy(&here, data + i, item_bytes);
		here += before;
		memcpy(data + i, &here, item_bytes);
	}
}

int trace_chunk_decode(const struct trace_chunk *chunk, uint8_t *data)
{
	uint32_t size = chunk->rows * chunk->row_bytes;
	uint8_t *raw = data;
	int err;

	if (chunk->filter & TRACE_FILTER_TRANSPOSE) {
		raw = mem_zalloc(size);
		if (!raw)
			return error_set(-ENOMEM, "chunk: cannot allocate %u bytes", size);
	}
	err = inflate_body(chunk, raw, size);
	if (!err && raw != data)
		undo_transpose(raw, chunk->rows, chunk->row_bytes, data);
	if (raw != data)
		mem_free(raw);
	if (!err && chunk->filter & TRACE_FILTER_XOR)
		undo_xor(data, size, chunk->row_bytes);
	if (!err && chunk->filter & TRACE_FILTER_DELTA)
		undo_delta(data, size, chunk->row_bytes, chunk->item_bytes);
	return err;
}

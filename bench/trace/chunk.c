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

int trace_chunk_decode(const struct trace_chunk *chunk, uint8_t *data)
{
	const size_t rows = chunk->rows, row_bytes = chunk->row_bytes, item = chunk->item_bytes;
	const size_t size = rows * row_bytes;
	uint8_t *raw = data;
	int err;

	if (chunk->filter & TRACE_FILTER_TRANSPOSE) {
		raw = mem_zalloc(size);
		if (!raw)
			return error_set(-ENOMEM, "chunk: cannot allocate %zu bytes", size);
	}
	err = inflate_body(chunk, raw, (uint32_t)size);
	for (size_t k = 0; !err && raw != data && k < row_bytes; k++) {
		for (size_t row = 0; row < rows; row++)
			data[row * row_bytes + k] = raw[k * rows + row];
	}
	if (raw != data)
		mem_free(raw);
	if (err)
		return err;
	if (chunk->filter & TRACE_FILTER_XOR) {
		for (size_t i = row_bytes; i < size; i++)
			data[i] ^= data[i - row_bytes];
	}
	/* Little-endian: the low bytes of a 64-bit sum are the narrower sum. */
	for (size_t i = row_bytes; chunk->filter & TRACE_FILTER_DELTA && i < size; i += item) {
		uint64_t before = 0, here = 0;

		memcpy(&before, data + i - row_bytes, item);
		memcpy(&here, data + i, item);
		here += before;
		memcpy(data + i, &here, item);
	}
	return 0;
}

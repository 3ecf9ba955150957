#include "bench/trace/chunk.h"

#include "base/mem/alloc.h"

#include <zlib.h>

#include <errno.h>
#include <string.h>

int trace_chunk_decode(const struct trace_chunk *chunk, uint8_t *data)
{
	const size_t rows = chunk->rows, row_bytes = chunk->row_bytes, item = chunk->item_bytes;
	const size_t size = rows * row_bytes;
	uLongf raw_bytes = size;
	uLong stored = chunk->stored_bytes;
	uint8_t *raw = data;
	int code, err = 0;

	if (chunk->filter & TRACE_FILTER_TRANSPOSE) {
		raw = mem_zalloc(size);
		if (!raw)
			return error_set(-ENOMEM, "chunk: cannot allocate %zu bytes", size);
	}
	/* To exactly size bytes, from all that is stored. */
	code = uncompress2(raw, &raw_bytes, chunk->body, &stored);
	if (code == Z_MEM_ERROR)
		err = error_set(-ENOMEM, "chunk: cannot allocate memory to inflate it");
	else if (code != Z_OK || raw_bytes != size || stored != chunk->stored_bytes)
		err = error_set(-EBADMSG, "chunk: does not inflate to %zu bytes", size);
	else if (crc32_z(0, raw, size) != chunk->crc)
		err = error_set(-EBADMSG, "chunk: wrong checksum");
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

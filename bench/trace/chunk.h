/*
 * chunk.h - one column of a run of rows as stored in a trace file: filtered, then deflated.
 * Independent of the file format around it.
 */
#ifndef RLV_BENCH_TRACE_CHUNK_H
#define RLV_BENCH_TRACE_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Filters applied before deflate: XOR or DELTA first, then TRANSPOSE. */
enum trace_filter {
	TRACE_FILTER_XOR = 1,       /* byte ^= same byte of the row before */
	TRACE_FILTER_DELTA = 2,     /* element -= same element of the row before, modulo 2^bits */
	TRACE_FILTER_TRANSPOSE = 4, /* byte 0 of every row, then byte 1 of every row, .. */
	TRACE_FILTERS = 7,
};

struct trace_chunk {
	const uint8_t *body;
	uint32_t stored_bytes; /* of body */
	uint32_t rows;
	uint32_t row_bytes;
	uint32_t item_bytes; /* divides row_bytes, at most 8 */
	uint32_t filter;
	uint32_t crc; /* crc32 of the inflated bytes, before the filters are undone */
};

/*
 * Decodes into data, rows * row_bytes bytes, a product below 2^32. -EBADMSG if the body inflates to
 * another size or the checksum differs, -ENOMEM; data is then undefined. Thread: any.
 */
int trace_chunk_decode(const struct trace_chunk *chunk, uint8_t *data) RLV_MUST_CHECK;

#endif

/*
 * header.h - the header of a trace file: description, number of rows, columns. The offsets are in
 * docs/trace-format.md.
 */
#ifndef RLV_BENCH_TRACE_HEADER_H
#define RLV_BENCH_TRACE_HEADER_H

#include "bench/trace/trace.h"

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define TRACE_MAX_CHUNK_ROWS (1u << 20)
#define TRACE_MAX_CHUNK_BYTES (1u << 28) /* inflated */

/*
 * Parses the header of a trace file, given as its `size` bytes, into a zeroed trace; does not set
 * the columns' data or the arrays made of it. -EPROTO: not a trace, another version or invalid;
 * -EBADMSG: the checksum; -EOVERFLOW: a row or chunk is too large. Thread: any.
 */
int trace_header_decode(const uint8_t *bytes, size_t size, struct trace *trace) RLV_MUST_CHECK;

/* Read a little-endian number at any address. */
static inline uint16_t trace_get16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t trace_get32(const uint8_t *p)
{
	return trace_get16(p) | (uint32_t)trace_get16(p + 2) << 16;
}

static inline uint64_t trace_get64(const uint8_t *p)
{
	return trace_get32(p) | (uint64_t)trace_get32(p + 4) << 32;
}

#endif

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

#define TRACE_ENV_BYTES 64
#define TRACE_VERSIONS_BYTES 192
#define TRACE_NAME_BYTES 32
#define TRACE_DTYPE_BYTES 8
#define TRACE_MAX_CHUNK_ROWS (1u << 20)
#define TRACE_MAX_CHUNK_BYTES (1u << 28) /* inflated */

enum trace_role {
	TRACE_ROLE_COLUMN, /* of the signature */
	TRACE_ROLE_FLAGS,
	TRACE_ROLE_PRIORITY,
	TRACE_ROLE_VERSION,
	TRACE_ROLES,
};

/* One column of the file. */
struct trace_field {
	char name[TRACE_NAME_BYTES + 1];
	char dtype[TRACE_DTYPE_BYTES + 1];
	uint8_t role;   /* enum trace_role */
	uint8_t filter; /* sum of enum trace_filter */
	uint32_t item_bytes;
	uint32_t ndim;
	uint32_t shape[TRACE_MAX_DIMS];
	uint32_t row_bytes; /* times chunk_rows at most TRACE_MAX_CHUNK_BYTES */
};

struct trace_header {
	uint64_t rows; /* > 0, = steps + episodes */
	uint64_t steps;
	uint64_t episodes;
	uint64_t seed;
	uint64_t data_bytes; /* of all columns, inflated; at most TRACE_MAX_DATA_BYTES */
	uint32_t bytes;      /* of the header in the file */
	uint32_t chunk_rows;
	uint32_t fields_count;
	char env[TRACE_ENV_BYTES + 1];
	char versions[TRACE_VERSIONS_BYTES + 1];
	struct trace_field fields[TRACE_MAX_COLUMNS];
	uint32_t by_role[TRACE_ROLES]; /* index of the field of each role that occurs once */
};

/*
 * Parses the first bytes of a file of size bytes. -EPROTO: not a trace, another version or invalid;
 * -EBADMSG: the checksum; -EOVERFLOW: a row or chunk is too large. Thread: any.
 */
int trace_header_decode(const uint8_t *bytes, size_t size, struct trace_header *header_out)
	RLV_MUST_CHECK;

/* Little-endian numbers at any address. */
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

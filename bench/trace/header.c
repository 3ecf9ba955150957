/*
 * header.c - see header.h.
 *
 * The header has its own crc32, so an invalid value below was written that way. Even so, each field
 * is compared with a constant before use in a computation.
 */
#include "bench/trace/header.h"

#include "bench/trace/chunk.h"

#include "base/bits.h"
#include "base/column_name.h"

#include <zlib.h>

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define FORMAT_MAJOR 1
#define FIXED_BYTES 320u /* before the columns */
#define RECORD_BYTES 64u /* per column */
#define CRC_BYTES 4u

/* Copies a field of n bytes, NUL-padded printable ASCII, into n + 1 bytes. False: it is empty,
   or has other bytes. */
static bool get_text(const uint8_t *p, size_t n, char *text_out)
{
	size_t len = strnlen((const char *)p, n);

	for (size_t i = 0; i < len; i++) {
		if (p[i] < ' ' || p[i] > '~')
			return false;
	}
	memcpy(text_out, p, n);
	text_out[n] = '\0';
	return len > 0 && bits_all_zero(p + len, n - len);
}

static int decode_shape(const uint8_t *record, uint32_t chunk_rows, struct trace_column *c)
{
	static const char known[][4] = { "|b1", "|u1", "|i1", "<u2", "<i2", "<f2",
					 "<u4", "<i4", "<f4", "<u8", "<i8", "<f8" };
	uint64_t row_bytes;

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (strcmp(c->dtype, known[i]) == 0)
			c->item_bytes = (uint32_t)(c->dtype[2] - '0');
	}
	if (!c->item_bytes)
		return error_set(-EPROTO, "column %s: unknown dtype %s", c->name, c->dtype);
	c->ndim = record[42];
	if (c->ndim > TRACE_MAX_DIMS)
		return error_set(-EPROTO, "column %s: ndim %u is above %d", c->name, c->ndim,
				 TRACE_MAX_DIMS);
	row_bytes = c->item_bytes;
	for (uint32_t i = 0; i < TRACE_MAX_DIMS; i++) {
		c->shape[i] = trace_get32(record + 48 + 4 * i);
		if ((c->shape[i] == 0) != (i >= c->ndim))
			return error_set(-EPROTO, "column %s: shape[%u] is %u, ndim %u", c->name, i,
					 c->shape[i], c->ndim);
		row_bytes *= i < c->ndim ? c->shape[i] : 1;
		if (row_bytes * chunk_rows > TRACE_MAX_CHUNK_BYTES)
			return error_set(-EOVERFLOW,
					 "column %s: a chunk of %u rows is above %u bytes", c->name,
					 chunk_rows, TRACE_MAX_CHUNK_BYTES);
	}
	c->row_bytes = (uint32_t)row_bytes;
	return 0;
}

/* Decodes a column's record. -EPROTO: a field is not valid; names must differ; flags, priority
   and policy version each occur at most once, with one fixed dtype. -EOVERFLOW. */
static int decode_column(const uint8_t *record, struct trace *t, struct trace_column *c)
{
	static const char types[TRACE_ROLES][4] = { "", "<u2", "<f4", "<u4" };
	int err;

	if (!get_text(record, TRACE_NAME_BYTES, c->name) ||
	    !column_name_is_valid(c->name, sizeof(c->name)) ||
	    !get_text(record + 32, TRACE_DTYPE_BYTES, c->dtype))
		return error_set(-EPROTO, "column %td: bad name or dtype", c - t->columns);
	c->role = record[40];
	c->filter = record[41];
	if (c->role >= TRACE_ROLES || c->filter > TRACE_FILTERS ||
	    (c->filter & TRACE_FILTER_XOR && c->filter & TRACE_FILTER_DELTA))
		return error_set(-EPROTO, "column %s: unknown role %u or filter %u", c->name,
				 c->role, c->filter);
	if (!bits_all_zero(record + 43, 5))
		return error_set(-EPROTO, "column %s: reserved bytes are not zero", c->name);
	err = decode_shape(record, t->chunk_rows, c);
	if (err)
		return err;
	for (const struct trace_column *other = t->columns; other < c; other++) {
		if (strcmp(other->name, c->name) == 0)
			return error_set(-EPROTO, "column %s is given twice", c->name);
		if (c->role != TRACE_ROLE_COLUMN && other->role == c->role)
			return error_set(-EPROTO, "columns %s and %s both have role %u",
					 other->name, c->name, c->role);
	}
	if (c->role != TRACE_ROLE_COLUMN && (c->ndim != 0 || strcmp(c->dtype, types[c->role]) != 0))
		return error_set(-EPROTO, "column %s: not a scalar %s", c->name, types[c->role]);
	return 0;
}

/* Checks magic, version, size and checksum of the header, whose bytes are then intact; sets its
   size and number of columns. -EPROTO; -EBADMSG: the checksum. */
static int check_envelope(const uint8_t *bytes, size_t size, struct trace *t)
{
	uint32_t count;

	if (size < FIXED_BYTES + CRC_BYTES || memcmp(bytes, "RLVTRACE", 8) != 0)
		return error_set(-EPROTO, "not a trace file");
	if (trace_get16(bytes + 8) != FORMAT_MAJOR)
		return error_set(-EPROTO, "format %u: this reader reads format %d only",
				 trace_get16(bytes + 8), FORMAT_MAJOR);
	t->header_bytes = trace_get32(bytes + 12);
	count = trace_get32(bytes + 48);
	if (count > TRACE_MAX_COLUMNS || t->header_bytes > size ||
	    t->header_bytes != FIXED_BYTES + count * RECORD_BYTES + CRC_BYTES)
		return error_set(-EPROTO, "header of %u bytes with %u columns in %zu bytes",
				 t->header_bytes, count, size);
	if (crc32_z(0, bytes, t->header_bytes - CRC_BYTES) !=
	    trace_get32(bytes + t->header_bytes - CRC_BYTES))
		return error_set(-EBADMSG, "header: wrong checksum");
	t->n_columns = count;
	return 0;
}

int trace_header_decode(const uint8_t *bytes, size_t size, struct trace *t)
{
	uint64_t row_bytes = 0;
	int err = check_envelope(bytes, size, t);

	if (err)
		return err;
	t->rows = trace_get64(bytes + 16);
	t->steps = trace_get64(bytes + 24);
	t->episodes = trace_get64(bytes + 32);
	t->seed = trace_get64(bytes + 40);
	t->chunk_rows = trace_get32(bytes + 52);
	if (t->chunk_rows == 0 || t->chunk_rows > TRACE_MAX_CHUNK_ROWS)
		return error_set(-EPROTO, "chunks of %u rows are not possible", t->chunk_rows);
	if (trace_get64(bytes + 56) != 0)
		return error_set(-EPROTO, "reserved bytes are not zero");
	if (t->episodes == 0 || t->episodes > t->steps || t->steps > t->rows ||
	    t->rows - t->steps != t->episodes)
		return error_set(-EPROTO, "%ju rows, %ju steps, %ju episodes", (uintmax_t)t->rows,
				 (uintmax_t)t->steps, (uintmax_t)t->episodes);
	if (!get_text(bytes + 64, TRACE_ENV_BYTES, t->env) ||
	    !get_text(bytes + 128, TRACE_VERSIONS_BYTES, t->versions))
		return error_set(-EPROTO, "env or versions: not valid text");
	for (uint32_t i = 0; i < t->n_columns; i++) {
		err = decode_column(bytes + FIXED_BYTES + (size_t)i * RECORD_BYTES, t,
				    &t->columns[i]);
		if (err)
			return err;
		row_bytes += t->columns[i].row_bytes;
	}
	if (__builtin_mul_overflow(t->rows, row_bytes, &t->data_bytes) ||
	    t->data_bytes > TRACE_MAX_DATA_BYTES)
		return error_set(-EOVERFLOW, "%ju rows of %ju bytes: above %ju bytes",
				 (uintmax_t)t->rows, (uintmax_t)row_bytes,
				 (uintmax_t)TRACE_MAX_DATA_BYTES);
	return 0;
}

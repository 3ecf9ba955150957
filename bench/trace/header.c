/*
 * header.c - see header.h.
 *
 * The header has its own crc32, so an invalid value below was written that way. Even so, each field
 * is compared with a constant before use in a computation.
 */
#include "bench/trace/header.h"

#include "bench/trace/chunk.h"

#include "base/bits.h"

#include <zlib.h>

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define FORMAT_MAJOR 1
#define FIXED_BYTES 320u /* before the columns */
#define RECORD_BYTES 64u /* per column */
#define CRC_BYTES 4u

/* Copies a field of n bytes, NUL-padded printable ASCII, into n + 1 bytes. */
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

static bool name_ok(const char *name)
{
	return name[0] >= 'a' && name[0] <= 'z' &&
	       name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

/* Bytes of an element, 0 for an unknown dtype. */
static uint32_t dtype_bytes(const char *dtype)
{
	static const char known[][4] = { "|b1", "|u1", "|i1", "<u2", "<i2", "<f2",
					 "<u4", "<i4", "<f4", "<u8", "<i8", "<f8" };

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (strcmp(dtype, known[i]) == 0)
			return (uint32_t)(dtype[2] - '0');
	}
	return 0;
}

static int decode_shape(const uint8_t *record, uint32_t chunk_rows, struct trace_field *f)
{
	uint64_t row_bytes;

	f->item_bytes = dtype_bytes(f->dtype);
	if (!f->item_bytes)
		return error_set(-EPROTO, "column %s: unknown dtype %s", f->name, f->dtype);
	f->ndim = record[42];
	if (f->ndim > TRACE_MAX_DIMS)
		return error_set(-EPROTO, "column %s: ndim %u is above %d", f->name, f->ndim,
				 TRACE_MAX_DIMS);
	row_bytes = f->item_bytes;
	for (uint32_t i = 0; i < TRACE_MAX_DIMS; i++) {
		f->shape[i] = trace_get32(record + 48 + 4 * i);
		if ((f->shape[i] == 0) != (i >= f->ndim))
			return error_set(-EPROTO, "column %s: shape[%u] is %u, ndim %u", f->name, i,
					 f->shape[i], f->ndim);
		row_bytes *= i < f->ndim ? f->shape[i] : 1;
		if (row_bytes * chunk_rows > TRACE_MAX_CHUNK_BYTES)
			return error_set(-EOVERFLOW,
					 "column %s: a chunk of %u rows is above %u bytes", f->name,
					 chunk_rows, TRACE_MAX_CHUNK_BYTES);
	}
	f->row_bytes = (uint32_t)row_bytes;
	return 0;
}

/* Names must differ; flags, priority and policy version each occur at most once, with one fixed
   dtype. */
static int check_field(const struct trace_header *h, const struct trace_field *f)
{
	static const char types[TRACE_ROLES][4] = { "", "<u2", "<f4", "<u4" };

	for (const struct trace_field *other = h->fields; other < f; other++) {
		if (strcmp(other->name, f->name) == 0)
			return error_set(-EPROTO, "column %s is given twice", f->name);
		if (f->role != TRACE_ROLE_COLUMN && other->role == f->role)
			return error_set(-EPROTO, "columns %s and %s both have role %u",
					 other->name, f->name, f->role);
	}
	if (f->role != TRACE_ROLE_COLUMN && (f->ndim != 0 || strcmp(f->dtype, types[f->role]) != 0))
		return error_set(-EPROTO, "column %s: not a scalar %s", f->name, types[f->role]);
	return 0;
}

static int decode_field(const uint8_t *record, struct trace_header *h, struct trace_field *f)
{
	int err;

	if (!get_text(record, TRACE_NAME_BYTES, f->name) || !name_ok(f->name) ||
	    !get_text(record + 32, TRACE_DTYPE_BYTES, f->dtype))
		return error_set(-EPROTO, "column %td: bad name or dtype", f - h->fields);
	f->role = record[40];
	f->filter = record[41];
	if (f->role >= TRACE_ROLES || f->filter > TRACE_FILTERS ||
	    (f->filter & TRACE_FILTER_XOR && f->filter & TRACE_FILTER_DELTA))
		return error_set(-EPROTO, "column %s: unknown role %u or filter %u", f->name,
				 f->role, f->filter);
	if (!bits_all_zero(record + 43, 5))
		return error_set(-EPROTO, "column %s: reserved bytes are not zero", f->name);
	err = decode_shape(record, h->chunk_rows, f);
	if (err)
		return err;
	return check_field(h, f);
}

/* Check magic, version, size and checksum: the header's bytes are then intact. */
static int check_envelope(const uint8_t *bytes, size_t size, struct trace_header *h)
{
	uint32_t count;

	if (size < FIXED_BYTES + CRC_BYTES || memcmp(bytes, "RLVTRACE", 8) != 0)
		return error_set(-EPROTO, "not a trace file");
	if (trace_get16(bytes + 8) != FORMAT_MAJOR)
		return error_set(-EPROTO, "format %u: this reader reads format %d only",
				 trace_get16(bytes + 8), FORMAT_MAJOR);
	h->bytes = trace_get32(bytes + 12);
	count = trace_get32(bytes + 48);
	if (count > TRACE_MAX_COLUMNS || h->bytes > size ||
	    h->bytes != FIXED_BYTES + count * RECORD_BYTES + CRC_BYTES)
		return error_set(-EPROTO, "header of %u bytes with %u columns in %zu bytes",
				 h->bytes, count, size);
	if (crc32_z(0, bytes, h->bytes - CRC_BYTES) != trace_get32(bytes + h->bytes - CRC_BYTES))
		return error_set(-EBADMSG, "header: wrong checksum");
	h->fields_count = count;
	return 0;
}

static int decode_counts(const uint8_t *bytes, struct trace_header *h)
{
	h->rows = trace_get64(bytes + 16);
	h->steps = trace_get64(bytes + 24);
	h->episodes = trace_get64(bytes + 32);
	h->seed = trace_get64(bytes + 40);
	h->chunk_rows = trace_get32(bytes + 52);
	if (h->chunk_rows == 0 || h->chunk_rows > TRACE_MAX_CHUNK_ROWS)
		return error_set(-EPROTO, "chunks of %u rows are not possible", h->chunk_rows);
	if (trace_get64(bytes + 56) != 0)
		return error_set(-EPROTO, "reserved bytes are not zero");
	if (h->episodes == 0 || h->episodes > h->steps || h->steps > h->rows ||
	    h->rows - h->steps != h->episodes)
		return error_set(-EPROTO, "%ju rows, %ju steps, %ju episodes", (uintmax_t)h->rows,
				 (uintmax_t)h->steps, (uintmax_t)h->episodes);
	return 0;
}

int trace_header_decode(const uint8_t *bytes, size_t size, struct trace_header *header_out)
{
	struct trace_header *h = header_out;
	uint64_t row_bytes = 0;
	uint32_t special = 0;
	int err;

	err = check_envelope(bytes, size, h);
	if (err)
		return err;
	err = decode_counts(bytes, h);
	if (err)
		return err;
	if (!get_text(bytes + 64, TRACE_ENV_BYTES, h->env) ||
	    !get_text(bytes + 128, TRACE_VERSIONS_BYTES, h->versions))
		return error_set(-EPROTO, "env or versions: not valid text");
	for (uint32_t i = 0; i < h->fields_count; i++) {
		err = decode_field(bytes + FIXED_BYTES + (size_t)i * RECORD_BYTES, h,
				   &h->fields[i]);
		if (err)
			return err;
		row_bytes += h->fields[i].row_bytes;
		special += h->fields[i].role != TRACE_ROLE_COLUMN;
		h->by_role[h->fields[i].role] = i;
	}
	if (special != TRACE_ROLES - 1)
		return error_set(-EPROTO, "flags, priority or policy_version is missing");
	if (__builtin_mul_overflow(h->rows, row_bytes, &h->data_bytes) ||
	    h->data_bytes > TRACE_MAX_DATA_BYTES)
		return error_set(-EOVERFLOW, "%ju rows of %ju bytes: above %ju bytes",
				 (uintmax_t)h->rows, (uintmax_t)row_bytes,
				 (uintmax_t)TRACE_MAX_DATA_BYTES);
	return 0;
}

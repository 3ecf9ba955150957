/*
 * trace.c - see trace.h; the layout is in docs/trace-format.md.
 *
 * Opening reads the header, walks the chunks, and walks them again to inflate them: reader_chunk checks
 * each size in a chunk against the header and the rest of the file. chunk.c and header.c do not know
 * the file's name: this file adds it to error messages.
 */
#include "bench/trace/trace.h"

#include "bench/trace/chunk.h"
#include "bench/trace/header.h"

#include "base/mem/alloc.h"
#include "base/bits.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "trace data is used in place: little-endian hosts only"
#endif

#define CHUNK_BYTES 24u /* chunk header */
#define MAX_RATIO 1032u /* maximum of deflate: 258 bytes from 2 bits */

/* The bytes of a file that is read. */
struct reader {
	struct trace *trace;
	const uint8_t *bytes;
	size_t size;
	size_t off; /* of the next chunk */
};

/* Parses the next chunk, of column idx with rows from `row` on, and moves r->off behind it.
   -EPROTO: it is another chunk, or its sizes are not possible. */
static int reader_chunk(struct reader *r, uint32_t idx, uint64_t row, struct trace_chunk *chunk_out)
{
	const struct trace_column *c = &r->trace->columns[idx];
	const uint8_t *p = r->bytes + r->off;
	size_t left = r->size - r->off;
	uint64_t rows = min_u64(r->trace->rows - row, r->trace->chunk_rows);

	if (left < CHUNK_BYTES)
		return error_set(-EPROTO, "the file ends too early");
	*chunk_out = (struct trace_chunk){
		.body = p + CHUNK_BYTES,
		.stored_bytes = trace_get32(p + 16),
		.rows = (uint32_t)rows,
		.row_bytes = c->row_bytes,
		.item_bytes = c->item_bytes,
		.filter = c->filter,
		.crc = trace_get32(p + 20),
	};
	if (memcmp(p, "RLVC", 4) != 0 || trace_get16(p + 4) != idx || trace_get16(p + 6) != 0)
		return error_set(-EPROTO, "no chunk of that column follows");
	if (trace_get32(p + 8) != rows || trace_get32(p + 12) != rows * c->row_bytes)
		return error_set(-EPROTO, "chunk of %u rows and %u bytes", trace_get32(p + 8),
				 trace_get32(p + 12));
	if (chunk_out->stored_bytes > left - CHUNK_BYTES)
		return error_set(-EPROTO, "chunk of %u bytes, %zu are left",
				 chunk_out->stored_bytes, left - CHUNK_BYTES);
	if (rows * c->row_bytes / MAX_RATIO > chunk_out->stored_bytes)
		return error_set(-EPROTO, "%u bytes cannot inflate to %u", chunk_out->stored_bytes,
				 trace_get32(p + 12));
	r->off += CHUNK_BYTES + (size_t)chunk_out->stored_bytes;
	return 0;
}

/*
 * Walks all chunks to the end of the file, and decodes them into the columns that have room. The
 * first walk precedes any allocation of data: it bounds the sizes in the header by the size of the
 * file.
 */
static int reader_walk(struct reader *r)
{
	const struct trace *t = r->trace;
	struct trace_chunk chunk;

	r->off = t->header_bytes;
	for (uint64_t row = 0; row < t->rows; row += t->chunk_rows) {
		for (uint32_t i = 0; i < t->n_columns; i++) {
			uint8_t *data = t->columns[i].data;
			int err = reader_chunk(r, i, row, &chunk);

			if (!err && data)
				err = trace_chunk_decode(&chunk, data + row * chunk.row_bytes);
			if (err)
				return error_prefix(
					err, "column %s, row %ju of %ju: ", t->columns[i].name,
					(uintmax_t)row, (uintmax_t)t->rows);
		}
	}
	if (r->off != r->size)
		return error_set(-EPROTO, "%zu bytes after the last chunk", r->size - r->off);
	return 0;
}

/* Fills in episode_row, the first row of each episode. -EPROTO: the rows do not form whole
   episodes, or a priority is negative or not finite. */
static int check_rows(const struct trace *t)
{
	unsigned int before = TRACE_FINAL;
	uint64_t episodes = 0;

	for (uint64_t row = 0; row < t->rows; row++) {
		unsigned int flags = t->flags[row];
		bool over = before & (TRACE_TERMINATED | TRACE_TRUNCATED);
		/* As in the picture in trace.h. */
		bool follows = over ? flags == TRACE_FINAL
				    : !(flags & TRACE_FINAL) &&
					       !(flags & TRACE_FIRST) == !(before & TRACE_FINAL);

		if (!follows || flags & ~(unsigned int)TRACE_FLAGS)
			return error_set(-EPROTO, "row %ju: flags %#x after %#x", (uintmax_t)row,
					 flags, before);
		if (!isfinite(t->priority[row]) || t->priority[row] < 0)
			return error_set(-EPROTO, "row %ju: priority %g", (uintmax_t)row,
					 (double)t->priority[row]);
		if (flags & TRACE_FIRST && episodes == t->episodes)
			return error_set(-EPROTO, "row %ju: episode %ju of %ju", (uintmax_t)row,
					 (uintmax_t)episodes, (uintmax_t)t->episodes);
		if (flags & TRACE_FIRST)
			t->episode_row[episodes++] = row;
		before = flags;
	}
	if (before != TRACE_FINAL || episodes != t->episodes)
		return error_set(-EPROTO, "%ju episodes, the last %s, of %ju", (uintmax_t)episodes,
				 before == TRACE_FINAL ? "whole" : "cut", (uintmax_t)t->episodes);
	t->episode_row[episodes] = t->rows;
	return 0;
}

int trace_open_bytes(const char *name, const void *bytes, size_t size, struct trace **trace_out)
{
	struct trace *t = mem_zalloc(sizeof(*t));
	struct reader reader = { .trace = t, .bytes = bytes, .size = size };
	const void *of_role[TRACE_ROLES] = { NULL };
	int err;

	if (!t)
		return error_set(-ENOMEM, "trace %s: cannot allocate memory", name);
	t->file_bytes = size;
	err = trace_header_decode(bytes, size, t);
	if (!err)
		err = reader_walk(&reader);
	t->episode_row = err ? NULL : mem_array(t->episodes + 1, sizeof(*t->episode_row));
	for (struct trace_column *c = t->columns; !err && c < t->columns + t->n_columns; c++) {
		of_role[c->role] = c->data = mem_array(t->rows, c->row_bytes);
		if (!c->data || !t->episode_row)
			err = error_set(-ENOMEM, "cannot allocate %ju rows", (uintmax_t)t->rows);
	}
	t->flags = of_role[TRACE_ROLE_FLAGS];
	t->priority = of_role[TRACE_ROLE_PRIORITY];
	t->policy_version = of_role[TRACE_ROLE_VERSION];
	if (!err && (!t->flags || !t->priority || !t->policy_version))
		err = error_set(-EPROTO, "flags, priority or policy_version is missing");
	if (!err)
		err = reader_walk(&reader);
	if (!err)
		err = check_rows(t);
	if (err) {
		trace_close(&t);
		return error_prefix(err, "trace %s: ", name);
	}
	*trace_out = t;
	return 0;
}

int trace_open(const char *path, struct trace **trace_out)
{
	/* Non-blocking: the path may name a FIFO without a writer. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), err = 0;
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	uint8_t *bytes = NULL;
	struct stat st = { 0 };
	size_t size = 0;

	if (!file || fstat(fd, &st) != 0)
		err = error_set(-errno, "%m");
	else if (!S_ISREG(st.st_mode))
		err = error_set(-EINVAL, "not a regular file");
	else if ((uint64_t)st.st_size > TRACE_MAX_FILE_BYTES)
		err = error_set(-EOVERFLOW, "file of %ju bytes, at most %ju", (uintmax_t)st.st_size,
				(uintmax_t)TRACE_MAX_FILE_BYTES);
	if (!err) {
		size = (size_t)st.st_size;
		bytes = mem_alloc(size);
		if (!bytes)
			err = error_set(-ENOMEM, "cannot allocate %zu bytes", size);
		else if (fread(bytes, 1, size, file) != size)
			err = ferror(file)
				      ? error_set(-errno, "read: %m")
				      : error_set(-EPROTO, "the file shrank while it was read");
	}
	if (file)
		(void)fclose(file);
	else if (fd >= 0)
		close(fd);
	err = err ? error_prefix(err, "trace %s: ", path)
		  : trace_open_bytes(path, bytes, size, trace_out);
	mem_free(bytes);
	return err;
}

void trace_close(struct trace **trace)
{
	struct trace *t = *trace;

	if (!t)
		return;
	for (uint32_t i = 0; i < t->n_columns; i++)
		mem_free(t->columns[i].data);
	mem_free(t->episode_row);
	mem_free(t);
	*trace = NULL;
}

/*
 * trace.c - see trace.h; the layout is in docs/trace-format.md.
 *
 * Opening reads the header and walks the chunks; loading inflates them. Both walk by next_chunk,
 * which checks each size in a chunk against the header and the rest of the file. chunk.c and
 * header.c do not know the file's name: this file adds it to error messages.
 */
#include "bench/trace/trace.h"

#include "bench/trace/chunk.h"
#include "bench/trace/header.h"

#include "base/mem/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "trace data is used in place: little-endian hosts only"
#endif

#define CHUNK_MAGIC "RLVC"
#define CHUNK_BYTES 24u /* chunk header */
#define MAX_RATIO 1032u /* maximum of deflate: 258 bytes from 2 bits */

struct trace {
	uint8_t *bytes; /* the file */
	size_t size;
	bool loaded;
	uint32_t column_count;
	uint64_t *episode_row;
	struct trace_header header;
	struct trace_info info;
	struct trace_rows rows;
	uint8_t *data[TRACE_MAX_COLUMNS]; /* by field of the header */
	struct trace_column columns[TRACE_MAX_COLUMNS];
	char name[]; /* path, for messages */
};

/* Parse the chunk at *off of a field, whose rows start at row; moves *off past it. */
static int next_chunk(const struct trace *t, uint32_t idx, uint64_t row, size_t *off,
		      struct trace_chunk *chunk_out)
{
	const struct trace_field *f = &t->header.fields[idx];
	const uint8_t *p = t->bytes + *off;
	size_t left = t->size - *off;
	uint64_t rows = t->header.rows - row;

	if (rows > t->header.chunk_rows)
		rows = t->header.chunk_rows;
	if (left < CHUNK_BYTES)
		return error_set(-EPROTO, "the file ends too early");
	*chunk_out = (struct trace_chunk){
		.body = p + CHUNK_BYTES,
		.stored_bytes = trace_get32(p + 16),
		.rows = (uint32_t)rows,
		.row_bytes = f->row_bytes,
		.item_bytes = f->item_bytes,
		.filter = f->filter,
		.crc = trace_get32(p + 20),
	};
	if (memcmp(p, CHUNK_MAGIC, 4) != 0 || trace_get16(p + 4) != idx || trace_get16(p + 6) != 0)
		return error_set(-EPROTO, "no chunk of that column follows");
	if (trace_get32(p + 8) != rows || trace_get32(p + 12) != rows * f->row_bytes)
		return error_set(-EPROTO, "chunk of %u rows and %u bytes", trace_get32(p + 8),
				 trace_get32(p + 12));
	if (chunk_out->stored_bytes > left - CHUNK_BYTES)
		return error_set(-EPROTO, "chunk of %u bytes, %zu are left",
				 chunk_out->stored_bytes, left - CHUNK_BYTES);
	if (rows * f->row_bytes / MAX_RATIO > chunk_out->stored_bytes)
		return error_set(-EPROTO, "%u bytes cannot inflate to %u", chunk_out->stored_bytes,
				 trace_get32(p + 12));
	*off += CHUNK_BYTES + (size_t)chunk_out->stored_bytes;
	return 0;
}

/* Calls next_chunk and, when loading, decodes the chunk into the column's data. */
static int visit_chunk(struct trace *t, uint32_t idx, uint64_t row, size_t *off)
{
	struct trace_chunk chunk = { 0 };
	int err = next_chunk(t, idx, row, off, &chunk);

	if (!err && t->data[idx])
		err = trace_chunk_decode(&chunk, t->data[idx] + row * chunk.row_bytes);
	if (err)
		return error_prefix(err, "column %s, row %ju of %ju: ", t->header.fields[idx].name,
				    (uintmax_t)row, (uintmax_t)t->header.rows);
	return 0;
}

/*
 * Walks all chunks to the end of the file. The first walk precedes any allocation of data: it
 * bounds the sizes in the header by the size of the file.
 */
static int walk_chunks(struct trace *t)
{
	size_t off = t->header.bytes;

	for (uint64_t row = 0; row < t->header.rows; row += t->header.chunk_rows) {
		for (uint32_t i = 0; i < t->header.fields_count; i++) {
			int err = visit_chunk(t, i, row, &off);

			if (err)
				return err;
		}
	}
	if (off != t->size)
		return error_set(-EPROTO, "%zu bytes after the last chunk", t->size - off);
	return 0;
}

/* Fill in trace_info and trace_columns from the header. */
static void trace_publish(struct trace *t)
{
	const struct trace_header *h = &t->header;

	t->info.rows = h->rows;
	t->info.steps = h->steps;
	t->info.episodes = h->episodes;
	t->info.seed = h->seed;
	t->info.data_bytes = h->data_bytes;
	t->info.file_bytes = t->size;
	t->info.env = h->env;
	t->info.versions = h->versions;
	t->column_count = 0;
	for (uint32_t i = 0; i < h->fields_count; i++) {
		const struct trace_field *f = &h->fields[i];
		struct trace_column *c = &t->columns[t->column_count];

		if (f->role != TRACE_ROLE_COLUMN)
			continue;
		*c = (struct trace_column){
			.name = f->name,
			.dtype = f->dtype,
			.item_bytes = f->item_bytes,
			.ndim = f->ndim,
			.row_bytes = f->row_bytes,
			.data = t->data[i],
		};
		memcpy(c->shape, f->shape, sizeof(c->shape));
		t->column_count++;
	}
}

static int read_all(int fd, uint8_t *bytes, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t got = read(fd, bytes + done, size - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_set(-errno, "read: %m");
		if (got == 0)
			return error_set(-EPROTO, "the file shrank while it was read");
		done += (size_t)got;
	}
	return 0;
}

/* An empty trace with room for a file of size bytes; NULL when that is too large. */
static struct trace *alloc_trace(const char *name, uint64_t size)
{
	size_t name_bytes = strlen(name) + 1;
	struct trace *t;

	if (size > TRACE_MAX_FILE_BYTES) {
		error_set(-EOVERFLOW, "file of %ju bytes, at most %ju", (uintmax_t)size,
			  (uintmax_t)TRACE_MAX_FILE_BYTES);
		return NULL;
	}
	t = mem_zalloc(sizeof(*t) + name_bytes);
	if (t)
		t->bytes = mem_alloc(size);
	if (!t || !t->bytes) {
		error_set(-ENOMEM, "cannot allocate %ju bytes", (uintmax_t)size);
		mem_free(t);
		return NULL;
	}
	memcpy(t->name, name, name_bytes);
	t->size = size;
	return t;
}

/* Read the whole file; *trace_out is set on success only. */
static int read_file(int fd, const char *path, struct trace **trace_out)
{
	struct trace *t;
	struct stat st;
	int err;

	if (fstat(fd, &st) != 0)
		return error_set(-errno, "fstat: %m");
	if (!S_ISREG(st.st_mode))
		return error_set(-EINVAL, "not a regular file");
	t = alloc_trace(path, (uint64_t)st.st_size);
	if (!t)
		return error_last_code();
	err = read_all(fd, t->bytes, t->size);
	if (err)
		trace_close(&t);
	else
		*trace_out = t;
	return err;
}

/* Check the bytes of t; pass it to the caller, or close it on error. */
static int finish_open(struct trace *t, struct trace **trace_out)
{
	int err = trace_header_decode(t->bytes, t->size, &t->header);

	if (!err)
		err = walk_chunks(t);
	if (err) {
		trace_close(&t);
		return err;
	}
	trace_publish(t);
	*trace_out = t;
	return 0;
}

int trace_open(const char *path, struct trace **trace_out)
{
	/* Non-blocking: the path may name a FIFO without a writer. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct trace *t = NULL;
	int err;

	if (fd < 0)
		return error_set(-errno, "trace %s: %m", path);
	err = read_file(fd, path, &t);
	close(fd);
	if (t)
		err = finish_open(t, trace_out);
	return err ? error_prefix(err, "trace %s: ", path) : 0;
}

int trace_open_bytes(const char *name, const void *bytes, size_t size, struct trace **trace_out)
{
	struct trace *t = alloc_trace(name, size);
	int err;

	if (!t)
		return error_prefix(error_last_code(), "trace %s: ", name);
	if (size)
		memcpy(t->bytes, bytes, size);
	err = finish_open(t, trace_out);
	return err ? error_prefix(err, "trace %s: ", name) : 0;
}

const struct trace_info *trace_info(const struct trace *trace)
{
	return &trace->info;
}

const struct trace_column *trace_columns(const struct trace *trace, size_t *count_out)
{
	*count_out = trace->column_count;
	return trace->columns;
}

/* Check flags against those of the previous row: see the picture in trace.h. */
static bool flags_follow(unsigned int before, unsigned int flags)
{
	if (flags & ~(unsigned int)TRACE_FLAGS)
		return false;
	if (before & (TRACE_TERMINATED | TRACE_TRUNCATED))
		return flags == TRACE_FINAL;
	return !(flags & TRACE_FINAL) && !(flags & TRACE_FIRST) == !(before & TRACE_FINAL);
}

/* Index the episodes, and check that the rows form whole episodes. */
static int check_rows(const struct trace_info *info, const struct trace_rows *rows,
		      uint64_t *episode_row)
{
	unsigned int before = TRACE_FINAL;
	uint64_t episodes = 0;

	for (uint64_t row = 0; row < info->rows; row++) {
		unsigned int flags = rows->flags[row];

		if (!flags_follow(before, flags))
			return error_set(-EPROTO, "row %ju: flags %#x after %#x", (uintmax_t)row,
					 flags, before);
		if (!isfinite(rows->priority[row]) || rows->priority[row] < 0)
			return error_set(-EPROTO, "row %ju: priority %g", (uintmax_t)row,
					 (double)rows->priority[row]);
		if (flags & TRACE_FIRST && episodes == info->episodes)
			return error_set(-EPROTO, "row %ju: episode %ju of %ju", (uintmax_t)row,
					 (uintmax_t)episodes, (uintmax_t)info->episodes);
		if (flags & TRACE_FIRST)
			episode_row[episodes++] = row;
		before = flags;
	}
	if (before != TRACE_FINAL || episodes != info->episodes)
		return error_set(-EPROTO, "%ju episodes, the last %s, of %ju", (uintmax_t)episodes,
				 before == TRACE_FINAL ? "whole" : "cut",
				 (uintmax_t)info->episodes);
	episode_row[episodes] = info->rows;
	return 0;
}

static int alloc_data(struct trace *t)
{
	t->episode_row = mem_array(t->info.episodes + 1, sizeof(*t->episode_row));
	if (!t->episode_row)
		return error_set(-ENOMEM, "cannot allocate %ju episodes",
				 (uintmax_t)t->info.episodes);
	for (uint32_t i = 0; i < t->header.fields_count; i++) {
		t->data[i] = mem_array(t->info.rows, t->header.fields[i].row_bytes);
		if (!t->data[i])
			return error_set(-ENOMEM, "cannot allocate column %s",
					 t->header.fields[i].name);
	}
	return 0;
}

static void drop_data(struct trace *t)
{
	for (uint32_t i = 0; i < TRACE_MAX_COLUMNS; i++) {
		mem_free(t->data[i]);
		t->data[i] = NULL;
	}
	mem_free(t->episode_row);
	t->episode_row = NULL;
}

int trace_load(struct trace *trace)
{
	const uint32_t *by_role = trace->header.by_role;
	struct trace_rows rows;
	int err;

	if (trace->loaded)
		return 0;
	err = alloc_data(trace);
	if (!err)
		err = walk_chunks(trace);
	rows = (struct trace_rows){
		.flags = (const void *)trace->data[by_role[TRACE_ROLE_FLAGS]],
		.priority = (const void *)trace->data[by_role[TRACE_ROLE_PRIORITY]],
		.policy_version = (const void *)trace->data[by_role[TRACE_ROLE_VERSION]],
		.episode_row = trace->episode_row,
	};
	if (!err)
		err = check_rows(&trace->info, &rows, trace->episode_row);
	if (err) {
		drop_data(trace);
		return error_prefix(err, "trace %s: ", trace->name);
	}
	trace->rows = rows;
	trace->loaded = true;
	trace_publish(trace);
	return 0;
}

const struct trace_rows *trace_rows(const struct trace *trace)
{
	return trace->loaded ? &trace->rows : NULL;
}

void trace_close(struct trace **trace)
{
	struct trace *t = *trace;

	if (!t)
		return;
	drop_data(t);
	mem_free(t->bytes);
	mem_free(t);
	*trace = NULL;
}

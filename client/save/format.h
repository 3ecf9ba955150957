/*
 * format.h - a saved table as chunks (wire/save_layout.h): one writes them, the other reads and checks
 * them. Neither knows a store.
 *
 * The file is not trusted: no input makes the reader crash, read out of bounds, or allocate more than
 * zstd's largest ratio (about 2^15) times the file's size.
 *
 * Thread: owner, for all.
 */
#ifndef RLV_CLIENT_SAVE_FORMAT_H
#define RLV_CLIENT_SAVE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/save_layout.h"

#include "base/error.h"

/* What a header says, checked. */
struct save_table {
	struct save_header head;
	struct save_view views[RING_MAX_VIEWS];
	struct save_column columns[TABLE_MAX_COLUMNS];
	/* From these: */
	uint32_t column_bytes[TABLE_MAX_COLUMNS]; /* of one step */
	uint64_t row_bytes;                       /* of a row in a chunk of rows */
	uint64_t leaf_bytes;                      /* of a row in a chunk of leaves */
};

/*
 * Checks head, views and columns, and sets the fields that follow from them. -EPROTO: another format,
 * or impossible; the message names the field.
 */
RLV_MUST_CHECK int save_table_check(struct save_table *table);

/* -------- output.c -------- */

struct save_output;

/*
 * Begins a file beside path, PATH.saving, which save_output_finish renames: until then, and after a
 * kill, path is what it was. level: of zstd, 0 = none. -EBUSY: another process saves there; -ENOTSUP: no
 * zstd; errors of open(2).
 */
RLV_MUST_CHECK int save_output_open(const char *path, const struct save_table *table, int level,
				    struct save_output **out);

/* Adds a chunk; head has kind, seq, shard, first and rows; body head->bytes bytes. Errors of write(2). */
RLV_MUST_CHECK int save_output_put(struct save_output *out, const struct save_chunk *head,
				   const void *body);

/* Adds a chunk as another file has it: head with its checksums, and the body as stored. */
RLV_MUST_CHECK int save_output_copy(struct save_output *out, const struct save_chunk *head,
				    const void *stored);

/* Adds the end chunk with those counts, makes the file durable and gives it its name. */
RLV_MUST_CHECK int save_output_finish(struct save_output *out, const struct save_count *counts);

uint64_t save_output_bytes(const struct save_output *out);

/* Frees *out and sets it to NULL, and removes the file if it is not finished. NULL is a no-op. */
void save_output_close(struct save_output **out);

/* -------- input.c -------- */

struct save_input;

/*
 * Opens a file and checks its header. -EPROTO: not a saved table, or another version; -EBADMSG: damaged
 * or cut; -EINVAL: not a regular file; errors of open(2).
 */
RLV_MUST_CHECK int save_input_open(const char *path, struct save_input **in_out);

/* As save_input_open, for an open file, which is closed by save_input_close; name is for messages. */
RLV_MUST_CHECK int save_input_open_fd(int fd, const char *name, struct save_input **in_out);

const struct save_table *save_input_table(const struct save_input *in);

/*
 * Steps to the next chunk and checks its head: *head_out, and the place of its body *off_out. The end
 * chunk comes last and is checked whole. -ENODATA: it was the last; -EBADMSG: damaged or cut.
 */
RLV_MUST_CHECK int save_input_next(struct save_input *in, struct save_chunk *head_out,
				   uint64_t *off_out);

/* Begins again with the first chunk. */
void save_input_rewind(struct save_input *in);

/* Bytes of the file, and those that save_input_next went through. */
uint64_t save_input_bytes(const struct save_input *in, uint64_t *done_out);

/* Reads the stored body of a chunk and checks it. *body_out is valid until the next read. -EBADMSG. */
RLV_MUST_CHECK int save_input_stored(struct save_input *in, const struct save_chunk *head,
				     uint64_t off, const void **body_out);

/* The same, decompressed: head->bytes bytes. -ENOTSUP: no zstd. */
RLV_MUST_CHECK int save_input_body(struct save_input *in, const struct save_chunk *head,
				   uint64_t off, const void **body_out);

/* The counts of the end chunk, after -ENODATA. */
const struct save_count *save_input_counts(const struct save_input *in);

/* Closes the file, frees *in and sets it to NULL. NULL is a no-op. */
void save_input_close(struct save_input **in);

#endif

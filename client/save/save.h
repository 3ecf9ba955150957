/*
 * save.h - a save in progress, shared by save.c (the call), collect.c (one block) and base.c (rows of an
 * earlier file).
 */
#ifndef RLV_CLIENT_SAVE_SAVE_H
#define RLV_CLIENT_SAVE_SAVE_H

#include "client/save/format.h"
#include "client/table/handle.h"

#include "relive/save.h"

#define SAVE_CHUNK_BYTES ((uint64_t)1 << 20) /* of a chunk of rows, unless one row is larger */

/* Calls progress now and then. */
struct save_steps {
	rlv_save_progress call;
	void *ctx;
	uint64_t next;
};

/* -EINTR: the callback said so. */
RLV_MUST_CHECK int save_step(struct save_steps *steps, uint64_t done, uint64_t total);

struct save_base;

struct saver {
	struct handle h; /* a reader: it takes no slot */
	struct save_table table;
	struct save_output *out;
	struct save_base *base; /* NULL = none */
	uint64_t *leaves;       /* of a block, for each view: quanta, 0 = no item */
	uint32_t *samples;      /* the same for views that count them */
	uint8_t *body;          /* of a chunk */
	uint64_t rows, reused;
	struct save_count counts[RING_MAX_VIEWS];
};

/* A block as it was found. */
struct save_block {
	uint64_t seq;
	uint32_t shard;
	uint32_t index;
};

/* Adds the items of a block with their rows, and counts both; nothing if it has none. Errors of the
   transport and of the file; -EHOSTDOWN: its shard is away. */
RLV_MUST_CHECK int save_collect(struct saver *s, const struct save_block *block);

/*
 * Opens an earlier file of the table with that uuid; *base_out NULL: it is of another table. Errors of
 * save_input_open and save_input_next.
 */
RLV_MUST_CHECK int save_base_open(const char *path, const uint8_t uuid[16],
				  struct save_base **base_out);

/* Finds the chunk of the rows that head names. *stored_out: its body as stored, and *head_inout its head;
   NULL: the file has no such chunk, or it is damaged. */
void save_base_find(struct save_base *base, struct save_chunk *head_inout, const void **stored_out);

/* Frees it and sets *base to NULL. NULL is a no-op. */
void save_base_close(struct save_base **base);

#endif

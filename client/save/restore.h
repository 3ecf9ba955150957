/*
 * restore.h - runs of rows with their leaves into a new table, as a writer would put them there.
 *
 *   run      head | items ...      as saved: window - 1 rows, then rows of which some complete items
 *   piece    head | some items     what a block has room for; the next piece begins head rows earlier
 *
 * A run that fits a block is not cut, so a table of the same shape takes as many blocks as before.
 * Thread: owner.
 */
#ifndef RLV_CLIENT_SAVE_RESTORE_H
#define RLV_CLIENT_SAVE_RESTORE_H

#include "client/save/format.h"
#include "client/table/handle.h"

#include "ds/ring/ring.h"

/* Rows of a run, and their leaves: of each view n. */
struct restore_run {
	uint32_t n;
	const uint8_t *rows; /* as they lie in a table, but for generation and checksum */
	const uint8_t *quanta;
	const uint8_t *samples; /* of views that count them */
};

struct restore {
	struct handle h;
	struct block blk; /* acc NULL: none */
	struct ring_counters ring;
	uint8_t *stage; /* rows of a block */
	struct leaf_op *ops;
	uint32_t shard; /* that gave the last block */
	bool lost;      /* a shard went away, and rows with it */
	const struct save_table *table;
};

/* Opens a handle of a table that was made of the saved one, which is borrowed. Errors of rlv_writer_open. */
RLV_MUST_CHECK int restore_open(struct restore *r, struct rlv_table *table,
				const struct save_table *saved);

/* Adds a run. -ENOSPC: no block is free; -EHOSTDOWN: a shard was lost; errors of rlv_writer_append. */
RLV_MUST_CHECK int restore_put(struct restore *r, const struct restore_run *run);

/* Closes the last block, and tells limiters and running maxima. */
RLV_MUST_CHECK int restore_finish(struct restore *r, const struct save_count *counts);

/* Closes the handle in any case; error: of the load so far, which is returned. */
RLV_MUST_CHECK int restore_close(struct restore *r, int error);

#endif

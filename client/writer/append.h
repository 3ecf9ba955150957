/*
 * Writer: state shared by append.c (calls), append_batch.c (one batch of rows), plan.c (flags, items),
 * rows.c (bytes), stream.c (blocks) and writer.c (open, close).
 */
#ifndef RLV_CLIENT_WRITER_APPEND_H
#define RLV_CLIENT_WRITER_APPEND_H

#include "client/table/admission.h"
#include "client/table/handle.h"

#include "ds/replay/change.h"
#include "ds/ring/ring.h"

#define WRITER_ROOM UINT32_MAX
#define WRITER_CHUNK TRANSPORT_VECTOR     /* most rows per round of an append */
#define WRITER_STREAM_LEAST 2048          /* bytes of a value that is written past the cache */
#define COURSE_CALM_MOST (UINT32_MAX / 2) /* far from UINT32_MAX, which no number of calm rows is */
#define STREAM_META (2 * WRITER_CHUNK)    /* rows in a stream's meta beside the last window_max-1 */

/* Metadata of a row, kept until every window that covers it is complete. */
struct row_meta {
	uint16_t *flags;
	uint32_t *steps;
	double *td; /* negative = none given */
};

/* Where the next row of a stream is. */
struct row_course {
	uint32_t step; /* in its episode */
	uint32_t calm; /* rows before it that have no flags, up to the last that has; at most COURSE_CALM_MOST */
	bool in_episode;
};

/*
 * One environment. A call that fails before it publishes leaves `used` as it was, and its rows are written
 * again.
 */
struct stream {
	struct block blk;
	uint8_t *next; /* row of the block, built in place; NULL: its rows are staged */
	struct row_meta meta;
	uint32_t past; /* where the last window_max-1 rows are in meta; those of the call in progress follow */
	uint8_t *head; /* the last window_max-1 rows, unless they lie before `next` */
	bool has_past; /* there are any */
	struct row_course course;
	bool open_window; /* rows since the last completion: end_episode has work */
	bool to_place;    /* its planned rows are not placed yet */
	uint32_t planned; /* rows of the call in progress that are not in a block yet */
	uint32_t staged;  /* where they begin in the writer's stage */
	struct row_course planned_course; /* after them */
};

struct view_items {
	struct leaf_op *ops; /* grouped by shard */
	uint32_t n;
	uint32_t taken; /* into the changes of their shards */
	uint64_t most;  /* the greatest priority that a TD error gave */
};

/* The greatest of a running maximum of all shards. */
struct maximum {
	uint64_t now;  /* so far in this turn */
	uint64_t last; /* in the last whole turn */
};

struct rlv_writer {
	struct handle h;
	struct stream *streams;
	uint32_t n_streams;
	uint32_t future_max;
	bool has_obs;       /* next observations come from later rows */
	bool dead;          /* fenced, and no time for another slot */
	uint32_t waits_for; /* the view whose limiter refused last, or WRITER_ROOM */
	int64_t timeout_ns;
	struct mem stage; /* rows under construction that are not built in place */
	struct admission admissions[RING_MAX_VIEWS];
	struct view_items items[RING_MAX_VIEWS];
	uint32_t admitted[RING_MAX_VIEWS]; /* items of the call in progress */
	struct part_turn turn;             /* of the shards whose maxima are read */
	struct maximum maxima[RING_MAX_VIEWS];
	uint64_t default_quanta[RING_MAX_VIEWS]; /* of items that come without a TD error */
	uint8_t **at;                            /* of the rows that are being built */
	struct stream **placed;                  /* whose items are being collected */
	uint32_t n_placed;
	struct transport_io *rows; /* staged, to travel with the items */
	uint32_t n_rows;
	uint32_t planned_lost;        /* truncated_lost of the call in progress */
	struct shard_change *changes; /* of the call in progress, one for each shard that has any */
	uint32_t n_changes;
	int64_t *credit;     /* of each shard, for the next block */
	uint64_t *published; /* items in each shard */
	uint32_t room;       /* shards that there is room for */
	struct ring_counters ring;
	struct rlv_stats stats;
};

/* Source of a call's steps: rows [first, first + n). */
struct source {
	const struct rlv_steps *steps; /* NULL = filler rows */
	uint32_t first;
	uint32_t n;
};

/* Rows for n streams: src is the first stream's; each next one's begins one row later. */
struct append_batch {
	struct rlv_writer *w;
	struct stream *streams;
	uint32_t n;
	struct source src;
	bool admitted; /* by all limiters: the rest is placed again after a loss */
};

/* Number of rows at the head of a block, which repeat the last ones of the block before. */
static inline uint32_t head_rows(const struct rlv_writer *w)
{
	return w->h.desc->window_max - 1;
}

/* -------- append_batch.c -------- */

/* Reads into w->default_quanta the priority of new items without a TD error: the greatest so far
   of each view. */
RLV_MUST_CHECK int writer_read_maxima(struct rlv_writer *w);

/* Claims a block for each stream of put that has none or a full one. Errors as writer_room; then
   w->waits_for = WRITER_ROOM. */
RLV_MUST_CHECK int writer_rooms(struct rlv_writer *w, const struct append_batch *put);

/*
 * Appends src.n rows of each stream, or fewer: at most what is left of the first stream's block,
 * WRITER_CHUNK, and 1 GiB; sets src.n to that number. Appends all of them or none. -EAGAIN: no
 * block is free, or the limiter of view w->waits_for refuses now; -EINVAL: that limiter would never
 * admit so many. After another error of an admitted append the call appends the rest again.
 */
RLV_MUST_CHECK int writer_append_batch(struct append_batch *put);

/* -------- plan.c -------- */

/* Plans src.n rows of each stream of the put. */
void writer_plan(struct rlv_writer *w, const struct append_batch *put);

/* Adds to w->items[v] the items of view v that the planned rows of w->placed complete. A window
   without flags is an item, unless the view has a period. */
void writer_collect_items(struct rlv_writer *w, uint32_t v);

/* -------- rows.c -------- */

/* Builds the planned rows of the put's streams [from, to), which are all in place, or all in the stage. */
void writer_build_rows(struct rlv_writer *w, const struct append_batch *put, uint32_t from,
		       uint32_t to);

/* Of a stream whose rows are staged: has them travel over a wire with the CASes that publish them, else
   (under TSan) writes them now. */
RLV_MUST_CHECK int writer_send_rows(struct rlv_writer *w, const struct stream *st);

/* -------- append.c -------- */

/* Appends n filler rows to a stream, which complete its windows that wait for later steps. */
RLV_MUST_CHECK int writer_fill(struct rlv_writer *w, uint32_t stream, uint32_t n);

/* -------- stream.c -------- */

/* Allocates the memory of a zeroed stream. -ENOMEM; stream_fini may be called all the same. */
RLV_MUST_CHECK int stream_init(const struct rlv_writer *w, struct stream *st);
void stream_fini(struct stream *st);

/* Claims the next block of a stream, repeats its last rows there, and closes the old block.
   -EAGAIN: no block is free now. */
RLV_MUST_CHECK int writer_room(struct rlv_writer *w, struct stream *st);

/* Closes the stream's block, if any. 0 also if the block's shard is lost, and the block with it. */
RLV_MUST_CHECK int stream_close_block(struct stream *st);

/* Where the stream's next rows are built. */
static inline uint8_t *stream_rows(const struct rlv_writer *w, const struct stream *st)
{
	return st->next ? st->next : w->stage.ptr + (size_t)st->staged * w->h.desc->row_bytes;
}

/* The stream's last window_max-1 rows, and those of the call in progress. */
static inline struct row_meta stream_meta(const struct stream *st)
{
	const struct row_meta *meta = &st->meta;

	return (struct row_meta){ meta->flags + st->past, meta->steps + st->past,
				  meta->td + st->past };
}

/* Moves the metadata of the last rows to the beginning of its memory. */
void stream_rewind_meta(const struct rlv_writer *w, struct stream *st);

static inline bool stream_has_room(const struct rlv_writer *w, const struct stream *st)
{
	return st->blk.acc && st->blk.used < w->h.desc->block;
}

/* Forgets the streams' blocks in the shard of acc without closing them; keeps the rows that
   windows still need in st->head. */
void writer_drop_blocks(struct rlv_writer *w, const struct access *acc);

/* Computes the crc of a complete row and stores it in the last 4 bytes of the row. */
void writer_seal_row(const struct table_desc *desc, uint8_t *row);

/* Keeps the stream's last window_max-1 rows in st->head, after n rows were staged; for streams
   whose rows are. */
void writer_keep_head(const struct rlv_writer *w, struct stream *st, uint32_t n);

#endif

/*
 * Writer: what append.c (rows and items) and writer.c (open, close, blocks) share.
 */
#ifndef RLV_CLIENT_APPEND_H
#define RLV_CLIENT_APPEND_H

#include "client/handle.h"

#include "ds/limiter.h"
#include "ds/ring.h"

#define WRITER_CHUNK TRANSPORT_VECTOR /* rows that one round of an append takes at most */

/* What is remembered of a row until every window that covers it is complete. */
struct row_meta {
	uint16_t *flags;
	uint32_t *steps;
	double *td; /* negative = none given */
};

/*
 * One environment. meta holds the last window_max-1 rows, then those of the call in progress; a
 * call that fails before it publishes leaves `used` as it was, and its rows are written again.
 */
struct stream {
	struct block blk;
	struct row_meta meta;
	uint8_t *head; /* transports without addressable rows: the last window_max-1 rows */
	uint32_t next_shard;
	uint32_t step; /* of the next row in its episode */
	bool in_episode;
	bool open_window;   /* rows since the last completion: end_episode has work */
	uint32_t planned;   /* rows of the call in progress */
	uint32_t staged;    /* where they begin in the writer's stage */
	uint32_t plan_step; /* step and in_episode after them */
	bool plan_in_episode;
};

struct view_items {
	struct leaf_op *ops; /* grouped by shard */
	uint32_t n;
	uint32_t *shard_end; /* ops of shard s end here */
};

struct rlv_writer {
	struct handle h;
	struct stream *streams;
	uint32_t n_streams;
	uint32_t future_max;
	bool has_obs; /* next observations come from later rows */
	bool direct;  /* rows are built in place */
	bool dead;    /* fenced */
	int64_t timeout_ns;
	uint8_t *stage; /* rows under construction where not direct */
	size_t stage_bytes;
	struct limiter limiters[RING_MAX_VIEWS];
	struct view_items items[RING_MAX_VIEWS];
	uint64_t max_quanta[RING_MAX_VIEWS];     /* running maxima as this call found them */
	uint64_t default_quanta[RING_MAX_VIEWS]; /* of items that come without a TD error */
	struct ring_counters ring;
	struct rlv_stats stats;
};

/* A block with room for at least one row. -ETIMEDOUT: no block became free in time. */
RLV_MUST_CHECK int writer_room(struct rlv_writer *w, struct stream *st, uint64_t deadline_ns);

/* Appends n filler rows, which complete the windows that wait for later steps. */
RLV_MUST_CHECK int writer_fill(struct rlv_writer *w, uint32_t stream, uint32_t n);

/* Stores the crc of a complete row. */
void writer_seal_row(const struct table_desc *desc, uint8_t *row);

/* Not direct: remembers the last window_max-1 rows out of n staged ones. */
void writer_keep_head(struct rlv_writer *w, struct stream *st, uint32_t n);

#endif

/*
 * A saved table: a file that is complete or refused. Reserved bytes are 0.
 *
 *   header | views | columns | chunk | chunk | ... | end chunk
 *
 * Each chunk has a head with its checksums, then its body. Rows come block by block, the oldest first; a
 * block's rows are one run, in one chunk of rows or several, and a chunk of leaves follows them. A run
 * begins window - 1 rows before its first item, so an item of it needs no row of another.
 *
 * Body of a chunk of rows, n rows:    struct save_row [n] | column 0 [n] | column 1 [n] | ...
 * Body of a chunk of leaves, n rows:  for each view, priorities in quanta, u64 [n], 0 = no item; then for
 *                                     each view with max_times_sampled > 1, samples of the item, u32 [n]
 * Body of the end chunk:              struct save_end
 */
#ifndef RLV_WIRE_SAVE_LAYOUT_H
#define RLV_WIRE_SAVE_LAYOUT_H

#include "wire/table_layout.h"

#define SAVE_MAGIC 0x4556415345564c52ull /* "RLVESAVE" */
#define SAVE_CHUNK_MAGIC 0x4b484352u     /* "RCHK" */
#define SAVE_MAJOR 1                     /* a reader refuses another */
#define SAVE_MINOR 0                     /* a greater one adds nothing that a reader must know */
#define SAVE_BODY_MAX ((uint64_t)1 << 31)

enum save_kind { SAVE_ROWS = 1, SAVE_LEAVES = 2, SAVE_END = 3 };
enum save_codec { SAVE_PLAIN = 0, SAVE_ZSTD = 1 };

/*
 *   offset size
 *        0    8  magic
 *        8    2  format major
 *       10    2  format minor
 *       12    4  bytes of the header, views and columns included
 *       16   16  uuid of the table
 *       32   64  its name
 *       96    8  capacity in steps
 *      104    4  shards
 *      108    4  rows of a block, if that was asked for; 0 = the store's default
 *      112    4  max_writers
 *      116    4  max_clients
 *      120    4  columns
 *      124    4  views
 *      128    4  window: rows of the largest item
 *      132   56  reserved
 *      188    4  crc32c of the whole header, this field 0
 */
struct save_header {
	uint64_t magic;
	uint16_t major;
	uint16_t minor;
	uint32_t bytes;
	uint8_t uuid[16];
	char name[TABLE_NAME_BYTES];
	uint64_t capacity;
	uint32_t shards;
	uint32_t block;
	uint32_t max_writers;
	uint32_t max_clients;
	uint32_t n_columns;
	uint32_t n_views;
	uint32_t window;
	uint8_t reserved[56];
	uint32_t crc;
};

WIRE_SIZE(save_header, 192);
WIRE_AT(save_header, bytes, 12);
WIRE_AT(save_header, uuid, 16);
WIRE_AT(save_header, name, 32);
WIRE_AT(save_header, capacity, 96);
WIRE_AT(save_header, shards, 104);
WIRE_AT(save_header, n_columns, 120);
WIRE_AT(save_header, window, 128);
WIRE_AT(save_header, crc, 188);

/* A view: the fields of struct rlv_view, and the scale of its quanta. Bounds may be infinite. */
struct save_view {
	uint32_t stack;
	uint32_t n_step;
	uint32_t selector;
	uint32_t period;
	uint32_t max_times_sampled;
	uint32_t max_staleness;
	double alpha;
	double eps;
	uint64_t min_size;
	double samples_per_insert;
	double min_diff;
	double max_diff;
	uint64_t scale;
	uint8_t reserved[48];
};

WIRE_SIZE(save_view, 128);
WIRE_AT(save_view, alpha, 24);
WIRE_AT(save_view, min_size, 40);
WIRE_AT(save_view, scale, 72);

struct save_column {
	char name[TABLE_NAME_BYTES];
	uint16_t dtype;
	uint16_t role;
	uint32_t ndim;
	uint32_t shape[TABLE_MAX_DIMS];
};

WIRE_SIZE(save_column, 96);
WIRE_AT(save_column, dtype, 64);
WIRE_AT(save_column, ndim, 68);
WIRE_AT(save_column, shape, 72);

/*
 *   offset size
 *        0    4  magic
 *        4    2  kind: enum save_kind
 *        6    2  codec of the body: enum save_codec
 *        8    8  ticket of the block in its shard; with uuid and shard it names the block for ever
 *       16    4  shard
 *       20    4  first row in its block
 *       24    4  rows
 *       28    4  reserved
 *       32    8  bytes of the body
 *       40    8  bytes of the body as stored
 *       48    8  reserved
 *       56    4  crc32c of the body as stored
 *       60    4  crc32c of this head up to here
 */
struct save_chunk {
	uint32_t magic;
	uint16_t kind;
	uint16_t codec;
	uint64_t seq;
	uint32_t shard;
	uint32_t first;
	uint32_t rows;
	uint32_t reserved0;
	uint64_t bytes;
	uint64_t stored;
	uint8_t reserved1[8];
	uint32_t body_crc;
	uint32_t crc;
};

WIRE_SIZE(save_chunk, 64);
WIRE_AT(save_chunk, seq, 8);
WIRE_AT(save_chunk, rows, 24);
WIRE_AT(save_chunk, bytes, 32);
WIRE_AT(save_chunk, body_crc, 56);
WIRE_AT(save_chunk, crc, 60);

struct save_row {
	uint32_t policy_version;
	uint32_t step; /* in its episode */
	uint16_t stream;
	uint16_t flags; /* enum row_flags */
};

WIRE_SIZE(save_row, 12);

/* Counts of a view, as the limiter had them after the last row was read. */
struct save_count {
	uint64_t items; /* in the file */
	uint64_t inserted;
	uint64_t sampled;
	uint64_t max_priority; /* running maximum in quanta */
};

struct save_end {
	uint64_t chunks; /* before this one */
	uint32_t sum;    /* crc32c over the crc fields of their heads */
	uint32_t reserved;
	struct save_count views[RING_MAX_VIEWS];
};

WIRE_SIZE(save_end, 272);
WIRE_AT(save_end, views, 16);

#endif

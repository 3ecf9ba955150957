/*
 * Table descriptor: what every shard's tree region says about its table, at offset DESC_OFF.
 * Immutable after the region is live; crc32c over everything but the crc field. Columns come last,
 * so that messages leave those out that the table does not have (table_desc_used_bytes).
 *
 * Key of an item (u64):  slot:24 (low) | gen:22 | shard:10 | table:8 (top)
 *
 * An item of a view is a window of `window` consecutive rows that ends at the row of its leaf:
 *
 *     row  j-window+1 ............ j-future ........... j
 *          <-- past = stack-1 -->  anchor  <-- future -->
 *
 * The anchor is the step that the item stands for; `future` rows after it give the n-step return
 * and the next observation. The head of every block holds window_max-1 rows that are no anchors'
 * leaves (repeated rows of the writer's previous block, or fillers), so a window never leaves its
 * block.
 */
#ifndef RLV_WIRE_TABLE_LAYOUT_H
#define RLV_WIRE_TABLE_LAYOUT_H

#include "wire/region.h"
#include "wire/ring_layout.h"

#define TABLE_DESC_MAGIC 0x31454c4241544c52ull
#define TABLE_MAX_COLUMNS 256
#define TABLE_MAX_DIMS 6
#define TABLE_NAME_BYTES OBJECT_NAME_BYTES
#define TABLE_MAX_ID OBJECT_MAX_ID
#define TABLE_MAX_SHARDS OBJECT_MAX_PARTS

static inline uint64_t key_make(uint32_t table, uint32_t shard, uint32_t gen, uint32_t slot)
{
	return (uint64_t)table << 56 | (uint64_t)shard << 46 | (uint64_t)gen << 24 | slot;
}

static inline uint32_t key_table(uint64_t key)
{
	return (uint32_t)(key >> 56);
}

static inline uint32_t key_shard(uint64_t key)
{
	return (uint32_t)(key >> 46) & 0x3ffu;
}

static inline uint32_t key_gen(uint64_t key)
{
	return (uint32_t)(key >> 24) & LEAF_GEN_MASK;
}

static inline uint32_t key_slot(uint64_t key)
{
	return (uint32_t)key & 0xffffffu;
}

/* Numbers of dtype, role and selector: those of enum rlv_dtype, rlv_role and rlv_selector. */
enum column_dtype {
	DTYPE_BOOL = 1,
	DTYPE_U8,
	DTYPE_I8,
	DTYPE_U16,
	DTYPE_I16,
	DTYPE_U32,
	DTYPE_I32,
	DTYPE_U64,
	DTYPE_I64,
	DTYPE_F16,
	DTYPE_F32,
	DTYPE_F64,
	DTYPE_BF16,
};

enum column_role { ROLE_PLAIN = 0, ROLE_OBS = 1, ROLE_REWARD = 2, ROLE_NEXT = 3 };

enum view_selector {
	SELECT_PRIORITIZED = 0,
	SELECT_UNIFORM = 1,
	SELECT_FIFO = 2,
	SELECT_LIFO = 3,
};

/* Bytes of one element of a dtype; 0 = no such dtype. */
static inline uint32_t dtype_bytes(uint32_t dtype)
{
	static const uint8_t bytes[] = { 0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8, 2 };

	return dtype < sizeof(bytes) ? bytes[dtype] : 0;
}

/*
 *   offset size
 *        0   64  name, NUL-terminated and NUL-padded
 *       64    2  dtype: enum rlv_dtype
 *       66    2  role: enum rlv_role
 *       68    4  number of dimensions
 *       72   24  shape
 *       96    4  bytes of one step
 *      100    4  offset in the row
 *      104   24  reserved
 */
struct column_desc {
	char name[TABLE_NAME_BYTES];
	uint16_t dtype;
	uint16_t role;
	uint32_t ndim;
	uint32_t shape[TABLE_MAX_DIMS];
	uint32_t bytes;
	uint32_t offset;
	uint8_t reserved[24];
};

WIRE_SIZE(column_desc, 128);
WIRE_AT(column_desc, dtype, 64);
WIRE_AT(column_desc, role, 66);
WIRE_AT(column_desc, ndim, 68);
WIRE_AT(column_desc, shape, 72);
WIRE_AT(column_desc, bytes, 96);
WIRE_AT(column_desc, offset, 100);

/*
 * Limiter bounds of a view (rule 8), in fixed point: samples-per-insert is spi / 2^LIMIT_SPI_BITS
 * and the bounds have the same scale. INT64_MIN / INT64_MAX = no bound.
 *   offset size
 *        0    8  min_size: items ever committed before the first sample
 *        8    8  spi
 *       16    8  min_diff
 *       24    8  max_diff
 */
#define LIMIT_SPI_BITS 16

struct limit_desc {
	uint64_t min_size;
	uint64_t spi;
	int64_t min_diff;
	int64_t max_diff;
};

WIRE_SIZE(limit_desc, 32);

/*
 *   offset size
 *        0    2  selector: enum rlv_selector
 *        2    2  stack: observations stacked, >= 1
 *        4    2  n_step: longest return, >= 1
 *        6    2  flags, zero
 *        8    4  window: rows of an item
 *       12    4  future: rows after the anchor
 *       16    4  period: anchors at step stack-1 of the episode, every period-th from there, and
 *                the last one; 1 = every step
 *       20    4  max_times_sampled, 0 = no limit
 *       24    4  max_staleness in policy versions, 0 = no limit
 *       28    4  reserved
 *       32    8  alpha (double)
 *       40    8  eps (double)
 *       48    8  scale: quanta of priority 1.0
 *       56    8  max_prio in quanta
 *       64   32  limit
 *       96    8  words_off
 *      104   16  inner_off[2]
 *      120    8  leaves_off
 *      128    8  counts_off, 0 = none
 *      136   56  reserved
 */
struct view_desc {
	uint16_t selector;
	uint16_t stack;
	uint16_t n_step;
	uint16_t flags;
	uint32_t window;
	uint32_t future;
	uint32_t period;
	uint32_t max_times_sampled;
	uint32_t max_staleness;
	uint32_t reserved0;
	double alpha;
	double eps;
	uint64_t scale;
	uint64_t max_prio;
	struct limit_desc limit;
	uint64_t words_off;
	uint64_t inner_off[2];
	uint64_t leaves_off;
	uint64_t counts_off;
	uint8_t reserved1[56];
};

WIRE_SIZE(view_desc, 192);
WIRE_AT(view_desc, window, 8);
WIRE_AT(view_desc, alpha, 32);
WIRE_AT(view_desc, scale, 48);
WIRE_AT(view_desc, limit, 64);
WIRE_AT(view_desc, words_off, 96);
WIRE_AT(view_desc, inner_off, 104);
WIRE_AT(view_desc, leaves_off, 120);
WIRE_AT(view_desc, counts_off, 128);

/*
 *   offset size
 *        0    8  magic
 *        8    4  bytes of this struct
 *       12    4  table id, 1..255
 *       16   16  uuid of the table, the same in all its shards
 *       32   64  table name
 *       96    8  capacity of the table in steps
 *      104    4  shards that the capacity is cut into
 *      108    4  number of this shard; shards added later have higher numbers
 *      112    4  slots of a shard (rows, and leaves of each view) = blocks x block
 *      116    4  block: rows of a block
 *      120    4  blocks of a shard
 *      124    4  window_max: largest window of the views
 *      128    4  row bytes, tail included, a multiple of 8
 *      132    4  offset of the row tail
 *      136    4  columns
 *      140    4  views
 *      144    4  max_writers: streams that may hold a block at once
 *      148    4  max_clients: client slots
 *      152    4  flags: enum table_flags
 *      156    4  reserved
 *      160   64  tree geometry, the same for all views
 *      224    8  words_off
 *      232    8  slots_off
 *      240    8  headers_off
 *      248    8  bytes of the tree region
 *      256    8  bytes of the rows region
 *      264    8  bytes of the slots region
 *      272    8  bytes of the pages region
 *      280  228  reserved
 *      508    4  crc32c
 *      512 1536  views
 *     2048 32768 columns
 */
enum table_flags { TABLE_ROW_CRC = 1 };

struct table_desc {
	uint64_t magic;
	uint32_t bytes;
	uint32_t table_id;
	uint8_t uuid[16];
	char name[TABLE_NAME_BYTES];
	uint64_t capacity;
	uint32_t n_shards;
	uint32_t shard;
	uint32_t slots;
	uint32_t block;
	uint32_t blocks;
	uint32_t window_max;
	uint32_t row_bytes;
	uint32_t tail_off;
	uint32_t n_columns;
	uint32_t n_views;
	uint32_t max_writers;
	uint32_t max_clients;
	uint32_t flags;
	uint32_t reserved0;
	struct tree_geometry tree;
	uint64_t words_off;
	uint64_t slots_off;
	uint64_t headers_off;
	uint64_t tree_bytes;
	uint64_t rows_bytes;
	uint64_t slots_bytes;
	uint64_t pages_bytes;
	uint8_t reserved1[228];
	uint32_t crc;
	struct view_desc views[RING_MAX_VIEWS];
	struct column_desc columns[TABLE_MAX_COLUMNS];
};

WIRE_SIZE(table_desc, 34816);
WIRE_AT(table_desc, table_id, 12);
WIRE_AT(table_desc, uuid, 16);
WIRE_AT(table_desc, name, 32);
WIRE_AT(table_desc, capacity, 96);
WIRE_AT(table_desc, n_shards, 104);
WIRE_AT(table_desc, shard, 108);
WIRE_AT(table_desc, slots, 112);
WIRE_AT(table_desc, block, 116);
WIRE_AT(table_desc, blocks, 120);
WIRE_AT(table_desc, window_max, 124);
WIRE_AT(table_desc, row_bytes, 128);
WIRE_AT(table_desc, tail_off, 132);
WIRE_AT(table_desc, n_columns, 136);
WIRE_AT(table_desc, n_views, 140);
WIRE_AT(table_desc, max_writers, 144);
WIRE_AT(table_desc, max_clients, 148);
WIRE_AT(table_desc, flags, 152);
WIRE_AT(table_desc, tree, 160);
WIRE_AT(table_desc, words_off, 224);
WIRE_AT(table_desc, slots_off, 232);
WIRE_AT(table_desc, headers_off, 240);
WIRE_AT(table_desc, tree_bytes, 248);
WIRE_AT(table_desc, rows_bytes, 256);
WIRE_AT(table_desc, slots_bytes, 264);
WIRE_AT(table_desc, pages_bytes, 272);
WIRE_AT(table_desc, crc, 508);
WIRE_AT(table_desc, views, 512);
WIRE_AT(table_desc, columns, 2048);

/* Bytes of the shard's region of that role; 0 = there is none. */
static inline uint64_t table_region_bytes(const struct table_desc *desc, uint32_t role)
{
	const uint64_t bytes[REGION_ROLES] = { 0, desc->tree_bytes, desc->rows_bytes,
					       desc->slots_bytes, desc->pages_bytes };

	return role < REGION_ROLES ? bytes[role] : 0;
}

#endif

/*
 * A pool in one file or on a DAX device: superblock, two copies of the extent table, extents.
 *
 *   0          pool superblock, copy 0, 4 KiB
 *   4096       extent table, copy 0
 *   139264     extent table, copy 1
 *   274432     pool superblock, copy 1, 4 KiB
 *   278528     zeros
 *   2 MiB      extent 1, extent 2, ...   (extent 0 holds all of the above)
 *
 * A region is a run of extents and never moves. A change of the table, with the next sequence
 * number and a crc32c, is written to copy 0 and made durable, then to copy 1. It takes effect when
 * it is in both. So after a crash at any point one copy is whole, and each whole copy has every
 * change that took effect. When the pool is opened, a torn, damaged or older copy is rewritten from
 * the other. A pool grows by a table that counts more extents, in a file that was made longer
 * before.
 *
 * The superblock is written when the pool is made and when its store changes: to copy 1, then to
 * copy 0, each made durable. So one copy is always whole; copy 1 is never older and is used if it
 * is whole. A pool with two blank copies is not made yet.
 *
 * Superblock:
 *   offset size
 *        0    8  magic "RLVPOOL1"
 *        8    2  format major: a reader refuses another one
 *       10    2  format minor
 *       12    4  reserved, zero
 *       16    8  compat features: may be ignored
 *       24    8  read-only-compat features: unknown bit = open for reading only
 *       32    8  incompat features: unknown bit = refuse
 *       40   16  uuid of the pool
 *       56    8  extent size in bytes
 *       64    8  offset of copy 0
 *       72    8  offset of copy 1
 *       80    4  entries that a copy has room for
 *       84   16  uuid of the store that the pool belongs to; zero: of none yet
 *      100   64  name of that store when it took the pool, NUL-terminated, for messages
 *      164    4  layout: enum pool_layout
 *      168    8  a directory: bytes that its regions may take together
 *      176   76  reserved, zero
 *      252    4  crc32c of bytes 0..251
 *      256 3840  zeros
 *
 * A pool in a directory: one file per region, and the file `pool`, which holds the superblock, copy
 * 1 at 4096. It has no extent table, so its offsets and entries are zero.
 *
 *   pool                          superblock, twice; locked by the node that has the pool
 *   region-0007.table.3.0.tree    region 7, of {kind, object, part}, and its role
 *   region-0010.table.3.0.pages.page-1
 *                                 a page of 4 KiB of a region of pages, in the place of the region's own
 *   *.tmp                         a region or a page that was being made
 *
 * A region is made as a temporary file with all blocks allocated and renamed when it is durable; it
 * is given back by unlinking, and its pages after it. A page is made in the same way and renamed
 * over the one that it replaces; the number is its offset in the region divided by 4096. A region's
 * size is the file's. Words of the name: `table` or the number of another kind; `tree`, `rows` or
 * the number of another role; nothing has leading zeros but the region's number, which has four
 * digits.
 */
#ifndef RLV_WIRE_POOL_LAYOUT_H
#define RLV_WIRE_POOL_LAYOUT_H

#include "wire/le.h"
#include "wire/rptr.h"

#define POOL_MAGIC 0x314c4f4f50564c52ull /* "RLVPOOL1" read as little-endian */
#define POOL_FORMAT_MAJOR 4
#define POOL_FORMAT_MINOR 0
#define POOL_EXTENT_BYTES ((uint64_t)2 << 20)
#define POOL_SUPERBLOCK_BYTES 4096u
#define POOL_SUPERBLOCK_OFF1 274432u
#define POOL_STORE_NAME_BYTES 64u
#define POOL_DIRECTORY_OFF1 4096u

#define POOL_RO_COMPAT_KNOWN 0ull
#define POOL_INCOMPAT_KNOWN 0ull

enum pool_layout { POOL_EXTENTS = 0, POOL_DIRECTORY = 1 };

struct pool_superblock {
	uint64_t magic;
	uint16_t format_major;
	uint16_t format_minor;
	uint32_t reserved0;
	uint64_t compat;
	uint64_t ro_compat;
	uint64_t incompat;
	uint8_t uuid[16];
	uint64_t extent_size;
	uint64_t table_off[2];
	uint32_t max_entries;
	uint8_t store_uuid[16];
	char store_name[POOL_STORE_NAME_BYTES];
	uint32_t layout;
	uint64_t bytes;
	uint8_t reserved1[76];
	uint32_t crc;
	uint8_t reserved2[3840];
};

WIRE_SIZE(pool_superblock, POOL_SUPERBLOCK_BYTES);
WIRE_AT(pool_superblock, magic, 0);
WIRE_AT(pool_superblock, format_major, 8);
WIRE_AT(pool_superblock, format_minor, 10);
WIRE_AT(pool_superblock, reserved0, 12);
WIRE_AT(pool_superblock, compat, 16);
WIRE_AT(pool_superblock, ro_compat, 24);
WIRE_AT(pool_superblock, incompat, 32);
WIRE_AT(pool_superblock, uuid, 40);
WIRE_AT(pool_superblock, extent_size, 56);
WIRE_AT(pool_superblock, table_off, 64);
WIRE_AT(pool_superblock, max_entries, 80);
WIRE_AT(pool_superblock, store_uuid, 84);
WIRE_AT(pool_superblock, store_name, 100);
WIRE_AT(pool_superblock, layout, 164);
WIRE_AT(pool_superblock, bytes, 168);
WIRE_AT(pool_superblock, reserved1, 176);
WIRE_AT(pool_superblock, crc, 252);

/*
 * Entry of the extent table.
 *   offset size
 *        0    4  region number, 1..4095
 *        4    2  kind of the object that owns it: enum kind_id
 *        6    2  role within the part: enum region_role
 *        8    4  number of the object: table id
 *       12    4  its part: shard
 *       16    8  first extent, >= 1
 *       24    4  extents, >= 1
 *       28    4  state: enum extent_state
 */
enum extent_state {
	EXTENT_FREE = 0, /* the entry is empty; all of it is zero */
	EXTENT_LIVE = 1,
	EXTENT_QUARANTINE = 2, /* given back, but a client may still have it mapped */
};

struct extent_entry {
	uint32_t region;
	uint16_t kind;
	uint16_t role;
	uint32_t object;
	uint32_t part;
	uint64_t first;
	uint32_t extents;
	uint32_t state;
};

WIRE_SIZE(extent_entry, 32);
WIRE_AT(extent_entry, region, 0);
WIRE_AT(extent_entry, kind, 4);
WIRE_AT(extent_entry, role, 6);
WIRE_AT(extent_entry, object, 8);
WIRE_AT(extent_entry, part, 12);
WIRE_AT(extent_entry, first, 16);
WIRE_AT(extent_entry, extents, 24);
WIRE_AT(extent_entry, state, 28);

/*
 * Copy of the extent table.
 *   offset size
 *        0    8  magic "RLVEXTS1"
 *        8    8  sequence number: of two whole copies the larger one is valid
 *       16    8  extents of the pool, extent 0 included
 *       24    4  entries in use: entries[0..n-1]
 *       28    4  last region number given out
 *       32   28  reserved, zero
 *       60    4  crc32c of bytes 0..59 and of the n entries
 *       64       entries
 */
#define POOL_TABLE_MAGIC 0x3153545845564c52ull /* "RLVEXTS1" */
#define POOL_TABLE_ENTRIES 4095u
#define POOL_TABLE_OFF0 4096u
#define POOL_TABLE_OFF1 139264u
#define POOL_TABLE_BYTES 135168u

struct extent_table {
	uint64_t magic;
	uint64_t seq;
	uint64_t extents;
	uint32_t n;
	uint32_t last_region;
	uint8_t reserved[28];
	uint32_t crc;
	struct extent_entry entries[POOL_TABLE_ENTRIES];
};

WIRE_SIZE(extent_table, 131104);
WIRE_AT(extent_table, magic, 0);
WIRE_AT(extent_table, seq, 8);
WIRE_AT(extent_table, extents, 16);
WIRE_AT(extent_table, n, 24);
WIRE_AT(extent_table, last_region, 28);
WIRE_AT(extent_table, reserved, 32);
WIRE_AT(extent_table, crc, 60);
WIRE_AT(extent_table, entries, 64);
static_assert(sizeof(struct extent_table) <= POOL_TABLE_BYTES, "a copy fits its place");
static_assert(POOL_TABLE_OFF0 + POOL_TABLE_BYTES == POOL_TABLE_OFF1, "the copies do not overlap");
static_assert(POOL_TABLE_OFF1 + POOL_TABLE_BYTES == POOL_SUPERBLOCK_OFF1, "nor does what follows");

#endif

/*
 * Region superblock: the first 4 KiB of every region.
 *
 *   offset size  meaning
 *        0    8  magic "RLVREGN1"
 *        8    2  format major: a reader refuses another one
 *       10    2  format minor
 *       12    4  kind of the object that owns it: enum kind_id
 *       16    8  compat features: may be ignored
 *       24    8  read-only-compat features: unknown bit = open for reading only
 *       32    8  incompat features: unknown bit = refuse
 *       40   16  uuid of the region
 *       56    8  size in bytes, superblock included
 *       64    8  extent size in bytes
 *       72    4  region number (wire/rptr.h)
 *       76    4  atomic domain: enum atomic_domain, for life
 *       80    8  term of the metadata server that granted it
 *       88    8  incarnation of the memory node
 *       96    4  number of the object: table id
 *      100    4  its part: shard
 *      104   16  uuid of the store
 *      120    4  role within the part: enum region_role
 *      124    4  bytes of the part's descriptor, at DESC_OFF of the tree region; 0 in other roles
 *      128   64  name of the object, NUL-terminated and NUL-padded
 *      192   24  told: words that the memory node reports of the part (part_told_at); 0 = none
 *      216   36  reserved, zero
 *      252    4  crc32c of bytes 0..251
 *     1024    8  state (mutable word): enum region_state
 *     1088    8  mark (mutable word): 0 or REGION_MARKED; this and the next three: rows in a file
 *     1152    8  opener (mutable word): incarnation of the node that last opened it exclusively
 *     1216    8  found (mutable word): the mark when that node opened it
 *     1280    8  recovered (mutable word): value of opener at the last repair
 *     1344    8  loading (mutable word, of the slots region): 0, REGION_MARKED or region_replaces()
 *     4096       the object
 *
 * The crc covers the immutable fields only; the mutable words sit apart, one line each.
 */
#ifndef RLV_WIRE_REGION_H
#define RLV_WIRE_REGION_H

#include "wire/le.h"

#include <stdbool.h>

#define REGION_MAGIC 0x314e474552564c52ull /* "RLVREGN1" read as little-endian */
#define REGION_FORMAT_MAJOR 5
#define REGION_FORMAT_MINOR 0
#define REGION_SUPERBLOCK_BYTES 4096
#define REGION_EXTENT_BYTES ((uint64_t)2 << 20)

#define REGION_RO_COMPAT_KNOWN 0ull
#define REGION_INCOMPAT_KNOWN 0ull

/* Kinds of objects: {kind, object, part} names the part that owns a region. */
enum kind_id { OBJECT_TABLE = 1, OBJECT_HEAP = 2 };

#define OBJECT_MAX_ID 255u     /* objects of all kinds have numbers 1.. in one sequence */
#define OBJECT_MAX_PARTS 1024u /* part numbers of an object, over its life */
#define OBJECT_NAME_BYTES 64u

/*
 * A memory node knows no kinds. When it registers, it reports the descriptor of each part, which is
 * opaque to it, and the words at the places that the superblock of the tree region names.
 */
#define DESC_OFF 4096u             /* in the tree region: the part's descriptor */
#define DESC_MAX_BYTES (64u << 10) /* as a node reports it */

enum part_told {
	PART_TOLD_USED, /* 0 until a client has first changed the part */
	PART_TOLD_DUTY, /* the greatest is that of the object's control part */
	PART_TOLD_KIND, /* as the kind says */
	PART_TOLD
};

/*
 * Roles divide regions by writer (wire/ring_layout.h). Arrays of a shard's regions are indexed by
 * role.
 */
enum region_role {
	REGION_TREE = 1,
	REGION_ROWS = 2,
	REGION_SLOTS = 3,
	REGION_PAGES = 4,
	REGION_ROLES, /* one above the last */
};

/*
 * Which atomics change the words of a region: those of one host's CPUs or of one NIC, never both.
 */
enum atomic_domain { ATOMIC_DOMAIN_CPU = 1, ATOMIC_DOMAIN_NIC = 2, ATOMIC_DOMAIN_AGENT = 3 };

/*
 * Any two states differ in several bits: other values are damage; no single flip makes one another.
 */
enum region_state {
	REGION_FORMATTING = 0, /* must not be opened yet */
	REGION_LIVE = 0x4556494c,
	REGION_DROPPED = 0x504f5244,  /* its object was dropped: every call answers -ESTALE */
	REGION_ORPHANED = 0x4e50524f, /* its memory node died and was replaced: -EHOSTDOWN */
};

/*
 * Rows may have been stored that are not durable: set, durably, before the first row is stored, and
 * cleared when rows, then tree, were persisted and nobody can store rows any more. A process that
 * opens a shard exclusively and finds the mark set must check all rows. Any other nonzero value
 * is a damaged mark and counts as set.
 *
 * A memory node sets the mark when it opens its pool, which may be while clients still have it
 * mapped. They continue, and no repair runs meanwhile: the node writes opener and found only when
 * it is the pool's only user; the metadata server writes recovered after it has repaired the shard.
 * If recovered differs from opener, the repair is still to be done.
 *
 * loading: REGION_MARKED while the object is loaded from a file: set before its part is live, cleared,
 * durably, when all items are in. Who finds it set and knows of no client that loads drops the object. If it
 * replaces another one of its name, it is first region_replaces(uuid of that one) in all parts, then that one
 * is dropped, then it is cleared. Who finds that in all parts and has no catalog drops the other one. Any
 * other nonzero value counts as REGION_MARKED.
 */
#define REGION_MARKED UINT64_MAX

/* Loading word of an object that is loaded and replaces the one of its name with that uuid. */
static inline uint64_t region_replaces(const uint8_t uuid[16])
{
	uint64_t word = 0x5250; /* "RP" */

	for (int i = 0; i < 6; i++)
		word = word << 8 | uuid[i];
	return word;
}

/* False: the object is being loaded. */
static inline bool region_is_loaded(uint64_t loading)
{
	return loading == 0 || loading >> 48 == 0x5250;
}

struct region_superblock {
	uint64_t magic;
	uint16_t format_major;
	uint16_t format_minor;
	uint32_t kind;
	uint64_t compat;
	uint64_t ro_compat;
	uint64_t incompat;
	uint8_t uuid[16];
	uint64_t size;
	uint64_t extent_size;
	uint32_t region;
	uint32_t atomic_domain;
	uint64_t ms_term;
	uint64_t incarnation;
	uint32_t object;
	uint32_t part;
	uint8_t store_uuid[16];
	uint32_t role;
	uint32_t desc_bytes;
	char name[OBJECT_NAME_BYTES];
	uint64_t told[PART_TOLD];
	uint8_t reserved0[36];
	uint32_t crc;
	uint8_t reserved1[768];
	struct rword64_line state;
	struct rword64_line mark;
	struct rword64_line opener;
	struct rword64_line found;
	struct rword64_line recovered;
	struct rword64_line loading;
	uint8_t reserved2[2688];
};

/*
 * Place of a reported word in one number: role of its region in the top 8 bits, offset there below.
 */
static inline uint64_t part_told_at(enum region_role role, uint64_t off)
{
	return (uint64_t)role << 56 | off;
}

static inline uint32_t part_told_role(uint64_t at)
{
	return (uint32_t)(at >> 56);
}

static inline uint64_t part_told_off(uint64_t at)
{
	return at & (((uint64_t)1 << 56) - 1);
}

WIRE_SIZE(region_superblock, REGION_SUPERBLOCK_BYTES);
WIRE_AT(region_superblock, magic, 0);
WIRE_AT(region_superblock, format_major, 8);
WIRE_AT(region_superblock, format_minor, 10);
WIRE_AT(region_superblock, kind, 12);
WIRE_AT(region_superblock, compat, 16);
WIRE_AT(region_superblock, ro_compat, 24);
WIRE_AT(region_superblock, incompat, 32);
WIRE_AT(region_superblock, uuid, 40);
WIRE_AT(region_superblock, size, 56);
WIRE_AT(region_superblock, extent_size, 64);
WIRE_AT(region_superblock, region, 72);
WIRE_AT(region_superblock, atomic_domain, 76);
WIRE_AT(region_superblock, ms_term, 80);
WIRE_AT(region_superblock, incarnation, 88);
WIRE_AT(region_superblock, object, 96);
WIRE_AT(region_superblock, part, 100);
WIRE_AT(region_superblock, store_uuid, 104);
WIRE_AT(region_superblock, role, 120);
WIRE_AT(region_superblock, desc_bytes, 124);
WIRE_AT(region_superblock, name, 128);
WIRE_AT(region_superblock, told, 192);
WIRE_AT(region_superblock, reserved0, 216);
WIRE_AT(region_superblock, crc, 252);
WIRE_AT(region_superblock, state, 1024);
WIRE_AT(region_superblock, mark, 1088);
WIRE_AT(region_superblock, opener, 1152);
WIRE_AT(region_superblock, found, 1216);
WIRE_AT(region_superblock, recovered, 1280);
WIRE_AT(region_superblock, loading, 1344);

#endif

/*
 * Heap: a part that keeps values under keys (docs/decisions/0019-heap.md).
 *
 *   tree region   superblock | heap_desc | heap_words | a heap_pin for each client slot
 *                 | heap_extent for each extent | heap_head for each bucket
 *   rows region   superblock | extents, each cut into slots of one size class; a slot holds an entry
 *
 * Head word (u64, CAS; 0 = the bucket was never used). It alone says which entry is current:
 *
 *     version:24 | offset/64 in the rows region:32 | deleted:1 | tag of the key:7
 *
 * HEAD_MOVED in its place: the bucket is in another part now, on another node.
 *
 * Extent word (u64, CAS):   owner:16 | class:8 | sequence:40
 *     owner 0, class 0 = free;   owner 0 = orphan: its owner has left, any client may take it
 *
 * Who writes what: head words, extent words and the epoch are changed by CAS and FAA only; a cell by
 * the winner of the head's last CAS; a pin by its client; an entry by the owner of its extent, before
 * the head names it, and never again until no client can read it.
 */
#ifndef RLV_WIRE_HEAP_LAYOUT_H
#define RLV_WIRE_HEAP_LAYOUT_H

#include "wire/part_layout.h"
#include "wire/region.h"

#define HEAP_DESC_MAGIC 0x31504845u /* "EHP1": layout of the part */
#define HEAP_DESC_MAGIC_STRIPED \
	0x32504845u /* "EHP2": the same, with stripes (wire/stripe_layout.h) */
#define HEAP_WORDS_OFF (DESC_OFF + 256u)
#define HEAP_PINS_OFF (HEAP_WORDS_OFF + sizeof(struct heap_words))
#define HEAP_ROWS_OFF 4096u /* of extent 0 in the rows region */

#define HEAP_KEY_MAX 256u
#define HEAP_INLINE_MAX 96u
#define HEAP_PROBES 64u /* buckets from a key's first one on that may be the key's */
#define HEAP_COPIES_MAX 3u
#define HEAP_BUCKETS_MAX (1u << 30)

/* Who finds and changes the entries of a heap. All but the first keep two copies for each bucket. */
enum heap_mode {
	HEAP_CLOVER = 0,  /* clients, out of place: versions in chains */
	HEAP_DIRECT = 1,  /* clients, in place, under a lock */
	HEAP_CENTRAL = 2, /* a coordinator, for all clients */
	HEAP_MODES,
};
#define HEAP_EXTENTS_MAX (1u << 20)

/* Of parts with one copy all clients are writers, whatever is said. */
enum heap_writers_kind {
	HEAP_WRITERS_ONE = 0, /* a client that owns the part */
	HEAP_WRITERS_MANY = 1,
	HEAP_WRITERS_KINDS,
};

/*
 *   offset size  meaning
 *        0   16  uuid of the object
 *       16   64  name, NUL-padded
 *       80    4  number of the object
 *       84    4  parts; the hash of a key chooses its part. Copies: the catalog's part s is one of
 *                part s % parts
 *       88    4  client slots
 *       92    4  buckets of a part; HEAP_PROBES more records follow the last
 *       96    4  extents of a part
 *      100    1  mode: enum heap_mode
 *      101    1  stripe: a longer value lies in stripes of 1 << stripe bytes of extents; 0 = in its part alone
 *      102    1  copies of each part on other nodes, 1 to HEAP_COPIES_MAX
 *      103    1  who puts into a part with copies: enum heap_writers_kind
 *      104    8  bytes of an extent: a power of two; of a copy in modes with copies, which have no
 *                extents
 *      112    8  seed of the hash of keys
 *      120    4  magic: HEAP_DESC_MAGIC; with stripes HEAP_DESC_MAGIC_STRIPED, which a program from before them refuses
 *      124    4  crc32c of bytes 0..123
 */
struct heap_desc {
	uint8_t uuid[16];
	char name[OBJECT_NAME_BYTES];
	uint32_t id;
	uint32_t n_parts;
	uint32_t max_clients;
	uint32_t buckets;
	uint32_t extents;
	uint8_t mode;
	uint8_t stripe;
	uint8_t copies;
	uint8_t writers;
	uint64_t extent_bytes;
	uint64_t seed;
	uint32_t magic;
	uint32_t crc;
};

WIRE_SIZE(heap_desc, 128);
WIRE_AT(heap_desc, name, 16);
WIRE_AT(heap_desc, id, 80);
WIRE_AT(heap_desc, n_parts, 84);
WIRE_AT(heap_desc, max_clients, 88);
WIRE_AT(heap_desc, buckets, 92);
WIRE_AT(heap_desc, extents, 96);
WIRE_AT(heap_desc, mode, 100);
WIRE_AT(heap_desc, stripe, 101);
WIRE_AT(heap_desc, copies, 102);
WIRE_AT(heap_desc, writers, 103);
WIRE_AT(heap_desc, extent_bytes, 104);
WIRE_AT(heap_desc, seed, 112);
WIRE_AT(heap_desc, magic, 120);
WIRE_AT(heap_desc, crc, 124);

/*
 *   offset size
 *        0  192  words of every part
 *      192   64  epoch (CAS): how often it was advanced; the epoch is one more
 *      256   64  keys (FAA): buckets in use; may lag after a kill
 *      320   64  of the copies of a part, all CAS: ds/heap/copies.h
 *                  0  owner:16 | its lease, the low bits:48; 0 = no client owns it
 *                  8  whole: 1 = it has all that the copies before it have
 *                 16  newest: highest number of a copy that became whole after the first ones
 *                 24  filler: owner id of the server while it fills copies, HEAP_FILLER_WANTED: a client waits for it
 *                 32  lost: with several writers, a bit for each copy that was lost: 1 << part / parts
 */
struct heap_line {
	struct rword64 owner;
	struct rword64 whole;
	struct rword64 newest;
	struct rword64 filler;
	struct rword64 lost;
	uint64_t reserved[3];
};

#define HEAP_FILLER_WANTED (UINT64_C(1) << 32)

struct heap_words {
	struct part_words part;
	struct rword64_line epoch;
	struct rword64_line keys;
	struct heap_line line;
};

WIRE_SIZE(heap_line, WIRE_LINE);
WIRE_AT(heap_line, whole, 8);
WIRE_AT(heap_line, newest, 16);
WIRE_AT(heap_line, filler, 24);
WIRE_AT(heap_line, lost, 32);
WIRE_SIZE(heap_words, 384);
WIRE_AT(heap_words, epoch, 192);
WIRE_AT(heap_words, keys, 256);
WIRE_AT(heap_words, line, 320);

/*
 * Line of a client. A word is 0, an epoch, or HEAP_HELD and a head word: what was replaced since the epoch,
 * and the entry that the head word names, with its chunks, is not reused.
 *   offset size
 *        0    8  pin of the call in progress: an epoch; in mode HEAP_DIRECT as below
 *        8   56  holds
 */
#define HEAP_HOLDS 7u
#define HEAP_HELD (UINT64_C(1) << 63)

struct heap_pin {
	struct rword64 pin;
	struct rword64 holds[HEAP_HOLDS];
};

WIRE_SIZE(heap_pin, WIRE_LINE);
WIRE_AT(heap_pin, holds, 8);

/*
 *   offset size
 *        0    8  extent word
 *        8    8  retired (FAA): entries of it that were replaced; a hint where to collect
 *       16   48  reserved
 */
struct heap_extent {
	struct rword64 word;
	struct rword64 retired;
	uint64_t reserved[6];
};

WIRE_SIZE(heap_extent, WIRE_LINE);
WIRE_AT(heap_extent, retired, 8);

/*
 * Record of a bucket. From offset 16 on it is the cell: a copy of a small value, or of the version
 * alone. A cell is valid if its version and crc are those of the head word and the key.
 *   offset size
 *        0    8  head word
 *        8    8  zero; in mode HEAP_DIRECT the lock; of HEAD_MOVED the head word before that
 *       16    8  version
 *       24    2  bytes of the value; HEAP_CELL_NO_VALUE: it is only in the entry
 *       26    2  further bits of the key's hash
 *       28    4  crc32c over head word, version, key, bytes of the value, value
 *       32   96  value; HEAP_CELL_NO_VALUE: its bytes (u64)
 */
#define HEAP_CELL_OFF 16u
#define HEAP_CELL_NO_VALUE 0xffffu

struct heap_cell {
	uint64_t version;
	uint16_t len;
	uint16_t tag;
	uint32_t crc;
	uint8_t value[HEAP_INLINE_MAX];
};

struct heap_head {
	struct rword64 word;
	struct rword64 lock;
	struct heap_cell cell;
};

WIRE_SIZE(heap_cell, 112);
WIRE_AT(heap_cell, len, 8);
WIRE_AT(heap_cell, tag, 10);
WIRE_AT(heap_cell, crc, 12);
WIRE_AT(heap_cell, value, 16);
WIRE_SIZE(heap_head, 128);
WIRE_AT(heap_head, lock, 8);
WIRE_AT(heap_head, cell, HEAP_CELL_OFF);

/*
 * Entry: header, key, value, padded with zeros to 8 bytes.
 *   offset size
 *        0    4  magic
 *        4    4  crc32c of all bytes from 8 on, the padding apart
 *        8    8  version
 *       16    8  prev: the head word that its put replaced
 *       24    8  hash of the key
 *       32    8  bytes of the value
 *       40    4  bucket
 *       44    2  bytes of the key
 *       46    2  flags: ENTRY_DELETED, ENTRY_MANIFEST, ENTRY_CHUNK, ENTRY_STRIPED
 *       48    4  owner id of its writer
 *       52    4  generation: sequence of its extent, the low bits
 *       56    8  epoch in which it was written; of a manifest, and if it is striped: bytes of the value
 *
 * A value that is longer than an extent lies in chunks: slots of the writer's extents, each with a header
 * and its share of the value. The entry is a manifest, and has as its value struct heap_manifest and a
 * struct heap_piece for each chunk. The header of a chunk has no key, version, hash and crc; bucket is
 * that of the key, len the bytes of its lead and share, and prev the head word that names the manifest: the
 * chunk is in use as long as the bucket has that word.
 */
#define ENTRY_MAGIC 0x544e4552u /* "RENT" */
#define ENTRY_DELETED 1u
#define ENTRY_MANIFEST 2u
#define ENTRY_CHUNK 4u
#define ENTRY_STRIPED 8u /* its value is a struct stripe_manifest: wire/stripe_layout.h */

struct heap_entry {
	uint32_t magic;
	uint32_t crc;
	uint64_t version;
	uint64_t prev;
	uint64_t hash;
	uint64_t len;
	uint32_t bucket;
	uint16_t key_len;
	uint16_t flags;
	uint32_t writer;
	uint32_t gen;
	uint64_t epoch;
};

WIRE_SIZE(heap_entry, WIRE_LINE);
WIRE_AT(heap_entry, version, 8);
WIRE_AT(heap_entry, prev, 16);
WIRE_AT(heap_entry, hash, 24);
WIRE_AT(heap_entry, len, 32);
WIRE_AT(heap_entry, bucket, 40);
WIRE_AT(heap_entry, key_len, 44);
WIRE_AT(heap_entry, flags, 46);
WIRE_AT(heap_entry, writer, 48);
WIRE_AT(heap_entry, gen, 52);
WIRE_AT(heap_entry, epoch, 56);

/*
 * Modes with copies: the rows region has two places of extent_bytes for each bucket, each for an entry
 * of its key. HEAP_DIRECT: the first is the committed copy, the second a put's copy before that; the
 * head record is
 *   offset size
 *        0    8  hash of the key (CAS; 1 for 0 and HEAD_MOVED); 0 = the bucket was never used
 *        8    8  lock (CAS): owner id of who puts, 0 = nobody; DIRECT_MOVED: the bucket is in another part
 *                now, and its second copy here is what it had
 * and the pin of a client is the number, plus one, of the bucket that it locked last, or will.
 * HEAP_CENTRAL: an entry lies in the place of its version's lowest bit; head records are unused.
 */

/*
 *   offset size
 *        0    4  chunks
 *        4    4  lead: bytes between the header of a chunk and its share; zero, or what makes the share begin a page
 *        8    8  bytes of a chunk's share; the last one has the rest
 *       16  112  reserved, zero: no manifest is small enough for a cell
 */
struct heap_manifest {
	uint32_t n;
	uint32_t lead;
	uint64_t share;
	uint64_t spare[14];
};

/*
 *   offset size
 *        0    4  offset / 64 of the chunk's slot in the rows region
 *        4    4  crc32c of its share
 */
struct heap_piece {
	uint32_t place;
	uint32_t crc;
};

WIRE_SIZE(heap_manifest, 128);
WIRE_AT(heap_manifest, lead, 4);
WIRE_AT(heap_manifest, share, 8);
WIRE_SIZE(heap_piece, 8);
WIRE_AT(heap_piece, crc, 4);

#define HEAD_MOVED UINT64_C(0xff) /* offset 0 is no entry's */
#define DIRECT_MOVED UINT64_MAX
#define HEAD_DELETED 0x80u
#define HEAD_VERSION_MASK 0xffffffu
#define HEAD_TAG_MASK 0x7fu

static inline uint64_t head_make(uint64_t version, uint64_t off, uint32_t flags)
{
	return (version & HEAD_VERSION_MASK) << 40 | off / 64 << 8 | (flags & 0xffu);
}

static inline uint64_t head_version(uint64_t word) /* its low 24 bits */
{
	return word >> 40;
}

static inline uint64_t head_off(uint64_t word) /* in the rows region */
{
	return (word >> 8 & UINT32_MAX) * 64;
}

static inline uint32_t head_tag(uint64_t word)
{
	return (uint32_t)word & HEAD_TAG_MASK;
}

/* A head word without HEAD_DELETED as a hold has it, and back. */
static inline uint64_t hold_make(uint64_t word)
{
	return HEAP_HELD | word >> 8 << 7 | (word & HEAD_TAG_MASK);
}

static inline uint64_t hold_word(uint64_t hold)
{
	return (hold & ~HEAP_HELD) >> 7 << 8 | (hold & HEAD_TAG_MASK);
}

#define EXTENT_SEQ_BITS 40

static inline uint64_t extent_make(uint32_t owner, uint32_t cls, uint64_t seq)
{
	return (uint64_t)owner << 48 | (uint64_t)(cls & 0xffu) << EXTENT_SEQ_BITS |
	       (seq & ((UINT64_C(1) << EXTENT_SEQ_BITS) - 1));
}

static inline uint32_t extent_owner(uint64_t word)
{
	return (uint32_t)(word >> 48);
}

static inline uint32_t extent_class(uint64_t word)
{
	return (uint32_t)(word >> EXTENT_SEQ_BITS) & 0xffu;
}

#endif

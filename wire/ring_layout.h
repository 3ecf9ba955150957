/*
 * Ring of a shard: mutable words, block headers, rows. A shard is a part (wire/part_layout.h): it
 * has four regions, each of which begins with a superblock (wire/region.h).
 *
 * The tree region, written by clients that change priorities, read by all:
 *   4096             table descriptor (wire/table_layout.h), immutable
 *   desc.words_off   struct shard_words: head, dirty, epoch
 *   view.words_off   struct view_words of each view
 *   view.inner_off[] two inner arrays of each view (wire/sumtree_layout.h)
 *   view.leaves_off  leaves of each view
 *   view.counts_off  times-sampled words of each view with max_times_sampled > 1
 *   desc.headers_off block headers, one word for each block
 * The rows region, written by writers:
 *   4096             rows
 * The slots region, written by the metadata server alone (embed: by the store); its superblock has
 * the state word that counts for the shard:
 *   desc.slots_off   struct client_slot [max_clients]: who has which slot
 * The pages region; a client is granted two pages of it, the server all:
 *   4096             struct view_limits [8]: the limiter words of each view
 *   8192             struct client_page [max_clients]: a client's pin and its admitted items
 *
 * Block header (u64, CAS):  seq:48 (low) | owner:15 | open:1 (top bit)
 *   seq is a ticket of the shard's head: block = seq mod blocks, lap = seq div blocks,
 *   gen = 1 + lap mod (2^22 - 1). owner = 1 + client slot.
 */
#ifndef RLV_WIRE_RING_LAYOUT_H
#define RLV_WIRE_RING_LAYOUT_H

#include <stdbool.h>

#include "wire/part_layout.h"
#include "wire/sumtree_layout.h"

#define BLOCK_SEQ_BITS 48
#define BLOCK_SEQ_MASK (((uint64_t)1 << BLOCK_SEQ_BITS) - 1)
#define BLOCK_OWNER_MASK PART_OWNER_MASK
#define BLOCK_OPEN ((uint64_t)1 << 63)

#define RING_MAX_VIEWS 8
#define RING_MAX_CLIENTS 1024 /* of a table */

static inline uint64_t block_make(bool open, uint32_t owner, uint64_t seq)
{
	return (open ? BLOCK_OPEN : 0) | (uint64_t)(owner & BLOCK_OWNER_MASK) << BLOCK_SEQ_BITS |
	       (seq & BLOCK_SEQ_MASK);
}

static inline bool block_is_open(uint64_t header)
{
	return (header & BLOCK_OPEN) != 0;
}

static inline uint32_t block_owner(uint64_t header)
{
	return (uint32_t)(header >> BLOCK_SEQ_BITS) & BLOCK_OWNER_MASK;
}

static inline uint64_t block_seq(uint64_t header)
{
	return header & BLOCK_SEQ_MASK;
}

/*
 * Generation of the items in a block of sequence number seq, from its lap (seq / blocks): from 1 to
 * LEAF_GEN_MASK, then again from 1; never 0.
 */
static inline uint32_t block_gen(uint64_t seq, uint32_t blocks)
{
	return 1 + (uint32_t)(seq / blocks % LEAF_GEN_MASK);
}

/*
 * Mutable words of a shard.
 *   offset size
 *        0   64  head: next ticket (FAA)
 *       64  192  words of the part
 */
struct shard_words {
	struct rword64_line head;
	struct part_words part;
};

WIRE_SIZE(shard_words, 256);
WIRE_AT(shard_words, head, 0);
WIRE_AT(shard_words, part, 64);

/*
 * Mutable words of a view in the tree.
 *   offset size
 *        0   64  max_priority: running maximum of the stored priorities (CAS, raised only)
 *       64   64  reserved
 */
struct view_words {
	struct rword64_line max_priority;
	struct rword64_line reserved;
};

WIRE_SIZE(view_words, 128);
WIRE_AT(view_words, max_priority, 0);
WIRE_AT(view_words, reserved, 64);

/*
 * The limiter's words of a view (rule 8), used on the control shard only (shard 0, until that is
 * lost or drained). Garbage in them stalls that view only.
 *   offset size
 *        0   64  ins_admitted (CAS)
 *       64   64  ins_committed (FAA)
 *      128   64  smp_admitted (CAS)
 *      192   64  smp_committed (FAA)
 */
struct view_limits {
	struct rword64_line ins_admitted;
	struct rword64_line ins_committed;
	struct rword64_line smp_admitted;
	struct rword64_line smp_committed;
};

WIRE_SIZE(view_limits, 256);
WIRE_AT(view_limits, ins_admitted, 0);
WIRE_AT(view_limits, ins_committed, 64);
WIRE_AT(view_limits, smp_admitted, 128);
WIRE_AT(view_limits, smp_committed, 192);

/*
 * Items of a view that a client admitted and committed; the difference is returned after its fence.
 */
struct slot_limits {
	struct rword64 ins_admitted;
	struct rword64 ins_committed;
	struct rword64 smp_admitted;
	struct rword64 smp_committed;
};

WIRE_SIZE(slot_limits, 32);

/* Both have the words of inserts, then those of samples, each side admitted, then committed. */
#define VIEW_LIMITS_SIDE sizeof(struct rword64_line[2])
#define SLOT_LIMITS_SIDE sizeof(struct rword64[2])

/*
 * A client's page (struct part_page), as a table uses it.
 *   offset size
 *        0   64  pin
 *       64  256  limits of the 8 views (the control shard's pages only)
 *      320 3776  reserved
 */
struct client_page {
	struct rword64_line pin;
	struct slot_limits limits[RING_MAX_VIEWS];
	uint8_t reserved[3776];
};

WIRE_SIZE(client_page, CLIENT_PAGE_BYTES);
WIRE_AT(client_page, pin, 0);
WIRE_AT(client_page, limits, 64);
WIRE_AT(client_page, reserved, 320);

/*
 * Row: the columns at the offsets of their descriptors, padded to 8, then this tail.
 *   offset size
 *        0    4  policy version
 *        4    4  step in its episode (saturates)
 *        8    2  stream: which environment of the writer
 *       10    2  flags: enum row_flags
 *       12    4  reserved, zero
 *       16    4  gen of the block (trailer)
 *       20    4  crc32c of the row before this field, or 0 = not computed
 */
enum row_flags {
	ROW_FIRST = 1,      /* its observation begins an episode */
	ROW_TERMINATED = 2, /* its action ended the episode: nothing to bootstrap from */
	ROW_TRUNCATED = 4,  /* its action was the last one before a time limit or reset */
	ROW_REPEATED = 8,   /* copy of a row of the writer's previous block: its own leaf stays 0 */
	ROW_FINAL = 16,     /* holds only the observation after the last action; never an anchor */
	ROW_FILLER = 32, /* zeros before a stream's first step or after its last; never an anchor */
};

struct row_tail {
	uint32_t policy_version;
	uint32_t step;
	uint16_t stream;
	uint16_t flags;
	uint32_t reserved;
	uint32_t gen;
	uint32_t crc;
};

WIRE_SIZE(row_tail, 24);
WIRE_AT(row_tail, policy_version, 0);
WIRE_AT(row_tail, step, 4);
WIRE_AT(row_tail, stream, 8);
WIRE_AT(row_tail, flags, 10);
WIRE_AT(row_tail, gen, 16);
WIRE_AT(row_tail, crc, 20);

/*
 * Makes the times-sampled word of an item (u64, FAA): count:32 (low) | gen:22 at bit 32. It is
 * reset when a writer claims the item's block.
 */
static inline uint64_t count_make(uint32_t gen, uint32_t count)
{
	return (uint64_t)gen << 32 | count;
}

#define ROWS_OFF 4096u

#endif

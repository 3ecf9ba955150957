/*
 * Part: the regions of one object shard on one memory node, of any kind (enum kind_id). It has four
 * regions, divided by writer:
 *
 *   tree    the part's words and the structure of its kind; written by clients that change it
 *   rows    bulk data of the kind; written by clients that may write
 *   slots   which client has which slot; written by the metadata server alone
 *   pages   4096: the page of limits, shared by all clients; 8192: a page for each client slot
 *
 * Epoch word (u64, CAS):    owner:15 (low) | mode:2 at bit 16 | epoch:32 at bit 32
 */
#ifndef RLV_WIRE_PART_LAYOUT_H
#define RLV_WIRE_PART_LAYOUT_H

#include "wire/le.h"

#define PART_OWNER_MASK 0x7fffu /* owner ids are 1 + client slot */

#define LIMITS_OFF 4096u /* in the pages region: a page of its own ... */
#define PAGES_OFF 8192u  /* ... and those of the clients behind it */

enum epoch_mode { EPOCH_NORMAL = 0, EPOCH_ZERO = 1, EPOCH_DUAL = 2 };

static inline uint64_t epoch_make(uint32_t epoch, enum epoch_mode mode, uint32_t owner)
{
	return (uint64_t)epoch << 32 | (uint64_t)mode << 16 | (owner & PART_OWNER_MASK);
}

static inline uint32_t epoch_number(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

static inline enum epoch_mode epoch_mode_of(uint64_t word)
{
	return (enum epoch_mode)(word >> 16 & 3u);
}

static inline uint32_t epoch_owner(uint64_t word)
{
	return (uint32_t)word & PART_OWNER_MASK;
}

/*
 * Mutable words of a part.
 *   offset size
 *        0   64  dirty: fences of clients whose slot was not idle (FAA, after the fence holds)
 *       64   64  epoch word (CAS)
 *      128   64  clean: value of dirty that the last clean rebuild saw (written by the rebuilder)
 */
struct part_words {
	struct rword64_line dirty;
	struct rword64_line epoch;
	struct rword64_line clean;
};

WIRE_SIZE(part_words, 192);
WIRE_AT(part_words, dirty, 0);
WIRE_AT(part_words, epoch, 64);
WIRE_AT(part_words, clean, 128);

/*
 * Client slot: one for each writer or sampler handle, in each part; owner id = 1 + index. Written
 * by whoever hands slots out; clients read it.
 *   offset size
 *        0    8  state: 0 free, 1 live, 2 fenced
 *        8    4  pid
 *       12    4  reserved
 *       16    8  start time of the process (clock ticks since boot)
 *       24   16  boot id of the host
 *       40    8  lease id
 *       48   16  reserved
 */

enum slot_state { SLOT_FREE = 0, SLOT_LIVE = 1, SLOT_FENCED = 2 };

struct client_slot {
	struct rword64 state;
	uint32_t pid;
	uint32_t reserved0;
	uint64_t start_time;
	uint8_t boot_id[16];
	uint64_t lease;
	uint8_t reserved1[16];
};

WIRE_SIZE(client_slot, 64);
WIRE_AT(client_slot, state, 0);
WIRE_AT(client_slot, pid, 8);
WIRE_AT(client_slot, start_time, 16);
WIRE_AT(client_slot, boot_id, 24);
WIRE_AT(client_slot, lease, 40);

/*
 * A client's own page, granted to it alone. All others treat it as untrusted input.
 *   offset size
 *        0    8  pin: SLOT_IDLE, or v = "I make no delta computed under an epoch < v"
 *        8   56  reserved
 *       64  256  as the kind says
 *      320 3776  reserved
 */
#define SLOT_IDLE UINT64_MAX
#define CLIENT_PAGE_BYTES 4096u

struct part_page {
	struct rword64_line pin;
	uint8_t kind[256];
	uint8_t reserved[3776];
};

WIRE_SIZE(part_page, CLIENT_PAGE_BYTES);
WIRE_AT(part_page, pin, 0);
WIRE_AT(part_page, reserved, 320);

#endif

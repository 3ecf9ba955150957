/*
 * Slot: who a client of a part is (struct client_slot of wire/part_layout.h), as the server says, and
 * what it has promised, as its page does (struct part_page). A handle has the same slot in every part of
 * its object; owner = 1 + slot.
 *
 *   take      the fields are written while the state is still FREE, then FREE -> LIVE by CAS: a
 *             giver that dies half-way leaves a free slot, and the next take writes all of it again
 *   release   by its owner, idle, with no block open: LIVE -> FREE
 *   fence     LIVE -> FENCED, and only ds/part/fence.h makes it free again
 *
 * Only one party at a time hands slots out: the metadata server, or embed's store under its lock.
 */
#ifndef RLV_DS_PART_SLOT_H
#define RLV_DS_PART_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/part.h"

#include "base/error.h"
#include "base/os/process.h"

#define SLOT_READ_MAX 64u /* slots that one slot_read_many takes */

struct slot_info {
	uint32_t slot;
	enum slot_state state; /* the rest is garbage while it is SLOT_FREE */
	struct process_id process;
	uint64_t lease;
	uint64_t pin; /* input: of its client's; SLOT_IDLE where its page is not attached */
};

/*
 * Gives the slot to a process. Errors: -EINVAL (no such slot), -EBUSY (it is not free), those of
 * the transport; after one the slot is free, or live if the last answer was lost (-EIO): release
 * it. Cost: 3 phases. Thread: setup.
 */
RLV_MUST_CHECK int slot_take(struct part *part, uint32_t slot, const struct process_id *process,
			     uint64_t lease);

/* -ENOSPC: all max_clients are in use. Cost: 1 phase for 64 slots. Thread: setup. */
RLV_MUST_CHECK int slot_find_free(struct part *part, uint32_t *slot_out);

/*
 * Frees a live slot. The owner has closed its blocks and given its admissions back. -EBUSY: it
 * still holds a promise or runs a rebuild; -ESTALE: it is not live. Cost: 3 phases. Thread: setup.
 */
RLV_MUST_CHECK int slot_release(struct part *part, uint32_t slot);

/* Cost: 1 phase. Thread: any, for the rest. */
RLV_MUST_CHECK int slot_read(struct part *part, uint32_t slot, struct slot_info *info_out);

/* n <= SLOT_READ_MAX slots from `first`; how one walks over all of them. Cost: 1 phase. */
RLV_MUST_CHECK int slot_read_many(struct part *part, uint32_t first, uint32_t n,
				  struct slot_info *infos_out);

#endif

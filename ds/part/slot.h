/*
 * Slot: identity of a client of a part, written by the server (struct client_slot of
 * wire/part_layout.h), and its pin, written by the client in its own page (struct part_page). A
 * handle has the same slot in every part of its object; owner = 1 + slot.
 *
 *   take      writes the fields while the state is still FREE, then CAS FREE -> LIVE: a server that
 *             dies half-way leaves a free slot, and the next take rewrites all fields
 *   release   by its owner, idle, with no block open: LIVE -> FREE
 *   fence     LIVE -> FENCED; only ds/part/fence.h frees it again
 *
 * Only one party at a time assigns slots: the metadata server, or embed's store under its lock.
 */
#ifndef RLV_DS_PART_SLOT_H
#define RLV_DS_PART_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/part.h"

#include "base/error.h"
#include "base/os/process.h"

#define SLOT_READ_MAX 64u /* most slots of one slot_read_many */

struct slot_info {
	uint32_t slot;
	enum slot_state state; /* the other fields are undefined while it is SLOT_FREE */
	struct process_id process;
	uint64_t lease;
	uint64_t pin; /* untrusted, written by the client; SLOT_IDLE if its page is not attached */
};

/*
 * Has the memory node make fresh memory for the page of a free slot, where that is its task (a
 * directory pool); slot_take then uses it. -EAGAIN: in progress, call again, or slot_take returns
 * it; -EBUSY: the slot is not free; errors of the transport. Cost: 1 phase, none over a wire.
 * Thread: setup.
 */
RLV_MUST_CHECK int slot_prepare(struct part *part, uint32_t slot);

/*
 * Assigns the slot to a process. Errors: -EINVAL (no such slot, or its page is not attached),
 * -EBUSY (not free), those of the transport (-EAGAIN: see slot_prepare). After an error this call
 * has not taken it; only after -EIO (the last answer was lost) it may be live: release it. Cost: 3
 * phases. Thread: setup.
 */
RLV_MUST_CHECK int slot_take(struct part *part, uint32_t slot, const struct process_id *process,
			     uint64_t lease);

/*
 * Frees a live slot. The owner has closed its blocks and returned its admissions. -EBUSY: it still
 * holds a pin or runs a rebuild; -ESTALE: it is not live. Cost: 3 phases. Thread: setup.
 */
RLV_MUST_CHECK int slot_release(struct part *part, uint32_t slot);

/*
 * Reads one slot and its pin. -EINVAL: no such slot. Cost: 1 phase. Thread: any, for this and
 * slot_read_many.
 */
RLV_MUST_CHECK int slot_read(struct part *part, uint32_t slot, struct slot_info *info_out);

/*
 * Reads n slots from `first`, with their pins. -EINVAL: n > SLOT_READ_MAX, or no such slot. Cost: 1
 * phase.
 */
RLV_MUST_CHECK int slot_read_many(struct part *part, uint32_t first, uint32_t n,
				  struct slot_info *infos_out);

/*
 * Changes the slot's state by one CAS. *old_out: the state found; if it is not `from`, nothing
 * changed.
 */
RLV_MUST_CHECK int slot_swap_state(struct part *part, uint32_t slot, enum slot_state from,
				   enum slot_state to, uint64_t *old_out);

#endif

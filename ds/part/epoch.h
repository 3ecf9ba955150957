/*
 * Epoch: selects which of the two inner arrays counts a change, and the pin that lets a rebuild
 * prove that no client still holds a change counted under an older epoch (rule 7).
 *
 * One struct epoch per handle (writer or sampler) and shard. Every call that changes leaves runs
 * between enter and leave:
 *
 *   enter   page.pin = e; seq_cst; re-read e, repeat if it moved
 *   ...     swap leaves; buffer deltas under the epoch of the swapped tags
 *   leave   after the flush: page.pin = SLOT_IDLE. If that fails the pin stands until the next one.
 *
 * Delta targets (fixed at the CAS by the tags of the swapped words, never by the mode at flush):
 *   e   -> e     arr[e]   += new - old
 *   e   -> e+1   arr[e]   += new - old,  arr[e+1] += new      (DUAL: the leaf migrates)
 *   e+1 -> e+1   arr[e+1] += new - old,  arr[e] too while DUAL
 *
 * A pin v means "I hold and will make no delta computed under an epoch < v". A pass from e to e+1
 * waits for every pin >= e, so the shard is never more than one epoch ahead of a pin.
 *
 * Chains do not wait for the pin: a write at the head of the chain sets it before the CASes that it
 * covers, and a fenced write behind the additions clears it. A chain uses the epoch view of the
 * last call, unchecked: a CAS that finds the expected tag proves the view, and any other tag makes
 * the handle read the epoch again. In a DUAL view the tag proves too little, so the epoch is
 * re-read behind the pin (docs/memory-model.md, "E7, E8: calls over a wire").
 */
#ifndef RLV_DS_PART_EPOCH_H
#define RLV_DS_PART_EPOCH_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/part.h"

#include "transport/transport.h"

#include "wire/part_layout.h"

#include "base/error.h"

struct epoch {
	/*
	 * The epoch word and the pin, where they can be changed in place; else NULL. First, as a call in
	 * place on many parts needs no more than this of each: one cache line.
	 */
	const struct rword64 *word_near, *pin_near;
	uint32_t number; /* as last read */
	uint32_t pinned; /* value of the pin while entered: number, or one less after a refresh */
	enum epoch_mode mode;
	bool entered;
	bool damaged; /* a leaf's tag matched no epoch: sums may be wrong, a rebuild is due */
	struct region *region; /* tree region of the part */
	uint64_t word_off;     /* the part's epoch word */
	struct region *page;   /* holds this handle's pin; NULL = a reader, which never pins */
	uint64_t pin_off;

	/* Chains only. */
	bool known;     /* the view may be used without a re-read */
	bool due;       /* the pin must still be written */
	bool standing;  /* the pin was written and is not withdrawn */
	uint64_t stage; /* source buffer of the pin write */
};

/*
 * Initialises the epoch of a handle in one part, not entered. owner: the owner id whose page holds
 * the pin; 0 = a reader, which never pins.
 * Thread: owner, for all functions of this file.
 */
void epoch_init(struct epoch *ep, const struct part *part, uint32_t owner);

/*
 * Writes the epoch as the pin into the handle's page, and reads the epoch again, until the two are
 * equal. While already entered (the last leave failed) it only reads the epoch; if it moved past
 * the pin it returns -ESTALE and changes nothing: flush, leave and enter again.
 * Errors: -EINVAL (no slot), -EAGAIN (the epoch kept moving), -ETIMEDOUT, -ECONNRESET, -EHOSTDOWN;
 * after an error a handle that was not entered is not entered, and its pin may stand until the next
 * leave.
 * Cost: 2 phases over a wire; none in place.
 */
RLV_MUST_CHECK int epoch_enter(struct epoch *ep);

/*
 * epoch_enter of many parts whose words can be changed in place, for one barrier: begin of each, which
 * writes its pin; rword64_announced(); end of each, which reads its epoch again. Errors of end: those of
 * epoch_enter.
 */
void epoch_enter_begin(struct epoch *ep);
RLV_MUST_CHECK int epoch_enter_end(struct epoch *ep);

/*
 * Reads the epoch word into ep: for readers, who have no pin, and during a call that found a leaf's
 * tag outside ep's view. An older pin stays, which is safe: it promises less. Cost: 1 phase over a
 * wire.
 */
RLV_MUST_CHECK int epoch_refresh(struct epoch *ep);

/*
 * Withdraws the handle's pin; a reader has none. The caller has flushed every delta. May be
 * repeated; on an error the pin stands and the handle is still entered. Cost: 1 phase over a wire.
 */
RLV_MUST_CHECK int epoch_leave(struct epoch *ep);

/*
 * *tag_out: the tag that a CAS must write over a word tagged old_tag, under ep's view. -ESTALE:
 * old_tag belongs to another epoch; refresh and try again.
 */
RLV_MUST_CHECK int epoch_next_tag(const struct epoch *ep, uint32_t old_tag, uint32_t *tag_out);

/* -------- as chains -------- */

/*
 * Enters the epoch without waiting, under the view of the last call. The caller sends the write
 * from epoch_pin ahead of the first change. -EINVAL: no slot; -ESTALE as epoch_enter; errors of the
 * transport. Cost: none; 1 phase in the first call and after one that met a rebuild.
 */
RLV_MUST_CHECK int epoch_enter_chain(struct epoch *ep);

/*
 * Builds the write of the pin if it was not sent since epoch_enter_chain; false = it was. The write
 * reads from ep, which must not move until it is sent.
 */
bool epoch_pin(struct epoch *ep, struct transport_wr *wr_out);

/* Builds the write that withdraws the pin. false = no pin stands. */
bool epoch_withdrawal(const struct epoch *ep, struct transport_wr *wr_out);

/*
 * Ends the entered state and builds the write that withdraws the pin; the caller sends it behind
 * the additions of the chain. false = no pin stands, nothing to send.
 */
bool epoch_withdraw(struct epoch *ep, struct transport_wr *wr_out);

/*
 * True if the client with this pin (a word of its page) blocks a rebuild pass that starts from
 * epoch `number`: the pin is of an older epoch, and not idle.
 */
bool epoch_blocks_pass(uint64_t pin, uint32_t number);

#endif
